from ssop_chassis.tracing cimport is_traced


cdef class InferenceServicer:
    cdef object _node
    cdef Py_ssize_t _max_schemas
    cdef double _warm_up_timeout_s
    cdef dict _terms
    cdef object _plans
    cdef object _tool_plans

    cdef _known_plan(self, tuple key)

    cdef _downgrade(self, model, asked, plan)


cdef tuple _reader(model)


cdef _messages(model, plan, asked, tools)


cdef _messages_of(model, plan, prompt, passages, tools)


cdef _instruction(model, plan, tools)

cimport cython


cdef class Node:
    cdef public object peer
    cdef readonly Py_ssize_t in_flight
    cdef public bint is_leaving
    cdef bint _needs_status
    cdef public object status
    cdef readonly str name
    cdef public object seen_at_ms
    cdef readonly bint is_connected
    cdef readonly object standing
    cdef object _expected_tiers
    cdef tuple _models
    cdef object _memory_free_ratio
    cdef readonly object started_at_ms
    cdef public list tiers
    cdef object _outcomes
    cdef object _view
    cdef object _is_back

    cpdef lose(self)

    cdef occupy(self, Py_ssize_t requests)

    cdef record(self, outcome, now_ms)

    cpdef stand(self, standing)

    cpdef view(self)

    cdef tuple _read(self)


cdef class Occupation:
    cdef object _address
    cdef Node _node
    cdef Nodes _nodes


cdef class Nodes:
    cdef readonly object outcomes
    cdef dict _nodes
    cdef object _clock_ms
    cdef object _rng
    cdef object _metadata
    cdef object _stale_ms
    cdef object _restart_ms
    cdef object _reconnect_ms
    cdef object _on_fault
    cdef public object _snapshot
    cdef object _heard
    cdef object _rotation
    cdef dict _watches
    cdef bint _is_watching
    cdef dict _on_gone

    cdef _let_go(self, Node node)

    @cython.locals(node=Node, views=list)
    cpdef snapshot(self)

    @cython.locals(node=Node)
    cpdef Node begin(self, address)

    cpdef end(self, Node node)

    cpdef finish(self, Node node, outcome, double latency_ms)

    cdef _place(self, Node node, standing)

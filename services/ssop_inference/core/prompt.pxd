cdef class ControlTokens:
    cdef set _firsts
    cdef object _starts

    cpdef break_up(self, text)


cpdef tuple build_messages(turns, passages, control, instruction=*, write_call=*)


cdef _broken(turn, control)

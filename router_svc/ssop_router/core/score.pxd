cdef object _NO_TIER, _LITE, _FULL, _UNCERTAIN, _SCORE, _HEADROOM, _SUCCESS


cpdef tuple read_tier(score)


cdef _older(one, other)

cdef _find(situation, tier, now_ms, rng)

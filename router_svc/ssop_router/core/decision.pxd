cdef class _Live:
    cdef readonly object features
    cdef object snapshot
    cdef readonly object settings
    cdef object now_ms
    cdef object rng
    cdef object score_text
    cdef dict _chosen

    cpdef choose(self, tier)

    cpdef find_rule(self)

    cpdef weigh(self)


cpdef allowed_tiers(features, settings)


cdef _cascade_tiers(features, named)


cdef _require_tier(features, tier)


cpdef find_rule(features, settings)


cpdef prefer(scene)


cdef _by_score(scene)


cdef _go_on(scene)


cdef tuple _weak_signals(complexity, score, candidate)


cpdef tuple plan_cache(features)


cpdef is_cacheable(features)


cpdef tuple plan_retrieval(features)

from ssop_cache.core.circuit cimport Circuit
from ssop_chassis.attention cimport Attention
from ssop_chassis.pace cimport Pace


cdef class _Shard:
    cdef public object instance
    cdef readonly Circuit circuit
    cdef public object task
    cdef public bint is_gone


cdef class _Route:
    cdef public _Shard shard
    cdef public bint is_moving


cdef class RedisStore:
    cdef readonly object role
    cdef Pace _pace
    cdef Attention _attention
    cdef object _metrics
    cdef object _connection_wait_s
    cdef object _probe_interval_s
    cdef object _deployment
    cdef object _slots
    cdef dict _scripts
    cdef dict _digests
    cdef dict _shards
    cdef object _learning
    cdef double _told_refusal_s
    cdef public Py_ssize_t changes
    cdef public object verify

    cdef str _take_refusal(self, _Shard shard, error)

    cdef _unavailable(self, kind)

    cdef _Shard _shard_of(self, key)

    cdef _Shard _shard(self, instance)

    cdef _refuse_if_open(self, _Shard shard)

    cdef _learn_pace(self, _Shard shard)

    cdef _learn_soon(self)

    cdef _tell_up(self)


cdef _sha1(str text)

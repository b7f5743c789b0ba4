cpdef check_request_id(str request_id)

cpdef check_key(bytes cache_key, str path=*, bint is_required=*)

cpdef check_ttl(ttl_ms)

cpdef check_lease(lease_ms, str path=*)

cpdef check_share(double share)

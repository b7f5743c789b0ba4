cpdef check_request_id(str request_id)

cpdef check_ttl(ttl_ms)

cpdef check_share(double share)

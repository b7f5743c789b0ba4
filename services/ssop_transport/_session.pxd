"""What a connection needs of its session, and its callbacks of both."""

from libc.stdint cimport int32_t, uint32_t

from ssop_transport._block cimport Blocks
from ssop_transport._stream cimport Stream
from ssop_transport._wire cimport Wire
from ssop_transport.nghttp2 cimport nghttp2_session


cdef const char *DRAIN_MARK
cdef Stream find(nghttp2_session *session, int32_t stream_id)


cdef class Session(Wire):
    cdef dict _streams
    cdef list _news
    cdef Blocks _blocks
    cdef size_t _block_bytes
    cdef readonly bint is_draining
    """No call may begin: one side said so, or the connection is gone."""
    cdef readonly bint is_drain_heard
    """The peer answered to `announce_drain`, or is gone."""
    cdef readonly size_t begun_count
    """Calls that clients began on it."""
    cdef object _loop
    cdef readonly bint is_greeted
    """The peer's first SETTINGS came."""
    cdef bint _is_server, _is_reading
    cdef size_t _max_header_bytes
    cdef double _cheap_full_s

    cdef int begin(self) except -1
    cdef int count_cheap(self) except -1

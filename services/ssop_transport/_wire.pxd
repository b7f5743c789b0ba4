"""What a stream needs of its connection."""

from ssop_transport.nghttp2 cimport nghttp2_session


cdef class Room:
    cdef readonly size_t held_bytes
    cdef size_t most_bytes


cdef class Wire:
    cdef nghttp2_session *session
    """NULL once the connection is gone."""
    cdef size_t max_message_bytes
    cdef Room room
    """None: no bound beside those of streams."""
    cdef void want_flush(self)
    cdef int flush_whole(self) except -1
    cdef void note(self, object stream)

"""What a stream needs of its connection."""

from ssop_transport.nghttp2 cimport nghttp2_session


cdef class Wire:
    cdef nghttp2_session *session
    """NULL once the connection is gone."""
    cdef size_t max_message_bytes
    cdef void want_flush(self)
    cdef void note(self, object stream)

"""Streams, as their connection sees them."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from ssop_transport._block cimport Block
from ssop_transport._wire cimport Wire
from ssop_transport.nghttp2 cimport nghttp2_nv, nghttp2_session, nghttp2_data_source, ssize_t


cdef nghttp2_nv *copy_headers(list pairs, int32_t stream_id) except NULL
cdef ssize_t read_source(nghttp2_session *session, int32_t stream_id, uint8_t *buffer, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user_data) noexcept


cdef class Stream:
    cdef Wire wire
    cdef readonly int32_t id
    cdef public object listener
    cdef readonly Block head
    cdef readonly Block tail
    cdef readonly bytes timeout
    cdef readonly bytes request_id
    cdef readonly bint is_ended
    cdef readonly bint is_closed
    cdef readonly uint32_t error_code
    cdef readonly str failure
    cdef readonly size_t failed_bytes
    cdef bint has_news, is_seen, is_left
    cdef uint8_t _prefix[5]
    cdef int _prefix_bytes
    cdef bytes _message, _encoding
    cdef bint _is_packed
    cdef size_t _filled
    cdef object messages
    cdef size_t _queued_bytes, _held_bytes
    cdef object _queue
    cdef size_t _offset
    cdef size_t _pending_bytes
    cdef bint _has_responded, _is_deferred, is_finished, _is_reset
    cdef size_t _size
    cdef size_t _roomed_bytes, _stuck_bytes
    cdef int _stuck_ticks
    cdef list _own_trailers
    cdef object _taker, _context
    cdef public object pending
    cdef readonly object fault

    cdef bint keep_apart(self, const uint8_t *name, size_t name_length, const uint8_t *value,
                         size_t value_length) except -1
    cpdef bint hand_over(self) except -1
    cpdef object take(self)
    cpdef respond(self, list headers)
    cpdef refuse(self, list headers)
    cpdef answer(self, list headers, bytes message, bint is_packed, list trailers)
    cpdef write(self, bytes message, bint is_packed=*)
    cpdef finish(self, list trailers=*)
    cpdef leave(self)
    cpdef reset(self, uint32_t error_code=*)
    cdef void _give_back(self)
    cdef object _unpack(self, bytes packed)
    cdef bint _is_open(self)
    cdef int _submit_head(self, list headers, bint has_more) except -1
    cdef int put(self, bytes message, bint is_packed) except -1
    cdef void _undefer(self)
    cdef void _resume(self)
    cdef int feed(self, const uint8_t *data, size_t length) except -1
    cdef ssize_t fill(self, nghttp2_session *session, uint8_t *buffer, size_t length, uint32_t *flags) except? -1
    cdef void end(self, uint32_t error_code)
    cdef int look(self, int most_ticks) except -1
    cdef bint _take_room(self, size_t length)
    cdef void _leave_room(self, size_t length)

# cython: language_level=3, boundscheck=False, wraparound=False
"""One gRPC call as a stream of HTTP/2: messages with their prefixes in and out, each direction with a bound.

"gRPC over HTTP2" of the gRPC project: a message is a byte for compression, four for its length, and its bytes.
"""

import logging
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from ssop_transport._block cimport Block
from ssop_transport._wire cimport Wire
from ssop_transport.compression import PackError, PackTooLargeError, encoding_of, unpack
from ssop_transport.nghttp2 cimport *

_log = logging.getLogger(__name__)

# What of whole messages nobody has taken before a peer's window is no longer given back.
cdef size_t READ_AHEAD_BYTES = 32_768
# A message that is larger has to find room among what all streams of a server hold; it has memory as its bytes come.
cdef size_t LARGE_BYTES = 65_536
# What may wait to be sent before a writer has to wait.
cdef size_t WRITE_AHEAD_BYTES = 32_768
# Ids of streams from one whose headers all go into the peer's table to the next: clients use every second id.
cdef int32_t NAMING_IDS = 128


cdef nghttp2_nv *copy_headers(list pairs, int32_t stream_id) except NULL:
    """An array for libnghttp2, which copies what it points to; to be freed. `stream_id`: of the stream it is for."""
    cdef Py_ssize_t count = len(pairs), index
    cdef bint is_naming = stream_id % NAMING_IDS == 1
    cdef nghttp2_nv *array = <nghttp2_nv *>malloc((count + 1) * sizeof(nghttp2_nv))
    cdef bytes name, value
    if array == NULL:
        raise MemoryError
    for index in range(count):
        name, value = pairs[index]
        array[index].name = <uint8_t *>PyBytes_AS_STRING(name)
        array[index].namelen = PyBytes_GET_SIZE(name)
        array[index].value = <uint8_t *>PyBytes_AS_STRING(value)
        array[index].valuelen = PyBytes_GET_SIZE(value)
        # What differs with each call would only drive out of the peer's table what comes again. One in many goes in, so
        # that the others send the place of their name instead of its letters.
        array[index].flags = NGHTTP2_NV_FLAG_NO_INDEX if not is_naming and is_of_call(
            array[index].name, array[index].namelen) else NGHTTP2_NV_FLAG_NONE
    return array


cdef bint is_of_call(const uint8_t *name, size_t name_length) noexcept:
    """Whether a header with this name is of one call, whatever else calls have in common."""
    return ((name_length == 12 and memcmp(name, b"grpc-timeout", 12) == 0)
            or (name_length == 17 and memcmp(name, b"x-ssop-request-id", 17) == 0))


cdef class Stream:
    """One call."""

    # `listener` is called without arguments when something came, was sent, or ended. `head` is the peer's first block of
    # headers, None until it is whole; `tail` its last. What differs with each call of a client stands beside its head and
    # not in it: `timeout` (`grpc-timeout`) and `request_id`; they are None where it said nothing. `is_ended`: the peer sends no more. `is_closed`: nothing moves any
    # more, and `error_code` says why. `is_seen`: a server's shell was told of it. `is_left`: nobody wants to hear of it. `failure` says why what the peer sent can't be read: `metadata_too_large`,
    # `message_too_large`, `compressed` (without an encoding that is known), `flag_unknown`, `damaged`, `no_room`, else it
    # is empty.
    # `pending` is what the one to whom messages are handed over has returned, and is to be awaited before the next; `fault` what
    # it has raised: none comes any more.
    # A message that is packed waits in a tuple, as it came, so that what waits is bounded by what was sent.

    # `messages` and `_queue` are None where nothing waits in them: an empty deque is the largest part of an idle stream.

    def __cinit__(self):
        self.failure = ""

    @property
    def is_over(self):
        """Nothing more comes that can be read."""
        return self.is_closed or self.is_ended or bool(self.failure)

    @property
    def has_one_message(self):
        """It is whole, nobody has taken it, and no other comes."""
        return self.is_ended and not self.failure and not self._prefix_bytes and self.waiting_count == 1

    @property
    def has_room(self):
        """Whether a writer may go on."""
        return self.is_closed or self._pending_bytes < WRITE_AHEAD_BYTES

    @property
    def is_truncated(self):
        """The peer ended in the middle of a message."""
        return self._prefix_bytes > 0

    @property
    def is_half_open(self):
        """The peer may still send."""
        return not self.is_ended and not self.is_closed

    @property
    def waiting_count(self):
        """Whole messages that nobody has taken."""
        return 0 if self.messages is None else len(self.messages)

    def pass_to(self, taker, context):
        """Hand messages over as they come."""
        self._taker = taker
        self._context = context

    cpdef bint hand_over(self) except -1:
        """Hand over what is there, until a message has to be waited for; whether anybody else is to hear of news."""
        cdef object message
        if self._taker is None:
            return True
        if self.messages and self.pending is None and self.fault is None:
            PyContext_Enter(self._context)
            try:
                while self.pending is None and (message := self.take()) is not None:
                    self.pending = self._taker(message)
            except BaseException as fault:
                self.fault = fault
            finally:
                PyContext_Exit(self._context)
        return self.pending is not None or self.fault is not None or self.is_closed or self.is_ended or bool(self.failure)

    cpdef object take(self):
        """The next message; None where no whole one is there."""
        cdef bytes message
        cdef object found
        if not self.messages:
            return None
        found = self.messages.popleft()
        message = found if PyBytes_CheckExact(found) else found[0]
        if not self.messages:
            self.messages = None
        self._queued_bytes -= PyBytes_GET_SIZE(message) + 5
        if self._roomed_bytes and <size_t>PyBytes_GET_SIZE(message) > LARGE_BYTES:
            self._leave_room(PyBytes_GET_SIZE(message))
        if self._held_bytes and self._queued_bytes < READ_AHEAD_BYTES:
            self._give_back()
        return message if found is message else self._unpack(message)

    cdef object _unpack(self, bytes packed):
        """The message; None where it can't be had, and `failure` says why."""
        try:
            return unpack(self._encoding, packed, self.wire.max_message_bytes)
        except PackTooLargeError:
            self.failure, self.failed_bytes = "message_too_large", self.wire.max_message_bytes + 1
        except PackError:
            self.failure = "damaged"
        self.messages = None
        self._queued_bytes = 0
        self._give_back()
        return None

    cdef void _give_back(self):
        if not self.is_closed and self.wire is not None and self.wire.session != NULL:
            nghttp2_session_consume_stream(self.wire.session, self.id, self._held_bytes)
            self.wire.want_flush()
        self._held_bytes = 0

    cdef bint keep_apart(self, const uint8_t *name, size_t name_length, const uint8_t *value,
                         size_t value_length) except -1:
        """Whether a header is none of the head; see above."""
        cdef bytes text
        if name_length == 12 and memcmp(name, b"grpc-timeout", 12) == 0:
            self.timeout = PyBytes_FromStringAndSize(<const char *>value, value_length)
            return True
        if name_length == 17 and memcmp(name, b"x-ssop-request-id", 17) == 0:
            text = PyBytes_FromStringAndSize(<const char *>value, value_length)
            self.request_id = text if self.request_id is None else self.request_id + b", " + text
            return True
        return False

    cdef int _submit_head(self, list headers, bint has_more) except -1:
        cdef nghttp2_data_provider provider
        cdef nghttp2_nv *array = copy_headers(headers, self.id)
        self._has_responded = True
        provider.source.ptr = <void *>self
        provider.read_callback = read_source
        try:
            nghttp2_submit_response(self.wire.session, self.id, array, len(headers), &provider if has_more else NULL)
        finally:
            free(array)
        return 0

    cdef int put(self, bytes message, bint is_packed) except -1:
        """Queue a message."""
        if self._queue is None:
            self._queue = deque()
        self._queue.append((message,) if is_packed else message)
        self._pending_bytes += PyBytes_GET_SIZE(message) + 5
        return 0

    cpdef respond(self, list headers):
        """Send headers, before the first message."""
        if not self._has_responded and self._is_open():
            self._submit_head(headers, True)
            self.wire.want_flush()

    cpdef refuse(self, list headers):
        """Answer with headers alone."""
        if not self._has_responded and self._is_open():
            self.is_finished = True
            self._submit_head(headers, False)
            self.wire.want_flush()

    cpdef answer(self, list headers, bytes message, bint is_packed, list trailers):
        """All of an answer. Nothing of the stream is told any more."""
        self.leave()
        if self.is_finished or not self._is_open():
            return
        if not self._has_responded:
            self._submit_head(headers, True)
        self.put(message, is_packed)
        self._own_trailers = trailers
        self.is_finished = True
        self._undefer()
        self.wire.flush_whole()

    @property
    def has_responded(self):
        """Headers are sent, or on their way."""
        return self._has_responded

    cpdef write(self, bytes message, bint is_packed=False):
        """Put a message on its way."""
        if not self.is_closed and not self.is_finished:
            self.put(message, is_packed)
            self._resume()

    cpdef finish(self, list trailers=None):
        """Send no more after what is on its way, but for a server's trailers."""
        if self.is_closed or self.is_finished:
            return
        self._own_trailers = trailers
        self.is_finished = True
        self._resume()

    cpdef leave(self):
        """Tell the listener nothing any more."""
        self.is_left = True
        self.listener = self._taker = self._context = self.fault = None

    cpdef reset(self, uint32_t error_code=NGHTTP2_CANCEL):
        """Break the call off."""
        # A second reset of a request that is not sent yet would go out alone, and end the connection (RFC 9113, 5.1).
        if self._is_reset or not self._is_open():
            return
        self._is_reset = True
        self._queue = None
        self._pending_bytes = 0
        nghttp2_submit_rst_stream(self.wire.session, NGHTTP2_FLAG_NONE, self.id, error_code)
        self.wire.want_flush()

    cdef bint _is_open(self):
        return not self.is_closed and self.wire is not None and self.wire.session != NULL

    cdef void _undefer(self):
        """Headers went ahead alone: libnghttp2 asks for the rest once it is told that it is there."""
        if self._is_deferred and self._is_open():
            self._is_deferred = False
            nghttp2_session_resume_data(self.wire.session, self.id)

    cdef void _resume(self):
        self._undefer()
        if self.wire is not None:
            self.wire.want_flush()

    cdef int feed(self, const uint8_t *data, size_t length) except -1:
        """Take apart what came. Bytes of messages that nobody takes are given back later."""
        cdef size_t part, size
        cdef const uint8_t *end = data + length
        cdef bytes message
        self._held_bytes += length
        while data < end and not self.failure:
            if self._message is None:
                part = min(<size_t>(5 - self._prefix_bytes), <size_t>(end - data))
                memcpy(self._prefix + self._prefix_bytes, data, part)
                self._prefix_bytes += <int>part
                data += part
                if self._prefix_bytes < 5:
                    break
                size = (<size_t>self._prefix[1] << 24 | <size_t>self._prefix[2] << 16
                        | <size_t>self._prefix[3] << 8 | self._prefix[4])
                if size > self.wire.max_message_bytes:
                    self.failure, self.failed_bytes = "message_too_large", size
                    break
                if self._prefix[0]:
                    if self._prefix[0] == 1 and self._encoding is None:
                        self._encoding = b"" if self.head is None else encoding_of(self.head.pairs)
                    if self._prefix[0] != 1 or not self._encoding:
                        self.failure = "compressed" if self._prefix[0] == 1 else "flag_unknown"
                        break
                self._is_packed = self._prefix[0] != 0
                self._message = PyBytes_FromStringAndSize(NULL, min(size, LARGE_BYTES))
                self._size = size
                self._filled = 0
            size = PyBytes_GET_SIZE(self._message)
            if self._filled == size and size < self._size:
                size = min(2 * size, self._size)
                message = PyBytes_FromStringAndSize(NULL, size)
                memcpy(PyBytes_AS_STRING(message), PyBytes_AS_STRING(self._message), self._filled)
                self._message = message
            part = min(size - self._filled, <size_t>(end - data))
            if self._size > LARGE_BYTES and not self._take_room(part):
                self.failure = "no_room"
                self._message = None
                self._leave_room(self._filled)
                break
            memcpy(PyBytes_AS_STRING(self._message) + self._filled, data, part)
            self._filled += part
            data += part
            size = self._size
            if self._filled == size:
                if self.messages is None:
                    self.messages = deque()
                self.messages.append((self._message,) if self._is_packed else self._message)
                self._queued_bytes += size + 5
                self._message = None
                self._prefix_bytes = 0
        if self.failure or self._queued_bytes < READ_AHEAD_BYTES:
            self._give_back()
        return 0

    cdef ssize_t fill(self, nghttp2_session *session, uint8_t *buffer, size_t length, uint32_t *flags) except? -1:
        """Copy messages with their prefixes into a DATA frame."""
        cdef size_t used = 0, size, part
        cdef bytes message
        cdef object found
        cdef nghttp2_nv *array
        cdef bint was_full = self._pending_bytes >= WRITE_AHEAD_BYTES
        while self._queue and used < length:
            found = self._queue[0]
            message = found if PyBytes_CheckExact(found) else found[0]
            size = PyBytes_GET_SIZE(message)
            # A window of less than five bytes splits a prefix; an empty frame would be asked for again without end.
            while self._offset < 5 and used < length:
                buffer[used] = (found is not message) if self._offset == 0 else (size >> (8 * (4 - self._offset))) & 0xFF
                used += 1
                self._offset += 1
            if self._offset < 5:
                break
            part = min(size - (self._offset - 5), length - used)
            memcpy(buffer + used, PyBytes_AS_STRING(message) + self._offset - 5, part)
            used += part
            self._offset += part
            if self._offset - 5 < size:
                break
            self._queue.popleft()
            self._offset = 0
            self._pending_bytes -= size + 5
        if was_full and self._pending_bytes < WRITE_AHEAD_BYTES:
            self.wire.note(self)
        if self._queue:
            return used
        self._queue = None
        if self.is_finished:
            flags[0] = NGHTTP2_DATA_FLAG_EOF
            if self._own_trailers is not None:
                flags[0] |= NGHTTP2_DATA_FLAG_NO_END_STREAM
                array = copy_headers(self._own_trailers, self.id)
                try:
                    nghttp2_submit_trailer(session, self.id, array, len(self._own_trailers))
                finally:
                    free(array)
            return used
        if not used:
            self._is_deferred = True
            return NGHTTP2_ERR_DEFERRED
        return used

    cdef bint _take_room(self, size_t length):
        """Hold bytes of a large message; False where the server holds too many."""
        if self.wire.room is not None:
            if self.wire.room.held_bytes + length > self.wire.room.most_bytes:
                return False
            self.wire.room.held_bytes += length
            self._roomed_bytes += length
        return True

    cdef void _leave_room(self, size_t length):
        length = min(length, self._roomed_bytes)
        self._roomed_bytes -= length
        if self.wire.room is not None:
            self.wire.room.held_bytes -= length

    cdef int look(self, int most_ticks) except -1:
        """Once a second: break off what is finished where nothing of it could be sent for so long."""
        cdef size_t left = self._pending_bytes - self._offset
        if not self.is_finished or left != self._stuck_bytes:
            self._stuck_bytes = left
            self._stuck_ticks = 0
            return 0
        self._stuck_ticks += 1
        if self._stuck_ticks >= most_ticks:
            self.reset()
        return 0

    cdef void end(self, uint32_t error_code):
        """Nothing moves any more."""
        self._leave_room(self._roomed_bytes)
        self.is_closed = True
        self.error_code = error_code
        self._queue = None
        self._pending_bytes = 0


cdef ssize_t read_source(nghttp2_session *session, int32_t stream_id, uint8_t *buffer, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user_data) noexcept:
    try:
        return (<Stream>source.ptr).fill(session, buffer, length, flags)
    except BaseException:
        _log.exception("a message could not be written")
        return NGHTTP2_ERR_CALLBACK_FAILURE

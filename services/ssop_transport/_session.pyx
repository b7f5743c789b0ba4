# cython: language_level=3, boundscheck=False, wraparound=False
"""What is heard on a connection of HTTP/2: libnghttp2's session, its streams, and what a peer may not do on it."""

import logging

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp

from ssop_transport._block cimport Block, Blocks
from ssop_transport._stream cimport Stream
from ssop_transport._wire cimport Wire
from ssop_transport.nghttp2 cimport *

_log = logging.getLogger(__name__)

# Frames that cost a peer nothing and us something, in one second: more, and it is told to calm down (CVE-2023-44487 and
# its kind). A burst may be ten seconds' worth.
cdef double CHEAP_FRAMES_PER_S = 1_000
cdef double CHEAP_FRAMES_BURST = 10_000
# A block of headers this many times larger than allowed is no mistake: its connection ends, not the call alone.
cdef size_t BLOCK_TIMES = 8

# The ping that follows the notice of a drain: what comes after its answer was sent by a peer that knows.
cdef const char *DRAIN_MARK = b"draining"
cdef nghttp2_session_callbacks *_callbacks = NULL
cdef nghttp2_option *_option = NULL


cdef class Session(Wire):
    """Base of Connection."""

    def __cinit__(self):
        self._streams = {}
        self._news = []
        self._blocks = Blocks()

    def __dealloc__(self):
        if self.session != NULL:
            nghttp2_session_del(self.session)

    @property
    def stream_count(self):
        """Calls that run."""
        return len(self._streams)

    cdef int begin(self) except -1:
        """Make libnghttp2's session, of the side that this is."""
        cdef int failed
        if self._is_server:
            failed = nghttp2_session_server_new2(&self.session, _callbacks, <void *>self, _option)
        else:
            failed = nghttp2_session_client_new2(&self.session, _callbacks, <void *>self, _option)
        if failed:
            raise MemoryError
        return 0

    cdef void note(self, object noted):
        cdef Stream stream = noted
        if not stream.has_news and not stream.is_left:
            stream.has_news = True
            self._news.append(stream)

    cdef int count_cheap(self) except -1:
        """Count a frame that costs a client nothing, and end the connection of one that sends too many."""
        cdef double now_s
        if not self._is_server:
            return 0
        now_s = self._loop.time()
        if self._cheap_full_s < now_s:
            self._cheap_full_s = now_s
        self._cheap_full_s += 1 / CHEAP_FRAMES_PER_S
        if self._cheap_full_s - now_s > CHEAP_FRAMES_BURST / CHEAP_FRAMES_PER_S:
            self.is_draining = True
            nghttp2_session_terminate_session(self.session, NGHTTP2_ENHANCE_YOUR_CALM)
        return 0


cdef Stream find(nghttp2_session *session, int32_t stream_id):
    cdef void *found = nghttp2_session_get_stream_user_data(session, stream_id)
    return <Stream>found if found != NULL else None


cdef int _on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Session heard = <Session>user_data
    cdef Stream stream
    try:
        heard._blocks.begin()
        heard._block_bytes = 0
        if not heard._is_server or frame.hd.stream_id in heard._streams:
            return 0
        stream = Stream()
        stream.wire = heard
        stream.id = frame.hd.stream_id
        heard._streams[stream.id] = stream
        heard.begun_count += 1
        nghttp2_session_set_stream_user_data(session, stream.id, <void *>stream)
    except BaseException:
        _log.exception("a stream could not be opened")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
                    const uint8_t *value, size_t value_length, uint8_t flags, void *user_data) noexcept:
    cdef Session heard = <Session>user_data
    cdef Stream stream
    try:
        stream = find(session, frame.hd.stream_id)
        if stream is None:
            return 0
        # The size of an entry by RFC 9113, 6.5.2.
        heard._block_bytes += name_length + value_length + 32
        if stream.failure:
            if heard._block_bytes > BLOCK_TIMES * heard._max_header_bytes:
                heard.is_draining = True
                nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM)
            return 0
        if heard._block_bytes > heard._max_header_bytes:
            stream.failure, stream.failed_bytes = "metadata_too_large", heard._block_bytes
            return 0
        if not heard._is_server or stream.head is not None or not stream.keep_apart(
                name, name_length, value, value_length):
            heard._blocks.add(name, name_length, value, value_length)
    except BaseException:
        _log.exception("a header could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t length,
                  void *user_data) noexcept:
    cdef Session heard = <Session>user_data
    cdef Stream stream
    try:
        nghttp2_session_consume_connection(session, length)
        stream = find(session, stream_id)
        if stream is None:
            nghttp2_session_consume_stream(session, stream_id, length)
            return 0
        stream.feed(data, length)
        if stream.messages or stream.failure:
            heard.note(stream)
    except BaseException:
        _log.exception("a message could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Session heard = <Session>user_data
    try:
        return _take_frame(heard, session, frame)
    except BaseException:
        _log.exception("a frame could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int _take_frame(Session heard, nghttp2_session *session, const nghttp2_frame *frame) except? -2:
    cdef Stream stream
    cdef Block block
    cdef bint is_end = frame.hd.flags & NGHTTP2_FLAG_END_STREAM != 0
    cdef bint is_cheap = False
    if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
        is_cheap = frame.hd.type == NGHTTP2_DATA and not frame.hd.length and not is_end
        stream = find(session, frame.hd.stream_id)
        if stream is not None:
            if frame.hd.type == NGHTTP2_HEADERS:
                block = heard._blocks.end()
                if stream.head is None and not block.is_informational():
                    stream.head = block
                    if is_end and not heard._is_server:
                        stream.tail = block
                elif stream.head is not None:
                    stream.tail = block
            if is_end:
                stream.is_ended = True
            if frame.hd.type == NGHTTP2_HEADERS or is_end:
                heard.note(stream)
    elif frame.hd.type == NGHTTP2_GOAWAY:
        heard.is_draining = True
    elif frame.hd.type == NGHTTP2_SETTINGS:
        heard.is_greeted = True
        is_cheap = not frame.hd.flags & NGHTTP2_FLAG_ACK
    elif frame.hd.type == NGHTTP2_RST_STREAM or frame.hd.type == NGHTTP2_PRIORITY:
        is_cheap = True
    elif frame.hd.type == NGHTTP2_PING:
        is_cheap = not frame.hd.flags & NGHTTP2_FLAG_ACK
        if not is_cheap and memcmp(frame.ping.opaque_data, DRAIN_MARK, 8) == 0:
            heard.is_drain_heard = True
    if is_cheap:
        heard.count_cheap()
    return 0


cdef int _on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Stream stream
    try:
        if frame.hd.type == NGHTTP2_RST_STREAM and not _is_own(frame.rst_stream.error_code):
            # What the peer did made this side reset a stream, which costs as much as its own resets (CVE-2025-8671).
            (<Session>user_data).count_cheap()
        if not (<Session>user_data)._is_server or not frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
            return 0
        if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
            stream = find(session, frame.hd.stream_id)
            if stream is not None and not stream.is_ended:
                # The answer is whole; what the client would still send is not wanted (RFC 9113, 8.1).
                nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_NO_ERROR)
    except BaseException:
        _log.exception("a frame could not be followed")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef bint _is_own(uint32_t error_code):
    """Whether a stream is reset with this code by the shells, and not by libnghttp2."""
    return error_code in (NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR)


cdef int _on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int cause, void *user_data) noexcept:
    cdef Stream stream
    try:
        stream = find(session, frame.hd.stream_id)
        if stream is not None and (<Session>user_data)._is_server and frame.hd.type == NGHTTP2_HEADERS:
            # Larger than what libnghttp2 sends, 64 KiB; without an end its client would wait for it.
            stream.reset(NGHTTP2_INTERNAL_ERROR)
    except BaseException:
        _log.exception("a frame could not be given up")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user_data) noexcept:
    cdef Session heard = <Session>user_data
    cdef Stream stream
    try:
        stream = heard._streams.pop(stream_id, None)
        if stream is not None:
            stream.end(error_code)
            if not stream.is_left:
                heard.note(stream)
                if not heard._is_reading:
                    heard.want_flush()
    except BaseException:
        _log.exception("a stream could not be closed")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


def _set_up():
    global _callbacks, _option
    if nghttp2_option_new(&_option) or nghttp2_session_callbacks_new(&_callbacks):
        raise MemoryError
    nghttp2_option_set_no_auto_window_update(_option, 1)
    nghttp2_option_set_no_closed_streams(_option, 1)
    nghttp2_session_callbacks_set_on_begin_headers_callback(_callbacks, _on_begin_headers)
    nghttp2_session_callbacks_set_on_header_callback(_callbacks, _on_header)
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(_callbacks, _on_data)
    nghttp2_session_callbacks_set_on_frame_recv_callback(_callbacks, _on_frame)
    nghttp2_session_callbacks_set_on_frame_send_callback(_callbacks, _on_sent)
    nghttp2_session_callbacks_set_on_frame_not_send_callback(_callbacks, _on_not_sent)
    nghttp2_session_callbacks_set_on_stream_close_callback(_callbacks, _on_close)


_set_up()

# cython: language_level=3, boundscheck=False, wraparound=False
"""HTTP/2 connections that carry gRPC, as asyncio protocols over libnghttp2 (RFC 9113).

A `Connection` belongs to one event loop. What happened on a stream is told to its listener once for each read of the
socket, after the whole read was taken apart; what is written is put on the wire once for each turn of the loop.
"""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from ssop_transport._stream cimport Stream, copy_headers, read_source
from ssop_transport._wire cimport Wire
from ssop_transport.nghttp2 cimport *

_log = logging.getLogger(__name__)

WINDOW_BYTES = 65_535
"""What a peer may send on a stream before it is read; the least that HTTP/2 begins with."""
cdef int32_t CONNECTION_WINDOW_BYTES = 1 << 24
cdef size_t CHUNK_BYTES = 65_536
# Frames that cost a peer nothing and us something, in one second: more, and it is told to calm down (CVE-2023-44487 and
# its kind). A burst may be ten seconds' worth.
cdef double CHEAP_FRAMES_PER_S = 1_000
cdef double CHEAP_FRAMES_BURST = 10_000

# Frames that wait for a peer that does not read. It gets no answers to more, and is not read either.
cdef size_t WAITING_FRAMES = 4_096
# A block of headers this many times larger than allowed is no mistake: its connection ends, not the call alone.
cdef size_t BLOCK_TIMES = 8

# No codes of RFC 9113: the connection is gone, and it went before anything of the call was sent.
cdef uint32_t _LOST = 0xFFFFFFFF
cdef uint32_t _UNSENT = 0xFFFFFFFE
# The ping that follows the notice of a drain: what comes after its answer was sent by a peer that knows.
cdef const char *_DRAIN_MARK = b"draining"
cdef nghttp2_session_callbacks *_callbacks = NULL
cdef nghttp2_option *_option = NULL



cdef class Connection(Wire):
    """An asyncio protocol. `on_stream` takes each stream that a client opens, with its headers whole; None for clients.

    `on_lost` is called once, when the connection is gone and every stream has been told.
    """

    cdef object _loop, _on_stream, _on_lost, _flush_callback
    cdef readonly object transport
    cdef dict _streams
    cdef list _news
    cdef readonly bint is_draining
    """No call may begin: one side said so, or the connection is gone."""
    cdef readonly bint is_lost
    cdef readonly bint is_drain_heard
    """The peer answered to `announce_drain`, or is gone."""
    cdef readonly double heard_s
    """When something came last, on the loop's clock."""
    cdef readonly size_t begun_count
    """Calls that clients began on it."""
    cdef bint _is_server, _is_reading, _is_flush_due, _is_paused, _is_deaf
    cdef size_t _max_header_bytes
    cdef uint32_t _max_streams
    cdef double _cheap_full_s

    def __init__(self, loop, *, on_stream=None, on_lost=None, size_t max_message_bytes=4_194_304,
                 size_t max_header_bytes=8_192, uint32_t max_streams=1_024):
        self._loop = loop
        self._on_stream = on_stream
        self._on_lost = on_lost
        self._is_server = on_stream is not None
        self.max_message_bytes = max_message_bytes
        self._max_header_bytes = max_header_bytes
        self._max_streams = max_streams
        self._streams = {}
        self._news = []
        self._flush_callback = self._flush

    def __dealloc__(self):
        if self.session != NULL:
            nghttp2_session_del(self.session)

    @property
    def stream_count(self):
        """Calls that run."""
        return len(self._streams)

    # --- asyncio.Protocol

    def connection_made(self, transport):
        """See asyncio.Protocol."""
        cdef nghttp2_settings_entry settings[4]
        self.transport = transport
        self.heard_s = self._loop.time()
        if self._is_server:
            nghttp2_session_server_new2(&self.session, _callbacks, <void *>self, _option)
        else:
            nghttp2_session_client_new2(&self.session, _callbacks, <void *>self, _option)
        settings[0].settings_id = NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
        settings[0].value = WINDOW_BYTES
        settings[1].settings_id = NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
        settings[1].value = <uint32_t>self._max_header_bytes
        settings[2].settings_id = NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        settings[2].value = self._max_streams if self._is_server else 0
        settings[3].settings_id = NGHTTP2_SETTINGS_ENABLE_PUSH
        settings[3].value = 0
        nghttp2_submit_settings(self.session, NGHTTP2_FLAG_NONE, settings, 3 if self._is_server else 4)
        nghttp2_session_set_local_window_size(self.session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES)
        self._flush()

    def connection_lost(self, error):
        """See asyncio.Protocol."""
        cdef Stream stream
        self.is_lost = self.is_draining = self.is_drain_heard = True
        self.transport = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            # libnghttp2 knows a client's stream from when its headers are on the wire.
            is_sent = self._is_server or self.session == NULL or _find(self.session, stream.id) is not None
            stream.end(_LOST if is_sent else _UNSENT)
            self.note(stream)
        if self.session != NULL:
            nghttp2_session_del(self.session)
            self.session = NULL
        self._tell()
        if self._on_lost is not None:
            self._on_lost(self)

    def data_received(self, bytes data):
        """See asyncio.Protocol."""
        cdef ssize_t taken
        if self.session == NULL:
            return
        self.heard_s = self._loop.time()
        self._is_reading = True
        taken = nghttp2_session_mem_recv(
            self.session, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self._is_reading = False
        self._tell()
        self._flush()
        if taken < 0 and self.transport is not None:
            # What libnghttp2 has to say of it, a GOAWAY, is written.
            self.is_draining = True
            self.transport.close()
        elif (self._is_paused and self._is_server and not self._is_deaf and self.transport is not None
                and nghttp2_session_get_outbound_queue_size(self.session) > WAITING_FRAMES):
            self._is_deaf = True
            self.transport.pause_reading()

    def eof_received(self):
        """See asyncio.Protocol."""
        return False

    def pause_writing(self):
        """See asyncio.Protocol."""
        self._is_paused = True

    def resume_writing(self):
        """See asyncio.Protocol."""
        self._is_paused = False
        self.want_flush()
        if self._is_deaf and self.transport is not None:
            self._is_deaf = False
            self.transport.resume_reading()

    # --- what the shells call

    def open(self, list headers, listener):
        """A client's new call. Raises ConnectionError where none may begin."""
        cdef nghttp2_data_provider provider
        cdef nghttp2_nv *array
        cdef Stream stream = Stream()
        cdef int32_t stream_id
        if self.session == NULL or self.is_draining:
            raise ConnectionError("the connection takes no more calls")
        stream.wire = self
        stream.listener = listener
        provider.source.ptr = <void *>stream
        provider.read_callback = read_source
        array = copy_headers(headers)
        try:
            stream_id = nghttp2_submit_request(self.session, NULL, array, len(headers), &provider, <void *>stream)
        finally:
            free(array)
        if stream_id < 0:
            # Their numbers are used up, after a thousand million calls.
            self.is_draining = True
            raise ConnectionError("the connection takes no more calls")
        stream.id = stream_id
        self._streams[stream_id] = stream
        self.want_flush()
        return stream

    def ping(self):
        """Make the peer say that it lives."""
        if self.session != NULL:
            nghttp2_submit_ping(self.session, NGHTTP2_FLAG_NONE, NULL)
            self.want_flush()

    def announce_drain(self):
        """A server's first word of its end: clients begin no more calls, those on their way are still taken.

        `is_drain_heard` says when nothing can be on its way any more.
        """
        if self.session != NULL:
            nghttp2_submit_shutdown_notice(self.session)
            # A ping that is submitted with the notice would go out before it.
            self._flush()
        if self.session != NULL:
            nghttp2_submit_ping(self.session, NGHTTP2_FLAG_NONE, <const uint8_t *>_DRAIN_MARK)
            self.want_flush()

    def drain(self):
        """Take no more calls; close when the last one has ended."""
        if self.session == NULL:
            return
        self.is_draining = True
        nghttp2_submit_goaway(self.session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(self.session),
                              NGHTTP2_NO_ERROR, NULL, 0)
        self._flush()

    def abort(self):
        """Drop everything."""
        self.is_draining = True
        if self.transport is not None:
            self.transport.abort()

    def close(self):
        """Say goodbye and close."""
        self.is_draining = True
        if self.session != NULL:
            nghttp2_session_terminate_session(self.session, NGHTTP2_NO_ERROR)
            self._flush()
        if self.transport is not None:
            self.transport.close()

    # --- inside

    cdef void note(self, object noted):
        cdef Stream stream = noted
        if not stream.has_news:
            stream.has_news = True
            self._news.append(stream)

    cdef void _tell(self):
        cdef Stream stream
        cdef list news
        while self._news:
            news, self._news = self._news, []
            for stream in news:
                stream.has_news = False
                try:
                    if stream.listener is None and self._is_server:
                        if stream.headers is None and not stream.failure:
                            continue
                        self._on_stream(stream)
                    if stream.listener is not None:
                        stream.listener()
                except Exception:
                    # Listeners handle what calls may do wrong; this is a fault of ours, and ends its call alone.
                    _log.exception("a listener failed")
                    stream.reset(NGHTTP2_INTERNAL_ERROR)

    cdef void want_flush(self):
        if self._is_reading or self._is_flush_due:
            return
        self._is_flush_due = True
        self._loop.call_soon(self._flush_callback)

    def _flush(self):
        """Put on the wire what there is, until the transport is full."""
        cdef const uint8_t *part
        cdef ssize_t length
        cdef size_t used = 0
        cdef char *chunk
        self._is_flush_due = False
        if self.session == NULL or self.transport is None:
            return
        chunk = <char *>PyMem_Malloc(CHUNK_BYTES)
        if chunk == NULL:
            raise MemoryError
        try:
            self._send_all(chunk)
        finally:
            PyMem_Free(chunk)
        if self._news:
            # Writers that have room again.
            self._tell()
        if self.session != NULL and self.transport is not None and not (
                nghttp2_session_want_read(self.session) or nghttp2_session_want_write(self.session)):
            self.transport.close()

    cdef int _send_all(self, char *chunk) except -1:
        """Hand over what is there, in pieces of at most CHUNK_BYTES, which `chunk` holds."""
        cdef const uint8_t *part
        cdef ssize_t length
        cdef size_t used = 0
        while not self._is_paused:
            length = nghttp2_session_mem_send(self.session, &part)
            if length < 0:
                self.abort()
                return 0
            if used and (length == 0 or used + length > CHUNK_BYTES):
                self.transport.write(PyBytes_FromStringAndSize(chunk, used))
                used = 0
                if self.session == NULL or self.transport is None:
                    return 0
            if length == 0:
                break
            if <size_t>length > CHUNK_BYTES:
                self.transport.write(PyBytes_FromStringAndSize(<const char *>part, length))
            else:
                memcpy(chunk + used, part, length)
                used += length
        if used:
            self.transport.write(PyBytes_FromStringAndSize(chunk, used))
        return 0

    cdef bint _is_too_much(self):
        """Count a frame that costs the peer nothing; whether it sends too many."""
        cdef double now_s = self._loop.time()
        if self._cheap_full_s < now_s:
            self._cheap_full_s = now_s
        self._cheap_full_s += 1 / CHEAP_FRAMES_PER_S
        return self._cheap_full_s - now_s > CHEAP_FRAMES_BURST / CHEAP_FRAMES_PER_S


cdef Stream _find(nghttp2_session *session, int32_t stream_id):
    cdef void *found = nghttp2_session_get_stream_user_data(session, stream_id)
    return <Stream>found if found != NULL else None


cdef int _on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Connection connection = <Connection>user_data
    cdef Stream stream
    try:
        if not connection._is_server or frame.hd.stream_id in connection._streams:
            return 0
        stream = Stream()
        stream.wire = connection
        stream.id = frame.hd.stream_id
        connection._streams[stream.id] = stream
        connection.begun_count += 1
        nghttp2_session_set_stream_user_data(session, stream.id, <void *>stream)
    except BaseException:
        _log.exception("a stream could not be opened")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
                    const uint8_t *value, size_t value_length, uint8_t flags, void *user_data) noexcept:
    cdef Stream stream
    try:
        stream = _find(session, frame.hd.stream_id)
        if stream is None:
            return 0
        # The size of an entry by RFC 9113, 6.5.2.
        stream.block_bytes += name_length + value_length + 32
        if stream.failure:
            if stream.block_bytes > BLOCK_TIMES * (<Connection>user_data)._max_header_bytes:
                (<Connection>user_data).is_draining = True
                nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM)
            return 0
        if stream.block_bytes > (<Connection>user_data)._max_header_bytes:
            stream.failure, stream.failed_bytes = "metadata_too_large", stream.block_bytes
            return 0
        stream.block.append((PyBytes_FromStringAndSize(<const char *>name, name_length),
                              PyBytes_FromStringAndSize(<const char *>value, value_length)))
    except BaseException:
        _log.exception("a header could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t length,
                  void *user_data) noexcept:
    cdef Connection connection = <Connection>user_data
    cdef Stream stream
    try:
        nghttp2_session_consume_connection(session, length)
        stream = _find(session, stream_id)
        if stream is None:
            nghttp2_session_consume_stream(session, stream_id, length)
            return 0
        stream.feed(data, length)
        if stream.messages or stream.failure:
            connection.note(stream)
    except BaseException:
        _log.exception("a message could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int _on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Connection connection = <Connection>user_data
    try:
        return _take_frame(connection, session, frame)
    except BaseException:
        _log.exception("a frame could not be read")
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int _take_frame(Connection connection, nghttp2_session *session, const nghttp2_frame *frame) except? -2:
    cdef Stream stream
    cdef bint is_end = frame.hd.flags & NGHTTP2_FLAG_END_STREAM != 0
    cdef bint is_cheap = False
    if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
        is_cheap = frame.hd.type == NGHTTP2_DATA and not frame.hd.length and not is_end
        stream = _find(session, frame.hd.stream_id)
        if stream is not None:
            if frame.hd.type == NGHTTP2_HEADERS:
                block, stream.block = stream.block, []
                stream.block_bytes = 0
                if stream.headers is None and not _is_informational(block):
                    stream.headers = block
                    if is_end and not connection._is_server:
                        stream.trailers = block
                elif stream.headers is not None:
                    stream.trailers = block
            if is_end:
                stream.is_ended = True
            if frame.hd.type == NGHTTP2_HEADERS or is_end:
                connection.note(stream)
    elif frame.hd.type == NGHTTP2_GOAWAY:
        connection.is_draining = True
    elif frame.hd.type == NGHTTP2_RST_STREAM or frame.hd.type == NGHTTP2_SETTINGS:
        is_cheap = not frame.hd.flags & NGHTTP2_FLAG_ACK
    elif frame.hd.type == NGHTTP2_PING:
        is_cheap = not frame.hd.flags & NGHTTP2_FLAG_ACK
        if not is_cheap and memcmp(frame.ping.opaque_data, _DRAIN_MARK, 8) == 0:
            connection.is_drain_heard = True
    if is_cheap and connection._is_server and connection._is_too_much():
        connection.is_draining = True
        nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM)
    return 0


cdef int _on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Stream stream
    try:
        if not (<Connection>user_data)._is_server or not frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
            return 0
        if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
            stream = _find(session, frame.hd.stream_id)
            if stream is not None and not stream.is_ended:
                # The answer is whole; what the client would still send is not wanted (RFC 9113, 8.1).
                nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream.id, NGHTTP2_NO_ERROR)
    except BaseException:
        _log.exception("a frame could not be followed")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef bint _is_informational(list block):
    """Whether a block is a 1xx response, which another one follows."""
    return bool(block) and block[0][0] == b":status" and block[0][1].startswith(b"1")


cdef int _on_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user_data) noexcept:
    cdef Connection connection = <Connection>user_data
    cdef Stream stream
    try:
        stream = connection._streams.pop(stream_id, None)
        if stream is not None:
            stream.end(error_code)
            connection.note(stream)
            if not connection._is_reading:
                connection.want_flush()
    except BaseException:
        _log.exception("a stream could not be closed")
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


def _set_up():
    global _callbacks, _option
    nghttp2_option_new(&_option)
    nghttp2_option_set_no_auto_window_update(_option, 1)
    nghttp2_option_set_no_closed_streams(_option, 1)
    nghttp2_session_callbacks_new(&_callbacks)
    nghttp2_session_callbacks_set_on_begin_headers_callback(_callbacks, _on_begin_headers)
    nghttp2_session_callbacks_set_on_header_callback(_callbacks, _on_header)
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(_callbacks, _on_data)
    nghttp2_session_callbacks_set_on_frame_recv_callback(_callbacks, _on_frame)
    nghttp2_session_callbacks_set_on_frame_send_callback(_callbacks, _on_sent)
    nghttp2_session_callbacks_set_on_stream_close_callback(_callbacks, _on_close)


_set_up()

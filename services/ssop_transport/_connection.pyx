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
from libc.string cimport memcpy

from ssop_transport._session cimport DRAIN_MARK, Session, find
from ssop_transport._stream cimport Stream, copy_headers, read_source
from ssop_transport._wire cimport Room
from ssop_transport.nghttp2 cimport *

_log = logging.getLogger(__name__)

WINDOW_BYTES = 65_535
"""What a peer may send on a stream before it is read; the least that HTTP/2 begins with."""
cdef int32_t CONNECTION_WINDOW_BYTES = 1 << 24
cdef size_t CHUNK_BYTES = 65_536
# Frames that wait for a peer that does not read. It gets no answers to more, and is not read either.
cdef size_t WAITING_FRAMES = 4_096

# No codes of RFC 9113: the connection is gone, and it went before anything of the call was sent.
cdef uint32_t _LOST = 0xFFFFFFFF
cdef uint32_t _UNSENT = 0xFFFFFFFE
# Looks, once a second: for how long a client may not take what is sent to it, may not begin, and may not hang up.
cdef int STUCK_TICKS = 60
cdef int GREETING_TICKS = 10
cdef int PARTING_TICKS = 60


cdef class Connection(Session):
    """An asyncio protocol. `on_stream` takes the connection and each stream that a client opens, with its head whole;
    None for clients. `peer`: what the shell calls who is there.

    `on_made` is called when it has its transport, after the handshake of TLS; where that fails the connection never is.
    `on_lost` is called once, when the connection is gone and every stream has been told.
    """

    cdef object _on_stream, _on_made, _on_lost, _flush_callback
    cdef readonly object transport
    cdef public object peer
    cdef readonly bint is_lost
    cdef readonly double heard_s
    """When something came last, on the loop's clock."""
    cdef bint _is_flush_due, _is_paused, _is_deaf, _is_sending, _is_hung_up
    cdef uint32_t _max_streams
    cdef int _ticks, _paused_ticks

    def __init__(self, loop, *, on_stream=None, on_made=None, on_lost=None, size_t max_message_bytes=4_194_304,
                 size_t max_header_bytes=8_192, uint32_t max_streams=1_024, Room room=None):
        self._loop = loop
        self._on_stream = on_stream
        self._on_made = on_made
        self._on_lost = on_lost
        self.room = room
        self._is_server = on_stream is not None
        self.max_message_bytes = max_message_bytes
        self._max_header_bytes = max_header_bytes
        self._max_streams = max_streams
        self._flush_callback = self._flush

    # --- asyncio.Protocol

    def connection_made(self, transport):
        """See asyncio.Protocol."""
        cdef nghttp2_settings_entry settings[4]
        self.transport = transport
        self.heard_s = self._loop.time()
        self.begin()
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
        if self._on_made is not None:
            self._on_made(self)
        self._flush()

    def connection_lost(self, error):
        """See asyncio.Protocol."""
        cdef Stream stream
        self.is_lost = self.is_draining = self.is_drain_heard = True
        self.transport = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            # libnghttp2 knows a client's stream from when its headers are on the wire.
            is_sent = self._is_server or self.session == NULL or find(self.session, stream.id) is not None
            stream.end(_LOST if is_sent else _UNSENT)
            self.note(stream)
        if self.session != NULL:
            nghttp2_session_del(self.session)
            self.session = NULL
        self._tell()
        self._on_stream = None
        if self._on_lost is not None:
            self._on_lost(self)

    def data_received(self, bytes data):
        """See asyncio.Protocol."""
        cdef ssize_t taken
        # libnghttp2 takes no more after a fault of its peer, and TLS may still hand over what it had read.
        if self.session == NULL or self._is_hung_up:
            return
        self.heard_s = self._loop.time()
        self._is_reading = True
        taken = nghttp2_session_mem_recv(
            self.session, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self._is_reading = False
        # What listeners put on its way goes with what there is to say of the frames that came.
        self._is_flush_due = True
        self._tell()
        self._flush()
        if taken < 0 and self.transport is not None:
            # What libnghttp2 has to say of it, a GOAWAY, is written.
            self._hang_up()
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

    def open(self, list headers, listener, bytes request=None, bint is_packed=False):
        """A client's new call; with a `request` it is all that the client says. Raises ConnectionError where none may
        begin."""
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
        array = copy_headers(headers, nghttp2_session_get_next_stream_id(self.session))
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
        if request is None:
            self.want_flush()
        else:
            stream.put(request, is_packed)
            stream.is_finished = True
            self.flush_whole()
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
            nghttp2_submit_ping(self.session, NGHTTP2_FLAG_NONE, <const uint8_t *>DRAIN_MARK)
            self.want_flush()

    def drain(self):
        """Take no more calls; close when the last one has ended."""
        if self.session == NULL:
            return
        self.is_draining = True
        nghttp2_submit_goaway(self.session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(self.session),
                              NGHTTP2_NO_ERROR, NULL, 0)
        self._flush()

    def look(self):
        """A server's, once a second: end what a client neither begins, nor takes, nor gives up."""
        cdef Stream stream
        if self.transport is None:
            return
        self._ticks += 1
        self._paused_ticks = self._paused_ticks + 1 if self._is_paused else 0
        if (self._paused_ticks >= STUCK_TICKS or (self._is_hung_up and self._ticks >= PARTING_TICKS)
                or (not self.is_greeted and self._ticks >= GREETING_TICKS)):
            self.abort()
            return
        for stream in self._streams.values():
            stream.look(STUCK_TICKS)

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
            self._hang_up()

    # --- inside

    cdef void _tell(self):
        cdef Stream stream
        cdef list news
        while self._news:
            news, self._news = self._news, []
            for stream in news:
                stream.has_news = False
                try:
                    if self._is_server and not stream.is_seen:
                        if stream.head is None and not stream.failure:
                            continue
                        stream.is_seen = True
                        self._on_stream(self, stream)
                    if stream.hand_over() and stream.listener is not None:
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

    cdef int flush_whole(self) except -1:
        if self._is_flush_due or not self._is_free() or len(self._streams) > 1:
            self.want_flush()
            return 0
        self._send()
        # Listeners are told in a turn of their own: a client that is beginning its call does not know its stream yet.
        if self._news or not self._is_wanted():
            self.want_flush()
        return 0

    cdef bint _is_free(self):
        """Inside of libnghttp2, which is not entered twice, who is there goes on until there is nothing to send."""
        return self.session != NULL and self.transport is not None and not self._is_reading and not self._is_sending

    cdef bint _is_wanted(self):
        return self.session == NULL or self.transport is None or (
            nghttp2_session_want_read(self.session) or nghttp2_session_want_write(self.session))

    def _flush(self):
        """Put on the wire what there is, until the transport is full."""
        self._is_flush_due = False
        if not self._is_free():
            return
        self._send()
        if self._news:
            # Writers that have room again.
            self._tell()
        if not self._is_wanted():
            self._hang_up()

    cdef int _send(self) except -1:
        cdef char *chunk
        chunk = <char *>PyMem_Malloc(CHUNK_BYTES)
        if chunk == NULL:
            raise MemoryError
        self._is_sending = True
        try:
            self._send_all(chunk)
        finally:
            self._is_sending = False
            PyMem_Free(chunk)
        return 0

    cdef int _hang_up(self) except -1:
        """Close once what is written is gone."""
        if not self._is_hung_up:
            self.is_draining = self._is_hung_up = True
            self._ticks = 0
            self.transport.close()
        return 0

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

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The encoder: bytes of a model in, chunks of frames out.

It holds two parts: the reader, which `_machine` drives over the input, and the frame writer. `_encoder_py` is
the same encoder, written slowly and plainly; the two agree byte for byte.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._claim cimport ssop_claim, ssop_yield
from ssop_codec._frame_writer cimport End, FrameWriter
from ssop_codec._machine cimport end_input, read
from ssop_codec._probes cimport ssop_next_stream
from ssop_codec._reader cimport Reader
from ssop_codec._states cimport BROKEN, CLOSED
from ssop_codec._strings cimport flush_plain_text

from ._program import program_of
from .constants import MAX_BUFFER_BYTES, MIN_BUFFER_BYTES
from .errors import CodecError
from .limits import DEFAULT_LIMITS
from .schema import raw_schema
from .wire import end_frame, header_frames

cdef enum:
    READY = 1
    DONE = 2
    INVALID = 4

cdef enum:
    VERDICT_OK = 1
    VERDICT_INVALID = 2
    VERDICT_INCOMPLETE = 3

cdef enum:
    STOPPED_EARLY = 6   # of the incomplete reasons: that nothing is known

cdef str IN_USE = "the encoder is in use by another thread"

# Headers kept with a schema, one for each buffer size; peers choose these.
cdef int MAX_CACHED_HEADERS = 16


cdef class Encoder:
    """Makes the frames of one document from the bytes that a model generates.

    One encoder serves one document and is used by one thread at a time: who comes while another thread is inside gets
    a CodecError. Different encoders, of one schema too, may be used by different threads at once: all that they share
    is written before it is shared, but for the automata of patterns, which are locked where they grow. Feeds of 64 KB and
    more let the interpreter's lock go while they read whole tokens; the bytes of such a feed must not change meanwhile.
    Nothing relies on that lock, so that interpreters without it can use the codec.
    """

    cdef Reader reader
    cdef FrameWriter writer
    cdef bint is_finished
    cdef int final_verdict
    cdef int is_claimed

    def __cinit__(
        self,
        schema,
        *,
        stream_buffer_bytes=0,
        limits=None,
        envelope=False,
        document=0,
        first_seq=1,
        track_spans=False,
        tool_name="",
        tool_call_id="",
        uint64_t stream_id=0,
    ):
        schema = raw_schema() if schema is None else schema
        buffer = stream_buffer_bytes or schema.auto_buffer_bytes
        if buffer < MIN_BUFFER_BYTES:
            raise ValueError(f"stream_buffer_bytes must be at least {MIN_BUFFER_BYTES}, or 0 for auto")
        if buffer > MAX_BUFFER_BYTES:
            raise ValueError(f"stream_buffer_bytes must be at most {MAX_BUFFER_BYTES}")
        if not 0 <= document < 2**32 or not 1 <= first_seq < 2**63:
            raise ValueError("document or first_seq out of range")
        self.writer = FrameWriter(buffer, first_seq, document)
        self.writer.stream_id = stream_id or ssop_next_stream()
        self.reader = Reader(program_of(schema), self.writer, limits or DEFAULT_LIMITS, envelope, track_spans)
        if document == 0 and first_seq > 1:
            # The document goes on after a failure: its header was sent by the encoder before this one.
            return
        if tool_name or tool_call_id:
            frames = header_frames(
                schema, buffer, document=document, first_seq=first_seq, tool_name=tool_name,
                tool_call_id=tool_call_id,
            )
        else:
            key = (buffer, document, first_seq)
            frames = schema.cache.get(key)
            if frames is None:
                frames = header_frames(schema, buffer, document=document, first_seq=first_seq)
                if document == 0 and len(schema.cache) < MAX_CACHED_HEADERS:
                    schema.cache[key] = frames
        for frame in frames:
            self.writer.push(frame)

    # Called for every token: a plain method of one argument is the cheapest call that there is.
    @cython.binding(False)
    @cython.always_allow_keywords(False)
    def feed(self, data):
        """Read the next bytes of model output; returns flags READY, DONE, INVALID."""
        cdef Py_buffer view
        cdef int flags = 0
        if not ssop_claim(&self.is_claimed):
            raise CodecError(IN_USE)
        try:
            if self.is_finished:
                raise CodecError("feed after finish")
            if PyBytes_CheckExact(data):
                read(self.reader, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            else:
                PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
                try:
                    read(self.reader, <const uint8_t*>view.buf, view.len)
                finally:
                    PyBuffer_Release(&view)
            if self.writer.sealed_count > self.writer.taken:
                flags = READY
            if self.reader.state == CLOSED:
                flags |= DONE
            elif self.reader.state == BROKEN:
                flags |= INVALID
        finally:
            ssop_yield(&self.is_claimed)
        return flags

    def finish(
        self,
        *,
        uint32_t finish_reason=0,
        uint32_t incomplete_reason=0,
        uint64_t input_tokens=0,
        uint64_t output_tokens=0,
        uint64_t cached_input_tokens=0,
    ):
        """The model's output has ended: decide the verdict and append the END frame. Idempotent."""
        if self.is_finished:
            return
        self._claim()
        try:
            self._finish(
                finish_reason, incomplete_reason, input_tokens, output_tokens, cached_input_tokens
            )
        finally:
            ssop_yield(&self.is_claimed)

    cdef int _finish(
        self, uint32_t finish_reason, uint32_t incomplete_reason, uint64_t input_tokens, uint64_t output_tokens,
        uint64_t cached_input_tokens,
    ) except -1:
        cdef End end
        end_input(self.reader, incomplete_reason != 0)
        if self.reader.state == BROKEN:
            self.final_verdict = VERDICT_INVALID
        elif self.reader.state == CLOSED:
            self.final_verdict = VERDICT_OK
        else:
            self.final_verdict = VERDICT_INCOMPLETE
        self.is_finished = True
        end.verdict = self.final_verdict
        end.incomplete_reason = incomplete_reason or STOPPED_EARLY if self.final_verdict == VERDICT_INCOMPLETE else 0
        end.finish_reason = finish_reason
        end.usage = [input_tokens, output_tokens, cached_input_tokens]
        if self.final_verdict != VERDICT_INVALID and self.writer.put_end(&end):
            return 0
        self.writer.push(
            end_frame(
                self.writer.seq,
                self.writer.buffer_bytes,
                self.final_verdict,
                document=self.writer.document,
                violation=self.violation,
                incomplete_reason=end.incomplete_reason,
                finish_reason=finish_reason,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_input_tokens=cached_input_tokens,
            )
        )
        return 0

    def take(self):
        """The next sealed chunk, or an empty one."""
        self._claim()
        try:
            return self.writer.take()
        finally:
            ssop_yield(&self.is_claimed)

    def flush(self):
        """Seal what is pending and return the oldest chunk, or an empty one where nothing is pending."""
        self._claim()
        try:
            self._flush_text()
            return self.writer.flush()
        finally:
            ssop_yield(&self.is_claimed)

    def drain(self, flush=False):
        """All sealed chunks, and with `flush` the pending one."""
        self._claim()
        try:
            if flush:
                self._flush_text()
                self.writer.seal()
            return self.writer.drain()
        finally:
            ssop_yield(&self.is_claimed)

    def take_spans(self):
        """`(seq, start_byte, end_byte)` of the values completed since the last call; offsets in the model
        output, the end excluded. Empty unless `track_spans` was set."""
        self._claim()
        try:
            return self.reader.take_spans()
        finally:
            ssop_yield(&self.is_claimed)

    cdef int _claim(self) except -1:
        if not ssop_claim(&self.is_claimed):
            raise CodecError(IN_USE)
        return 0

    cdef int _flush_text(self) except -1:
        """Have what was read of plain text leave; other strings leave when they are whole."""
        if self.reader.is_text and not self.is_finished and self.reader.state != BROKEN:
            flush_plain_text(self.reader)
        return 0

    @property
    def verdict(self):
        """The verdict; 0 while the document is open."""
        return self.final_verdict

    @property
    def stream_id(self):
        """What tracers know the stream by."""
        return self.writer.stream_id

    @property
    def frames(self):
        """Document frames made so far."""
        return self.writer.seq - self.writer.first_seq

    @property
    def has_field(self):
        """A VALUE, PART or CLOSE frame was made."""
        return bool(self.writer.has_field)

    @property
    def is_done(self):
        """The root value is closed."""
        return self.reader.state == CLOSED

    @property
    def violation(self):
        """The first violation, or None."""
        return self.reader.violation()

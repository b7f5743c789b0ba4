# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads a JSON document as it is generated, judges it against a schema and writes its frames.

A state machine over bytes: its state is the same however the input is cut. Nothing recurses over the
depth of the input, and no Python object is made per byte. `_encoder_py` is the same machine, written
slowly and plainly; the two agree byte for byte.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memmove

from ssop_codec._program cimport (
    ENUM_NUMBERS,
    ENUM_STRINGS,
    HAS_ABOVE,
    HAS_BELOW,
    HAS_BOUNDS,
    HAS_FORMAT,
    HAS_MULTIPLE,
    INT_BOUNDS,
    IS_CONST,
    IS_DOUBLE,
    NO_FALSE,
    NO_TRUE,
    NODE_FORBIDDEN,
    NODE_UNTYPED,
    Key,
    Node,
    Program,
)
from ssop_codec._scan cimport double_of, is_blank, is_digit, narrow, put_utf8
from ssop_codec._wire cimport put_varint, varint_size

from . import describe
from ._program import program_of
from .checks import broken_number_rule, keeps_format
from .constants import MAX_BUFFER_BYTES, MIN_BUFFER_BYTES
from .errors import CodecError, Violation
from .limits import Limits
from .number import parse_number, to_int64
from .rules import Rule
from .schema import raw_schema
from .wire import end_frame, header_frames, incomplete_reason_or_default

cdef enum:
    # States from BEFORE_VALUE to AFTER skip blanks.
    AT_START, BEFORE_VALUE, BEFORE_ITEM, BEFORE_KEY, BEFORE_FIRST_KEY, BEFORE_COLON, AFTER, CLOSED
    IN_STRING, IN_ESCAPE, IN_UNIT, IN_NUMBER, IN_LITERAL, IN_ENVELOPE, BROKEN

cdef enum:
    STRING = 1
    INTEGER = 2
    NUMBER = 4
    NUMERIC = 6
    BOOLEAN = 8
    NULL_TYPE = 16
    OBJECT = 32
    ARRAY = 64

cdef enum:
    KIND_VALUE = 2
    KIND_PART = 3
    KIND_CLOSE = 4

cdef enum:
    # Positions in describe.DETAILS.
    D_NONE, D_VALUE, D_VALUE_OR_END, D_KEY, D_KEY_OR_END, D_COLON, D_AFTER_MEMBER, D_AFTER_ITEM, D_DIGIT
    D_LITERAL, D_ESCAPE, D_HEX, D_LOW_HALF, D_CONTROL, D_LONE_HALF, D_DEPTH, D_DOCUMENT, D_BLANKS, D_KEY_SIZE
    D_NUMBER_SIZE, D_FORMAT_SIZE, D_OBJECT_KEYS, D_BUFFER, D_NUMBER_END

cdef enum:
    # Number states: after a minus, a leading zero, whole digits, the point, ...
    N_MINUS, N_ZERO, N_WHOLE, N_POINT, N_FRACTION, N_E, N_SIGN, N_EXPONENT

cdef enum:
    LITERAL_FALSE, LITERAL_TRUE, LITERAL_NULL

cdef enum:
    READY = 1
    DONE = 2
    INVALID = 4

# Headers kept with a schema, one for each buffer size; peers choose these.
cdef int MAX_CACHED_HEADERS = 16

# Bytes of a string that stand for themselves and are whole code points.
cdef uint8_t[256] PLAIN
cdef int _i
for _i in range(256):
    PLAIN[_i] = 0x20 <= _i < 0x80 and _i != 0x22 and _i != 0x5C

cdef const char* THINK = "<think>"
cdef const char* THINK_END = "</think>"


cdef class Encoder:
    """Makes the frames of one document from the bytes that a model generates."""

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
    ):
        limits = limits or Limits()
        schema = raw_schema() if schema is None else schema
        buffer = stream_buffer_bytes or schema.auto_buffer_bytes
        if buffer < MIN_BUFFER_BYTES:
            raise ValueError(f"stream_buffer_bytes must be at least {MIN_BUFFER_BYTES}, or 0 for auto")
        if buffer > MAX_BUFFER_BYTES:
            raise ValueError(f"stream_buffer_bytes must be at most {MAX_BUFFER_BYTES}")
        if not 0 <= document < 2**32 or not 1 <= first_seq < 2**63:
            raise ValueError("document or first_seq out of range")
        self.program = program_of(schema)
        self.buffer_bytes = buffer
        self.length_size = <uint32_t>varint_size(buffer)
        self.document = document
        self.first_seq = self.seq = first_seq
        self.is_text = schema.is_text
        self.is_raw = schema.is_raw
        self.is_envelope = envelope and not schema.is_text
        self.track_spans = track_spans
        self.spans = []
        self.max_depth = limits.max_depth
        self.max_document_bytes = limits.max_document_bytes
        self.max_blanks = limits.max_whitespace_run_bytes
        self.max_key_bytes = limits.max_key_bytes
        self.max_number_bytes = limits.max_number_bytes
        self.max_format_bytes = limits.max_format_bytes
        self.max_object_keys = limits.max_object_keys
        cdef uint64_t text_bytes = max(
            buffer, self.max_key_bytes, self.max_number_bytes, self.max_format_bytes,
            self.program.max_member_bytes,
        )
        self.text = <uint8_t*>malloc(text_bytes + 16)
        self.path = <uint8_t*>malloc(<uint64_t>buffer + 32)
        self.out = <uint8_t*>malloc(buffer)
        self.levels = <Level*>calloc(self.max_depth + 1, sizeof(Level))
        self.seen = <uint64_t*>malloc((<uint64_t>self.max_depth * self.program.max_words + 1) * 8)
        if not (self.text and self.path and self.out and self.levels and self.seen):
            raise MemoryError
        self.key_sets = [None] * self.max_depth
        self.sealed = []
        self.broken = None
        self.cur = &self.program.nodes[0]
        self.state = IN_ENVELOPE if self.is_envelope else AT_START
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
            self._push(frame)

    def __dealloc__(self):
        free(self.text)
        free(self.path)
        free(self.out)
        free(self.levels)
        free(self.seen)

    # -- input ------------------------------------------------------------------------------------------

    def feed(self, data):
        """Read the next bytes of model output; returns flags READY, DONE, INVALID."""
        cdef Py_buffer view
        if self.is_finished:
            raise CodecError("feed after finish")
        if PyBytes_CheckExact(data):
            self._feed(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                self._feed(<const uint8_t*>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        return self._flags()

    cdef int _feed(self, const uint8_t* start, Py_ssize_t size) except -1:
        cdef Py_ssize_t allowed = size
        if self.state == BROKEN:
            return 0
        if self.offset + <uint64_t>size > self.max_document_bytes:
            allowed = <Py_ssize_t>(self.max_document_bytes - self.offset)
        if self.is_text:
            self._feed_text(start, allowed)
        else:
            self._run(start, allowed)
        if self.state != BROKEN:
            self.offset += allowed
            # Blanks and prose after the document do not count.
            if allowed < size and not (self.state == CLOSED and self.is_envelope):
                self._fail("limit", D_DOCUMENT, self.offset, False)
        return 0

    cdef int _flags(self) noexcept:
        cdef int flags = 0
        if len(self.sealed) > self.taken:
            flags = READY
        if self.state == CLOSED:
            flags |= DONE
        elif self.state == BROKEN:
            flags |= INVALID
        return flags

    def finish(
        self,
        *,
        int finish_reason=0,
        int incomplete_reason=0,
        input_tokens=0,
        output_tokens=0,
        cached_input_tokens=0,
    ):
        """The model's output has ended: decide the verdict and append the END frame. Idempotent."""
        if self.is_finished:
            return
        if self.is_text:
            self._finish_text(incomplete_reason)
        elif self.state == IN_NUMBER and self.depth == 0 and not incomplete_reason:
            if self.number_state in (N_ZERO, N_WHOLE, N_FRACTION, N_EXPONENT):
                self._end_number(self.offset)
        if self.state == BROKEN:
            self.final_verdict = 2
        elif self.state == CLOSED:
            self.final_verdict = 1
        else:
            self.final_verdict = 3
        self.is_finished = True
        self._push(
            end_frame(
                self.seq,
                self.buffer_bytes,
                self.final_verdict,
                document=self.document,
                violation=self.violation,
                incomplete_reason=incomplete_reason_or_default(incomplete_reason),
                finish_reason=finish_reason,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_input_tokens=cached_input_tokens,
            )
        )

    # -- output -----------------------------------------------------------------------------------------

    def take(self):
        """The next sealed chunk, or an empty one."""
        if self.taken == len(self.sealed):
            return b""
        # A popped head would make many small chunks cost their square.
        chunk = self.sealed[self.taken]
        self.sealed[self.taken] = None
        self.taken += 1
        if self.taken == len(self.sealed):
            self.sealed.clear()
            self.taken = 0
        return chunk

    def flush(self):
        """Seal what is pending and return the oldest chunk, or an empty one where nothing is pending."""
        if self.is_text and not self.is_finished and self.state != BROKEN:
            self._flush_text()
        self._seal()
        return self.take()

    def drain(self, flush=False):
        """All sealed chunks, and with `flush` the pending one."""
        if flush:
            if self.is_text and not self.is_finished and self.state != BROKEN:
                self._flush_text()
            self._seal()
        chunks = self.sealed[self.taken :]
        self.sealed = []
        self.taken = 0
        return chunks

    def take_spans(self):
        """`(seq, start_byte, end_byte)` of the values completed since the last call; offsets in the model
        output, the end excluded. Empty unless `track_spans` was set."""
        spans = self.spans
        self.spans = []
        return spans

    @property
    def verdict(self):
        """The verdict; 0 while the document is open."""
        return self.final_verdict

    @property
    def frames(self):
        """Document frames made so far."""
        return self.seq - self.first_seq

    @property
    def has_field(self):
        """A VALUE, PART or CLOSE frame was made."""
        return bool(self.has_field_frame)

    @property
    def is_done(self):
        """The root value is closed."""
        return self.state == CLOSED

    @property
    def violation(self):
        """The first violation, or None."""
        if self.state != BROKEN:
            return None
        if self.cached_violation is None:
            self.cached_violation = self._violation()
        return self.cached_violation

    def _violation(self):
        rules = self.program.schema.rules
        cdef Level* level = &self.levels[self.depth - 1] if self.depth else NULL
        cdef Py_ssize_t number
        rule = structure = Rule()
        if self.cur is not NULL:
            number = self.cur - self.program.nodes
            if number < <Py_ssize_t>self.program.node_count:
                rule = rules[number]
        missing = []
        if level is not NULL:
            number = level.node - self.program.nodes
            if number < <Py_ssize_t>self.program.node_count:
                structure = rules[number]
                if self.broken == "required":
                    for position, name in enumerate(structure.properties):
                        if name in structure.required and not (
                            self.seen[level.seen + position // 64] >> (position % 64) & 1
                        ):
                            missing.append(name)
        if self.detail:
            text = describe.DETAILS[self.detail]
        else:
            text = describe.expected(self.broken, rule, structure, tuple(missing))
        return Violation(self.broken, self._pointer(), self.broken_at, text)

    cdef str _pointer(self):
        """Pointer of the place of the violation, as far as the schema or an index names it."""
        cdef uint32_t i
        cdef Level* level
        tokens = []
        for i in range(self.depth):
            if i + 1 == self.depth and not self.in_child:
                break
            level = &self.levels[i]
            if level.is_array:
                tokens.append(str(level.count))
            elif level.child_key >= 0:
                key = level.node.keys[level.child_key]
                name = key.data[:key.size].decode()
                tokens.append(name.replace("~", "~0").replace("/", "~1"))
            else:
                break
        return "".join("/" + token for token in tokens)

    # -- frames -----------------------------------------------------------------------------------------

    cdef int _push(self, bytes frame) except -1:
        """Append a frame that was made elsewhere."""
        cdef Py_ssize_t size = len(frame)
        if self.out_size + size > self.buffer_bytes:
            self._seal()
        if size > self.buffer_bytes:
            # Only an END whose buffer holds less than its numbers comes here.
            self.sealed.append(frame)
        else:
            memcpy(self.out + self.out_size, PyBytes_AS_STRING(frame), size)
            self.out_size += <uint32_t>size
        self.seq += 1
        return 0

    cdef int _seal(self) except -1:
        if self.out_size:
            self.sealed.append(PyBytes_FromStringAndSize(<char*>self.out, self.out_size))
            self.out_size = 0
        return 0

    cdef uint8_t* _head(
        self, int kind, uint32_t node, uint32_t path_size, uint32_t parts, uint64_t content, uint64_t offset
    ) except? NULL:
        """Begin a frame with `content` bytes of content field; NULL after a violation of the buffer."""
        cdef uint64_t body = 1 + varint_size(self.seq) + 2 + path_size + content
        if node:
            body += 1 + varint_size(node)
        if parts:
            body += 1 + varint_size(parts)
        if self.document:
            body += 1 + varint_size(self.document)
        cdef uint64_t total = 1 + varint_size(body) + body
        if self.out_size + total > self.buffer_bytes:
            if total > self.buffer_bytes:
                self._fail("limit", D_BUFFER, offset, True)
                return NULL
            self._seal()
        cdef uint8_t* at = self.out + self.out_size
        self.out_size += <uint32_t>total
        at[0] = 0x0A
        at = put_varint(at + 1, body)
        at[0] = 0x08
        at = put_varint(at + 1, self.seq)
        at[0] = 0x10
        at[1] = <uint8_t>kind
        at += 2
        if node:
            at[0] = 0x18
            at = put_varint(at + 1, node)
        if path_size:
            memcpy(at, self.path, path_size)
            at += path_size
        if parts:
            at[0] = 0x28
            at = put_varint(at + 1, parts)
        if self.document:
            at[0] = 0x30
            at = put_varint(at + 1, self.document)
        self.seq += 1
        return at

    cdef int _sent_field(self) except -1:
        """The first field leaves at once."""
        if not self.has_field_frame:
            self.has_field_frame = True
            self._seal()
        return 0

    cdef uint32_t _room(self) noexcept:
        """Bytes of string that fit a frame here, whatever the number of parts will be."""
        cdef uint64_t used = (
            1 + self.length_size + 1 + varint_size(self.seq) + 2 + self.path_size
            + 1 + varint_size(self.parts + 1) + 1 + self.length_size
        )
        if self.cur_node:
            used += 1 + varint_size(self.cur_node)
        if self.document:
            used += 1 + varint_size(self.document)
        return <uint32_t>(self.buffer_bytes - used) if used < self.buffer_bytes else 0

    cdef int _put_string(self, int kind, const uint8_t* data, uint32_t size, uint64_t offset) except -1:
        cdef uint32_t parts = self.parts if kind == KIND_VALUE else 0
        cdef uint8_t* at = self._head(
            kind, self.cur_node, self.path_size, parts, 1 + varint_size(size) + size, offset
        )
        if at is NULL:
            return 0
        at[0] = 0x42
        memcpy(put_varint(at + 1, size), data, size)
        return self._sent_field()

    cdef int _fail(self, str rule, int detail, uint64_t offset, bint in_child) except -1:
        """Record the first violation; `in_child`: it concerns the open value and not its container."""
        if self.state != BROKEN:
            self.state = BROKEN
            self.broken = rule
            self.detail = detail
            self.broken_at = offset
            self.in_child = in_child
        return 0

    # -- the document -----------------------------------------------------------------------------------

    cdef int _run(self, const uint8_t* start, Py_ssize_t size) except -1:
        cdef const uint8_t* p = start
        cdef const uint8_t* q
        cdef const uint8_t* end = start + size
        cdef uint64_t base = self.offset
        cdef uint8_t c
        cdef Level* level
        while p < end:
            c = p[0]
            if self.state == IN_STRING:
                if self.need:
                    if c < self.need_low or c > self.need_high:
                        return self._fail("utf8", D_NONE, base + (p - start), not self.in_key)
                    self.need_low = 0x80
                    self.need_high = 0xBF
                    self.need -= 1
                    self._text_bytes(p, 1, base + (p - start), 0)
                    p += 1
                elif PLAIN[c]:
                    q = p + 1
                    while q < end and PLAIN[q[0]]:
                        q += 1
                    if self.high:
                        return self._fail("syntax", D_LOW_HALF, base + (p - start), not self.in_key)
                    self._text_bytes(p, <uint32_t>(q - p), base + (p - start), 1)
                    p = q
                elif c == 0x22:
                    if self.high:
                        return self._fail("syntax", D_LOW_HALF, base + (p - start), not self.in_key)
                    if self.in_key:
                        self._end_key(base + (p - start))
                    else:
                        self._end_string(base + (p - start))
                    p += 1
                elif c == 0x5C:
                    if not self.high and not self.in_key and self.chars == self.cur.max_length:
                        return self._fail("maxLength", D_NONE, base + (p - start), True)
                    self.state = IN_ESCAPE
                    p += 1
                else:
                    self._lead(c, base + (p - start))
                    p += 1
            elif self.state <= CLOSED:
                if is_blank(c) and self.state != AT_START:
                    q = p + 1
                    while q < end and is_blank(q[0]):
                        q += 1
                    if self.state != CLOSED:
                        self.blanks += q - p
                        if self.blanks > self.max_blanks:
                            return self._fail(
                                "limit", D_BLANKS, base + (q - start) - (self.blanks - self.max_blanks),
                                self.state <= BEFORE_ITEM,
                            )
                    p = q
                    continue
                self.blanks = 0
                if self.state == AFTER:
                    level = &self.levels[self.depth - 1]
                    if c == 0x2C:
                        if level.is_array:
                            if level.count >= level.node.max_items:
                                return self._fail("maxItems", D_NONE, base + (p - start), False)
                            self.state = BEFORE_VALUE
                            self._next_item(level, base + (p - start))
                        else:
                            if level.count >= level.node.max_properties:
                                return self._fail("maxProperties", D_NONE, base + (p - start), False)
                            self.state = BEFORE_KEY
                    elif c == (0x5D if level.is_array else 0x7D):
                        self._close(base + (p - start))
                    else:
                        return self._fail(
                            "syntax", D_AFTER_ITEM if level.is_array else D_AFTER_MEMBER,
                            base + (p - start), False,
                        )
                    p += 1
                elif self.state == BEFORE_KEY or self.state == BEFORE_FIRST_KEY:
                    if c == 0x22:
                        level = &self.levels[self.depth - 1]
                        if level.count >= level.node.max_properties:
                            return self._fail("maxProperties", D_NONE, base + (p - start), False)
                        self._begin_key()
                    elif c == 0x7D and self.state == BEFORE_FIRST_KEY:
                        self._close(base + (p - start))
                    else:
                        return self._fail(
                            "syntax", D_KEY if self.state == BEFORE_KEY else D_KEY_OR_END,
                            base + (p - start), False,
                        )
                    p += 1
                elif self.state == BEFORE_COLON:
                    if c != 0x3A:
                        return self._fail("syntax", D_COLON, base + (p - start), True)
                    self.state = BEFORE_VALUE
                    p += 1
                elif self.state == CLOSED:
                    if self.is_envelope:
                        return 0
                    return self._fail("trailing", D_NONE, base + (p - start), False)
                elif self.state == AT_START:
                    # One byte order mark, which may be cut anywhere.
                    if c == (0xEF, 0xBB, 0xBF)[self.bom]:
                        self.bom += 1
                        p += 1
                        if self.bom == 3:
                            self.state = BEFORE_VALUE
                    elif self.bom:
                        return self._fail("syntax", D_VALUE, base + (p - start), True)
                    else:
                        self.state = BEFORE_VALUE
                elif self.state == BEFORE_ITEM and c == 0x5D:
                    self._close(base + (p - start))
                    p += 1
                else:
                    if self.state == BEFORE_ITEM and self.levels[self.depth - 1].node.max_items == 0:
                        return self._fail("maxItems", D_NONE, base + (p - start), False)
                    self._begin_value(c, base + (p - start))
                    p += 1
            elif self.state == IN_NUMBER:
                # A byte that ends the number is read again.
                if self._number_byte(c, base + (p - start)):
                    p += 1
            elif self.state == IN_LITERAL:
                if c != <uint8_t>self.literal[0]:
                    return self._fail("syntax", D_LITERAL, base + (p - start), True)
                self.literal += 1
                p += 1
                if not self.literal[0]:
                    self._end_literal(base + (p - start) - 1)
            elif self.state == IN_ESCAPE:
                self._escape(c, base + (p - start))
                p += 1
            elif self.state == IN_UNIT:
                self._unit(c, base + (p - start))
                p += 1
            elif self.state == IN_ENVELOPE:
                if self._envelope_byte(c):
                    p += 1
                else:
                    self.state = BEFORE_VALUE
            else:
                return 0
        return 0

    cdef int _begin_value(self, uint8_t c, uint64_t offset) except -1:
        """The first byte of a value decides its type."""
        cdef uint32_t wanted
        if c == 0x22:
            wanted = STRING
        elif c == 0x7B:
            wanted = OBJECT
        elif c == 0x5B:
            wanted = ARRAY
        elif is_digit(c) or c == 0x2D:
            wanted = NUMERIC
        elif c == 0x74 or c == 0x66:
            wanted = BOOLEAN
        elif c == 0x6E:
            wanted = NULL_TYPE
        else:
            return self._fail(
                "syntax", D_VALUE_OR_END if self.state == BEFORE_ITEM else D_VALUE, offset, True
            )
        if self.cur is NULL:
            return self._fail("items", D_NONE, offset, False)
        if not self.cur.types & wanted:
            if not self.cur.declared_types & wanted:
                return self._fail("type", D_NONE, offset, True)
            return self._fail("const" if self.cur.flags & IS_CONST else "enum", D_NONE, offset, True)
        self.value_start = offset
        if wanted == STRING:
            self.state = IN_STRING
            self.in_key = False
            self.text_size = 0
            self.parts = 0
            self.chars = 0
            self.low_key = 0
            self.high_key = self.cur.string_count
            self.text_room = self._room()
            if self.text_room < 4:
                return self._fail("limit", D_BUFFER, offset, True)
        elif wanted == OBJECT or wanted == ARRAY:
            return self._open(wanted == ARRAY, offset)
        elif wanted == NUMERIC:
            self.state = IN_NUMBER
            self.text[0] = c
            self.text_size = 1
            self.number_state = N_MINUS if c == 0x2D else N_ZERO if c == 0x30 else N_WHOLE
        else:
            if (c == 0x74 and self.cur.flags & NO_TRUE) or (c == 0x66 and self.cur.flags & NO_FALSE):
                return self._fail("const" if self.cur.flags & IS_CONST else "enum", D_NONE, offset, True)
            self.state = IN_LITERAL
            if c == 0x74:
                self.literal = "rue"
                self.literal_kind = LITERAL_TRUE
            elif c == 0x66:
                self.literal = "alse"
                self.literal_kind = LITERAL_FALSE
            else:
                self.literal = "ull"
                self.literal_kind = LITERAL_NULL
        return 0

    cdef int _open(self, bint is_array, uint64_t offset) except -1:
        cdef Level* level
        cdef Level* above
        cdef Node* node = self.cur
        cdef uint32_t i
        cdef uint32_t at = <uint32_t>(node.array_at if is_array else node.object_at)
        cdef uint8_t* end
        if self.depth == self.max_depth:
            return self._fail("limit", D_DEPTH, offset, True)
        level = &self.levels[self.depth]
        level.self_node = self.cur_node
        level.self_path = self.path_size
        level.is_array = is_array
        level.count = 0
        level.next_key = 0
        level.child_key = -1
        level.has_key_set = False
        level.node = node
        if &self.program.nodes[at] != node:
            # A reference: the children stand in the subtree of another node.
            level.node = &self.program.nodes[at]
            level.child_node = at
            end = self.path + self.path_size
            end[0] = 0x22
            end[1] = <uint8_t>(1 + varint_size(self.cur_node))
            end[2] = 0x18
            end = put_varint(end + 3, self.cur_node)
            self.path_size = <uint32_t>(end - self.path)
            if self.path_size > self.buffer_bytes:
                return self._fail("limit", D_BUFFER, offset, True)
        else:
            level.child_node = self.cur_node
        level.base_path = self.path_size
        if self.depth:
            above = level - 1
            level.seen = above.seen + (0 if above.is_array else above.node.words)
        else:
            level.seen = 0
        self.depth += 1
        if is_array:
            self.state = BEFORE_ITEM
            return self._next_item(level, offset)
        for i in range(level.node.words):
            self.seen[level.seen + i] = 0
        self.state = BEFORE_FIRST_KEY
        return 0

    cdef int _next_item(self, Level* level, uint64_t offset) except -1:
        """Say what the item at position `level.count` may be."""
        cdef Node* node = level.node
        cdef uint8_t* at
        cdef int32_t child
        self.path_size = level.base_path
        if level.count < node.prefix_count:
            child = node.prefix[level.count]
            self.cur = &self.program.nodes[child]
            self.cur_node = <uint32_t>child
            return 0
        if node.items == NODE_FORBIDDEN:
            self.cur = NULL
            return 0
        if node.items == NODE_UNTYPED:
            self.cur = &self.program.nodes[self.program.node_count]
            self.cur_node = level.child_node
        else:
            self.cur = &self.program.nodes[node.items]
            self.cur_node = <uint32_t>node.items
        at = self.path + self.path_size
        at[0] = 0x22
        at[1] = <uint8_t>(1 + varint_size(level.count))
        at[2] = 0x08
        at = put_varint(at + 3, level.count)
        self.path_size = <uint32_t>(at - self.path)
        if self.path_size > self.buffer_bytes:
            return self._fail("limit", D_BUFFER, offset, True)
        return 0

    cdef int _close(self, uint64_t offset) except -1:
        cdef Level* level = &self.levels[self.depth - 1]
        cdef Node* node = level.node
        cdef uint32_t i
        cdef uint8_t* at
        if level.is_array:
            if level.count < node.min_items:
                return self._fail("minItems", D_NONE, offset, False)
        else:
            for i in range(node.words):
                if node.required[i] & ~self.seen[level.seen + i]:
                    return self._fail("required", D_NONE, offset, False)
            if level.count < node.min_properties:
                return self._fail("minProperties", D_NONE, offset, False)
            if level.has_key_set:
                self.key_sets[self.depth - 1] = None
        at = self._head(
            KIND_CLOSE, level.self_node, level.self_path, 0, 1 + varint_size(level.count), offset
        )
        if at is NULL:
            self.in_child = False
            return 0
        at[0] = 0x78 if level.is_array else 0x70
        put_varint(at + 1, level.count)
        self._sent_field()
        self.depth -= 1
        return self._value_done(offset + 1)

    cdef int _value_done(self, uint64_t end) except -1:
        if self.depth:
            self.levels[self.depth - 1].count += 1
            self.state = AFTER
        else:
            self.state = CLOSED
        self.blanks = 0
        return 0

    cdef int _scalar_done(self, uint64_t end) except -1:
        if self.track_spans:
            self.spans.append((self.seq - 1, self.value_start, end))
        return self._value_done(end)

    # -- keys -------------------------------------------------------------------------------------------

    cdef int _begin_key(self) except -1:
        cdef Level* level = &self.levels[self.depth - 1]
        self.state = IN_STRING
        self.in_key = True
        self.text_size = 0
        level.child_key = -1
        if level.next_key < level.node.key_count:
            self.guess = <int32_t>level.node.order[level.next_key]
        else:
            self.guess = -1
            self.low_key = 0
            self.high_key = level.node.key_count
        return 0

    cdef int _key_bytes(self, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
        cdef Node* node = self.levels[self.depth - 1].node
        cdef Key* key
        cdef uint32_t room = self.max_key_bytes - self.text_size
        cdef uint32_t take = size if size < room else room
        cdef uint32_t i, from_
        memcpy(self.text + self.text_size, data, take)
        if self.guess >= 0:
            key = &node.keys[self.guess]
            if key.size < self.text_size + take or memcmp(key.data + self.text_size, data, take):
                self.guess = -1
                self.low_key = 0
                self.high_key = node.key_count
                from_ = 0
            else:
                from_ = self.text_size + take
        else:
            from_ = self.text_size
        for i in range(from_, self.text_size + take):
            narrow(node.keys, &self.low_key, &self.high_key, i, self.text[i])
            if self.low_key == self.high_key:
                if node.additional == NODE_FORBIDDEN:
                    return self._fail(
                        "additionalProperties", D_NONE, offset + step * (i - self.text_size), False
                    )
                break
        self.text_size += take
        if take < size:
            return self._fail("limit", D_KEY_SIZE, offset + step * take, False)
        return 0

    cdef int _end_key(self, uint64_t offset) except -1:
        cdef Level* level = &self.levels[self.depth - 1]
        cdef Node* node = level.node
        cdef Key* key
        cdef int32_t found = -1
        cdef uint32_t i
        cdef uint64_t bit
        cdef uint8_t* at
        if self.guess >= 0:
            if node.keys[self.guess].size == self.text_size:
                found = self.guess
            else:
                self.low_key = 0
                self.high_key = node.key_count
                for i in range(self.text_size):
                    narrow(node.keys, &self.low_key, &self.high_key, i, self.text[i])
        if found < 0 and self.low_key < self.high_key and node.keys[self.low_key].size == self.text_size:
            found = <int32_t>self.low_key
        self.path_size = level.base_path
        if found >= 0:
            key = &node.keys[found]
            bit = <uint64_t>1 << (key.position & 63)
            if self.seen[level.seen + (key.position >> 6)] & bit:
                return self._fail("duplicateKey", D_NONE, offset, False)
            self.seen[level.seen + (key.position >> 6)] |= bit
            level.next_key = key.position + 1
            level.child_key = found
            self.cur = &self.program.nodes[key.node]
            self.cur_node = <uint32_t>key.node
            self.state = BEFORE_COLON
            return 0
        if node.additional == NODE_FORBIDDEN:
            return self._fail("additionalProperties", D_NONE, offset, False)
        if not self.is_raw:
            name = PyBytes_FromStringAndSize(<char*>self.text, self.text_size)
            if not level.has_key_set:
                level.has_key_set = True
                self.key_sets[self.depth - 1] = set()
            names = <set>self.key_sets[self.depth - 1]
            if name in names:
                return self._fail("duplicateKey", D_NONE, offset, False)
            if <uint64_t>len(names) >= self.max_object_keys:
                return self._fail("limit", D_OBJECT_KEYS, offset, False)
            names.add(name)
        if node.additional == NODE_UNTYPED:
            self.cur = &self.program.nodes[self.program.node_count]
            self.cur_node = level.child_node
        else:
            self.cur = &self.program.nodes[node.additional]
            self.cur_node = <uint32_t>node.additional
        cdef uint64_t body = 1 + varint_size(self.text_size) + self.text_size
        if self.path_size + 1 + varint_size(body) + body > self.buffer_bytes:
            return self._fail("limit", D_BUFFER, offset, False)
        at = self.path + self.path_size
        at[0] = 0x22
        at = put_varint(at + 1, body)
        at[0] = 0x12
        at = put_varint(at + 1, self.text_size)
        memcpy(at, self.text, self.text_size)
        self.path_size = <uint32_t>(at + self.text_size - self.path)
        self.state = BEFORE_COLON
        return 0

    # -- strings ----------------------------------------------------------------------------------------

    cdef int _text_bytes(self, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
        """Bytes of a string, unescaped. `step` 1: plain bytes, each a code point, the first at `offset`;
        0: bytes of one code point, all known at `offset`."""
        cdef uint32_t take = size
        cdef uint32_t i
        cdef uint64_t room
        if self.in_key:
            return self._key_bytes(data, size, offset, step)
        if step:
            room = self.cur.max_length - self.chars
            if take > room:
                take = <uint32_t>room
            self.chars += take
        if self.cur.flags & ENUM_STRINGS:
            for i in range(take):
                narrow(self.cur.strings, &self.low_key, &self.high_key, self.text_size + i, data[i])
                if self.low_key == self.high_key:
                    return self._fail(
                        "const" if self.cur.flags & IS_CONST else "enum", D_NONE, offset + step * i, True
                    )
            memcpy(self.text + self.text_size, data, take)
            self.text_size += take
        elif self.cur.flags & HAS_FORMAT:
            room = self.max_format_bytes - self.text_size
            if take > room:
                return self._fail("limit", D_FORMAT_SIZE, offset + step * room, True)
            memcpy(self.text + self.text_size, data, take)
            self.text_size += take
        else:
            self._append(data, take, offset)
        if take < size:
            return self._fail("maxLength", D_NONE, offset + step * take, True)
        return 0

    cdef int _append(self, const uint8_t* data, uint32_t size, uint64_t offset) except -1:
        cdef uint32_t take, room
        while size:
            room = self.text_room + 1 - self.text_size
            take = size if size < room else room
            memcpy(self.text + self.text_size, data, take)
            self.text_size += take
            data += take
            size -= take
            if self.text_size > self.text_room:
                self._cut_part(offset)
                if self.state == BROKEN:
                    return 0
        return 0

    cdef int _cut_part(self, uint64_t offset) except -1:
        """Send as many whole code points as fit a frame."""
        cdef uint32_t cut = self.text_room
        while (self.text[cut] & 0xC0) == 0x80:
            cut -= 1
        self._put_string(KIND_PART, self.text, cut, offset)
        self.text_size -= cut
        memmove(self.text, self.text + cut, self.text_size)
        self.parts += 1
        self.text_room = self._room()
        if self.text_room < 4:
            return self._fail("limit", D_BUFFER, offset, True)
        return 0

    cdef int _end_string(self, uint64_t offset) except -1:
        cdef Node* node = self.cur
        if node.flags & ENUM_STRINGS:
            if self.low_key == self.high_key or node.strings[self.low_key].size != self.text_size:
                return self._fail("const" if node.flags & IS_CONST else "enum", D_NONE, offset, True)
        elif self.chars < node.min_length:
            return self._fail("minLength", D_NONE, offset, True)
        elif node.flags & HAS_FORMAT:
            rule = self.program.schema.rules[node - self.program.nodes]
            text = PyBytes_FromStringAndSize(<char*>self.text, self.text_size)
            if not keeps_format(rule, text):
                return self._fail("format", D_NONE, offset, True)
        while self.text_size > self.text_room:
            # Strings that are judged whole were held back.
            self._cut_part(offset)
            if self.state == BROKEN:
                return 0
        self._put_string(KIND_VALUE, self.text, self.text_size, offset)
        if self.state == BROKEN:
            return 0
        return self._scalar_done(offset + 1)

    cdef int _lead(self, uint8_t c, uint64_t offset) except -1:
        """A byte of a string that is no plain one: a control or the first of a longer code point."""
        cdef bint in_child = not self.in_key
        if c < 0x20:
            return self._fail("syntax", D_CONTROL, offset, in_child)
        if self.high:
            return self._fail("syntax", D_LOW_HALF, offset, in_child)
        self.need_low = 0x80
        self.need_high = 0xBF
        if 0xC2 <= c <= 0xDF:
            self.need = 1
        elif 0xE0 <= c <= 0xEF:
            self.need = 2
            if c == 0xE0:
                self.need_low = 0xA0
            elif c == 0xED:
                self.need_high = 0x9F
        elif 0xF0 <= c <= 0xF4:
            self.need = 3
            if c == 0xF0:
                self.need_low = 0x90
            elif c == 0xF4:
                self.need_high = 0x8F
        else:
            return self._fail("utf8", D_NONE, offset, in_child)
        if in_child:
            if self.chars == self.cur.max_length:
                return self._fail("maxLength", D_NONE, offset, True)
            self.chars += 1
        return self._text_bytes(&c, 1, offset, 0)

    cdef int _escape(self, uint8_t c, uint64_t offset) except -1:
        cdef bint in_child = not self.in_key
        if c == 0x75:
            self.unit = 0
            self.unit_digits = 0
            self.state = IN_UNIT
            return 0
        if self.high:
            return self._fail("syntax", D_LOW_HALF, offset, in_child)
        if c == 0x6E:
            c = 0x0A
        elif c == 0x74:
            c = 0x09
        elif c == 0x72:
            c = 0x0D
        elif c == 0x62:
            c = 0x08
        elif c == 0x66:
            c = 0x0C
        elif c != 0x22 and c != 0x5C and c != 0x2F:
            return self._fail("syntax", D_ESCAPE, offset, in_child)
        return self._code_point(c, offset)

    cdef int _unit(self, uint8_t c, uint64_t offset) except -1:
        cdef uint32_t digit
        cdef bint in_child = not self.in_key
        if is_digit(c):
            digit = c - 0x30
        elif 0x61 <= (c | 0x20) <= 0x66:
            digit = (c | 0x20) - 0x61 + 10
        else:
            return self._fail("syntax", D_HEX, offset, in_child)
        self.unit = self.unit << 4 | digit
        self.unit_digits += 1
        if self.unit_digits < 4:
            return 0
        cdef uint32_t unit = self.unit
        if self.high:
            if not 0xDC00 <= unit <= 0xDFFF:
                return self._fail("syntax", D_LOW_HALF, offset, in_child)
            unit = 0x10000 + ((self.high - 0xD800) << 10) + (unit - 0xDC00)
            self.high = 0
        elif 0xD800 <= unit <= 0xDBFF:
            self.high = unit
            self.state = IN_STRING
            return 0
        elif 0xDC00 <= unit <= 0xDFFF:
            return self._fail("syntax", D_LONE_HALF, offset, in_child)
        return self._code_point(unit, offset)

    cdef int _code_point(self, uint32_t point, uint64_t offset) except -1:
        cdef uint8_t[4] utf8
        cdef uint32_t size = put_utf8(utf8, point)
        self.state = IN_STRING
        self.chars += 1
        return self._text_bytes(utf8, size, offset, 0)

    # -- numbers and literals ---------------------------------------------------------------------------

    cdef int _number_byte(self, uint8_t c, uint64_t offset) except -1:
        """1 where the byte belongs to the number, 0 where it was not read."""
        cdef int state = self.number_state
        cdef int after = -1
        if is_digit(c):
            if state == N_WHOLE or state == N_FRACTION or state == N_EXPONENT:
                after = state
            elif state == N_MINUS:
                after = N_ZERO if c == 0x30 else N_WHOLE
            elif state == N_POINT:
                after = N_FRACTION
            elif state == N_E or state == N_SIGN:
                after = N_EXPONENT
        elif c == 0x2E:
            if state == N_ZERO or state == N_WHOLE:
                after = N_POINT
        elif c == 0x65 or c == 0x45:
            if state == N_ZERO or state == N_WHOLE or state == N_FRACTION:
                after = N_E
        elif c == 0x2B or c == 0x2D:
            if state == N_E:
                after = N_SIGN
        if after >= 0:
            if self.text_size == self.max_number_bytes:
                self._fail("limit", D_NUMBER_SIZE, offset, True)
                return 0
            self.text[self.text_size] = c
            self.text_size += 1
            self.number_state = after
            return 1
        if state == N_MINUS or state == N_POINT or state == N_E or state == N_SIGN:
            self._fail("syntax", D_DIGIT, offset, True)
        elif is_blank(c) or c == 0x2C or c == 0x5D or c == 0x7D:
            self._end_number(offset)
        else:
            self._fail("syntax", D_NUMBER_END, offset, True)
        return 0

    cdef int _end_number(self, uint64_t offset) except -1:
        """Judge the number in `text`, and send it."""
        cdef Node* node = self.cur
        cdef const uint8_t* p = self.text
        cdef const uint8_t* end = self.text + self.text_size
        cdef bint negative = p[0] == 0x2D
        cdef bint is_integer_text = self.number_state == N_ZERO or self.number_state == N_WHOLE
        cdef uint64_t magnitude = 0
        cdef bint fits = is_integer_text
        cdef int64_t value = 0
        cdef uint32_t flags = node.flags
        cdef str keyword = None
        self.text[self.text_size] = 0
        if is_integer_text:
            if negative:
                p += 1
            if end - p > 19:
                fits = False
            else:
                while p < end:
                    magnitude = magnitude * 10 + (p[0] - 0x30)
                    p += 1
                if magnitude > <uint64_t>INT64_MAX + negative:
                    fits = False
                elif negative:
                    value = <int64_t>(0 - magnitude)
                else:
                    value = <int64_t>magnitude
        if not node.types & NUMBER and not is_integer_text:
            # 1.0 and 1e2 are integers.
            return self._end_odd_integer(offset)
        if flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE):
            if fits and flags & INT_BOUNDS and not flags & ENUM_NUMBERS:
                if value < node.minimum:
                    keyword = "minimum"
                elif value > node.maximum:
                    keyword = "maximum"
                elif flags & HAS_ABOVE and value <= node.exclusive_minimum:
                    keyword = "exclusiveMinimum"
                elif flags & HAS_BELOW and value >= node.exclusive_maximum:
                    keyword = "exclusiveMaximum"
                elif flags & HAS_MULTIPLE and value % node.multiple_of:
                    keyword = "multipleOf"
            elif flags & (ENUM_NUMBERS | HAS_MULTIPLE) or not self._is_between():
                keyword = broken_number_rule(
                    self.program.schema.rules[node - self.program.nodes],
                    PyBytes_FromStringAndSize(<char*>self.text, self.text_size),
                )
            if keyword:
                return self._fail(keyword, D_NONE, offset, True)
        self._put_number(is_integer_text, fits, value, offset)
        return 0 if self.state == BROKEN else self._scalar_done(offset)

    cdef bint _is_between(self) except? -1:
        """The double nearest to the number lies strictly between the bounds; then so does the number."""
        cdef double value = double_of(self.text, self.text_size)
        return self.cur.low < value < self.cur.high

    def _end_odd_integer(self, uint64_t offset):
        """An integer written with a point or an exponent."""
        cdef bytes text = PyBytes_FromStringAndSize(<char*>self.text, self.text_size)
        keyword = broken_number_rule(self.program.schema.rules[self.cur - self.program.nodes], text)
        if keyword:
            self._fail(keyword, D_NONE, offset, True)
            return 0
        value = to_int64(parse_number(text))
        if value is None:
            self._put_json(offset)
        else:
            self._put_int(value, offset)
        if self.state != BROKEN:
            self._scalar_done(offset)
        return 0

    cdef int _put_number(self, bint is_integer_text, bint fits, long long value, uint64_t offset) except -1:
        cdef double number
        cdef const uint8_t* p
        if is_integer_text:
            if not fits:
                return self._put_json(offset)
            if self.cur.flags & IS_DOUBLE:
                number = <double>value
                if number < 9223372036854775808.0 and <long long>number == value:
                    if value == 0 and self.text[0] == 0x2D:
                        number = -0.0
                    return self._put_double(number, offset)
            return self._put_int(value, offset)
        number = double_of(self.text, self.text_size)
        if number - number != 0:
            return self._put_json(offset)
        if number == 0:
            # Zero, or too small for a double?
            p = self.text
            while p < self.text + self.text_size and p[0] != 0x65 and p[0] != 0x45:
                if 0x31 <= p[0] <= 0x39:
                    return self._put_json(offset)
                p += 1
        return self._put_double(number, offset)

    cdef int _put_json(self, uint64_t offset) except -1:
        cdef uint8_t* at = self._head(
            KIND_VALUE, self.cur_node, self.path_size, 0,
            1 + varint_size(self.text_size) + self.text_size, offset,
        )
        if at is NULL:
            return 0
        at[0] = 0x6A
        memcpy(put_varint(at + 1, self.text_size), self.text, self.text_size)
        return self._sent_field()

    cdef int _put_int(self, long long value, uint64_t offset) except -1:
        cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
        cdef uint8_t* at = self._head(
            KIND_VALUE, self.cur_node, self.path_size, 0, 1 + varint_size(zigzag), offset
        )
        if at is NULL:
            return 0
        at[0] = 0x50
        put_varint(at + 1, zigzag)
        return self._sent_field()

    cdef int _put_double(self, double value, uint64_t offset) except -1:
        cdef uint64_t bits
        cdef int i
        cdef uint8_t* at = self._head(KIND_VALUE, self.cur_node, self.path_size, 0, 9, offset)
        if at is NULL:
            return 0
        memcpy(&bits, &value, 8)
        at[0] = 0x49
        for i in range(8):
            at[1 + i] = <uint8_t>(bits >> (8 * i))
        return self._sent_field()

    cdef int _end_literal(self, uint64_t offset) except -1:
        cdef uint8_t* at = self._head(KIND_VALUE, self.cur_node, self.path_size, 0, 2, offset)
        if at is NULL:
            return 0
        if self.literal_kind == LITERAL_NULL:
            at[0] = 0x60
            at[1] = 0
        else:
            at[0] = 0x58
            at[1] = <uint8_t>self.literal_kind
        self._sent_field()
        return self._scalar_done(offset + 1)

    # -- around the document ----------------------------------------------------------------------------

    cdef bint _envelope_byte(self, uint8_t c):
        """Whether the byte stands before the document. States: 0 outside, 1 reasoning, 2 fence line."""
        cdef uint32_t types = self.cur.types
        cdef bint opens = (c == 0x7B and types & OBJECT) or (c == 0x5B and types & ARRAY)
        if self.envelope_state == 1:
            if c == <uint8_t>THINK_END[self.tag_match]:
                self.tag_match += 1
                if not THINK_END[self.tag_match]:
                    self.envelope_state = 0
                    self.tag_match = 0
                    self.after_prose = False
            else:
                self.tag_match = 1 if c == 0x3C else 0
            return True
        if opens:
            return False
        if self.envelope_state == 2:
            if c == 0x0A:
                self.envelope_state = 0
                self.after_prose = False
            return True
        if c == <uint8_t>THINK[self.tag_match] or c == 0x3C:
            self.ticks = 0
            self.tag_match = self.tag_match + 1 if c == <uint8_t>THINK[self.tag_match] else 1
            if not THINK[self.tag_match]:
                self.envelope_state = 1
                self.tag_match = 0
            return True
        self.tag_match = 0
        if c == 0x60:
            self.ticks += 1
            if self.ticks == 3:
                self.envelope_state = 2
                self.ticks = 0
            return True
        self.ticks = 0
        if is_blank(c) or c >= 0x80:
            return True
        if not self.after_prose:
            if (c == 0x22 and types & STRING) or ((is_digit(c) or c == 0x2D) and types & NUMERIC):
                return False
            if not types & (OBJECT | ARRAY):
                return False
            self.after_prose = True
        return True

    # -- plain text -------------------------------------------------------------------------------------

    cdef int _feed_text(self, const uint8_t* start, Py_ssize_t size) except -1:
        cdef const uint8_t* p = start
        cdef const uint8_t* q
        cdef const uint8_t* end = start + size
        cdef uint64_t offset
        if self.state == AT_START:
            self.state = IN_STRING
            self.text_room = self._room()
        while p < end and self.state == IN_STRING:
            offset = self.offset + (p - start)
            if self.need:
                if p[0] < self.need_low or p[0] > self.need_high:
                    return self._fail("utf8", D_NONE, offset, True)
                self.need_low = 0x80
                self.need_high = 0xBF
                self.need -= 1
                self._append(p, 1, offset)
                p += 1
            elif p[0] < 0x80:
                q = p + 1
                while q < end and q[0] < 0x80:
                    q += 1
                self._append(p, <uint32_t>(q - p), offset)
                p = q
            elif p[0] < 0x20:
                p += 1
            else:
                self._lead(p[0], offset)
                p += 1
        return 0

    def _flush_text(self):
        """Send the whole code points so far as a part."""
        cdef uint32_t cut = self.text_size
        cdef uint32_t kept
        if self.state != IN_STRING or not cut:
            return
        if self.need:
            cut -= 1
            while (self.text[cut] & 0xC0) == 0x80:
                cut -= 1
        if not cut:
            return
        self._put_string(KIND_PART, self.text, cut, self.offset)
        kept = self.text_size - cut
        memmove(self.text, self.text + cut, kept)
        self.text_size = kept
        self.parts += 1
        self.text_room = self._room()

    def _finish_text(self, int incomplete_reason):
        if self.state == BROKEN:
            return
        if incomplete_reason:
            self._flush_text()
            return
        if self.need:
            self._fail("utf8", D_NONE, self.offset, True)
            return
        self.state = IN_STRING
        self._put_string(KIND_VALUE, self.text, self.text_size, self.offset)
        if self.state != BROKEN:
            self.state = CLOSED

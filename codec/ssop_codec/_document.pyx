# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""A document that is being rebuilt from frames: its order, its header and end, strings that come in parts."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._fields cimport Field, next_field
from ssop_codec._frame cimport (
    KIND_CLOSE,
    KIND_PART,
    EndFields,
    Frame,
    HeaderFields,
    NodeFields,
    check_header,
    message_of,
    path_of,
    read_end,
    read_header,
    read_node,
    tokens_of,
)
from ssop_codec._table cimport FieldTable
from ssop_codec._tree cimport Tree

from .errors import FrameError


cdef class Document:
    """State of one document: its table, what is open, what was lost."""

    def __cinit__(self, limits):
        self.max_nodes = limits.max_nodes
        self.table = FieldTable(2 * limits.max_depth + 2)
        self.tree = Tree(self.table, limits.max_array_gap)
        self.next_seq = 1
        self.parts = []
        self.parts_of = ()

    @property
    def header(self):
        """What the first header frame says, or None."""
        return None if self.header_frame is None else self.header_frame.header

    @property
    def end(self):
        """What the END frame says, or None."""
        return None if self.end_frame is None else self.end_frame.end

    @property
    def result(self):
        """The document so far; not a copy."""
        return self.tree.result

    @property
    def text(self):
        """Of plain text what arrived so far, else an empty string."""
        if not self.is_text:
            return ""
        return self.tree.result if isinstance(self.tree.result, str) else "".join(self.parts)

    cdef bint follows(self, uint64_t seq) except -1:
        """Count what was lost before `seq`; False for a frame that was here before."""
        if seq < 1:
            raise FrameError("a document frame without a sequence number")
        if seq < self.next_seq:
            return False
        if self.end_frame is not None:
            raise FrameError("a frame after the end of its document")
        if seq >> 63:
            raise FrameError("a sequence number is out of range")
        if seq > self.next_seq:
            self.missing += seq - self.next_seq
            self.tree.has_gaps = True
        self.next_seq = seq + 1
        return True

    cdef int header_arrived(self, Frame frame) except -1:
        """Add the nodes of a header frame to the table."""
        cdef const uint8_t* at = message_of(frame)
        cdef const uint8_t* end = at + frame.message_size
        cdef HeaderFields header
        cdef NodeFields node
        cdef Field field
        read_header(at, end, &header)
        if self.header_frame is None:
            if header.wire_version != 1:
                if self.missing:
                    return check_header(frame)
                raise FrameError(f"wire version {header.wire_version} is not known")
            if header.node_count > self.max_nodes:
                raise FrameError("the field table is too large")
            self.header_frame = frame
            self.node_count = header.node_count
            self.tree.counts_once = header.has_hash
            self.is_text = header.is_text
        while at < end:
            next_field(&at, end, &field)
            if field.number != 6:
                continue
            key = read_node(&field, &node)
            if node.node != self.table.count:
                if self.missing:
                    return check_header(frame)
                raise FrameError("nodes of the field table out of order")
            if node.node >= self.node_count:
                raise FrameError("more nodes than the header says")
            if node.node and node.parent >= node.node:
                raise FrameError("a node stands before its parent")
            if node.ref > <int64_t>node.node:
                raise FrameError("a reference to a later node")
            self.table.add(node.parent, node.step, key, node.index, node.ref)
        return 0

    cdef int end_arrived(self, Frame frame) except -1:
        """Close the document."""
        cdef const uint8_t* at = message_of(frame)
        cdef EndFields end
        read_end(at, at + frame.message_size, &end)
        if end.frames != self.next_seq - 1:
            raise FrameError("the end counts other frames than were sent")
        self.end_frame = frame
        return 0

    cdef int field_arrived(self, Frame frame) except -1:
        """Take a VALUE, PART or CLOSE frame; 0 where lost frames make its place unknown, else 1."""
        if frame.node >= self.table.count:
            if not self.missing:
                raise FrameError("a frame of a node that is not in the table")
            path_of(frame)
            return 0
        frame.table = self.table
        if frame.kind == KIND_PART:
            _take_part(self, frame)
        elif frame.kind == KIND_CLOSE:
            self.tree.close(frame)
        elif frame.parts or self.parts:
            _take_last_part(self, frame)
        else:
            self.tree.put(frame, frame.value)
        return 1


cdef int _take_part(Document self, Frame frame) except -1:
    """Keep a part of a string until its last piece."""
    cdef tuple tokens = tokens_of(frame)
    if self.parts and self.parts_of != tokens:
        if not self.missing:
            raise FrameError("parts of two strings are mixed")
        self.parts.clear()
    self.parts_of = tokens
    self.parts.append(frame.value)
    return 0


cdef int _take_last_part(Document self, Frame frame) except -1:
    """Put a string together."""
    cdef list pieces = self.parts
    self.parts = []
    if frame.parts != <uint32_t>len(pieces) or self.parts_of != tokens_of(frame):
        if not self.missing:
            raise FrameError("a value and its parts do not match")
        return 0
    if not isinstance(frame.value, str):
        raise FrameError("parts of a value that is no string")
    pieces.append(frame.value)
    frame.whole = "".join(pieces)
    return self.tree.put(frame, frame.whole)

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A document that is being rebuilt from frames.

Values are put where their paths say, in the order of the frames; nothing that was closed is opened again, so that
of equal keys the last one wins.
"""

from libc.stdint cimport uint32_t, uint64_t

from .constants import FieldStep
from .errors import FrameError
from .wire import RefStep

cdef int PROPERTY = FieldStep.PROPERTY
cdef int PREFIX_ITEM = FieldStep.PREFIX_ITEM


cdef class Document:
    """State of one document: its table, what is open, what was lost."""

    def __cinit__(self, limits):
        self.max_nodes = limits.max_nodes
        self.max_tokens = 2 * limits.max_depth + 2
        self.max_array_gap = limits.max_array_gap
        self.next_seq = 1
        self.nodes = []
        self.chains = []
        self.far_chains = {}
        self.parts = []
        self.parts_of = ()
        self.containers = []
        self.tokens = []

    @property
    def text(self):
        """Of plain text what arrived so far, else an empty string."""
        if self.header is None or not self.header.is_text:
            return ""
        return self.result if isinstance(self.result, str) else "".join(self.parts)

    cdef bint follows(self, uint64_t seq) except -1:
        """Count what was lost before `seq`; False for a frame that was here before."""
        if seq < 1:
            raise FrameError("a document frame without a sequence number")
        if seq < self.next_seq:
            return False
        if self.end is not None:
            raise FrameError("a frame after the end of its document")
        if seq >> 63:
            raise FrameError("a sequence number is out of range")
        self.missing += seq - self.next_seq
        self.next_seq = seq + 1
        return True

    cdef int header_arrived(self, object header) except -1:
        """Add the nodes of a header frame to the table."""
        if self.header is None:
            if header.wire_version != 1:
                if self.missing:
                    return 0
                raise FrameError(f"wire version {header.wire_version} is not known")
            if header.node_count > self.max_nodes:
                raise FrameError("the field table is too large")
            self.header = header
            self.counts_once = bool(header.schema_hash)
        for node in header.nodes:
            if node.node != len(self.nodes):
                if self.missing:
                    return 0
                raise FrameError("nodes of the field table out of order")
            if node.node >= self.header.node_count:
                raise FrameError("more nodes than the header says")
            if node.node and node.parent >= node.node:
                raise FrameError("a node stands before its parent")
            if node.ref_node is not None and node.ref_node > node.node:
                raise FrameError("a reference to a later node")
            self.nodes.append(node)
            self.chains.append(None)
        return 0

    cdef int end_arrived(self, object end) except -1:
        """Close the document."""
        if end.frames != self.next_seq - 1:
            raise FrameError("the end counts other frames than were sent")
        self.end = end
        return 0

    cdef tuple resolve(self, uint32_t node, list steps):
        """The path as keys and indexes; None where lost frames make it unknown."""
        cdef tuple chain
        cdef list tokens
        cdef Py_ssize_t position
        cdef Py_ssize_t first = 0
        cdef uint32_t start = 0
        if node >= <uint32_t>len(self.nodes):
            if self.missing:
                return None
            raise FrameError("a frame of a node that is not in the table")
        if steps is None:
            chain = self._chain(0, node)
            if None in chain:
                raise FrameError("a path lacks steps")
            return chain
        tokens = []
        for position in range(len(steps)):
            step = steps[position]
            if type(step) is not RefStep:
                continue
            if step >= len(self.nodes):
                raise FrameError("a step follows a node that is not in the table")
            target = self.nodes[step].ref_node
            if target is None:
                raise FrameError("a step follows a node that is no reference")
            self._fill(tokens, self._chain(start, step), steps, first, position, False)
            start = target
            first = position + 1
        self._fill(tokens, self._chain(start, node), steps, first, len(steps), True)
        if <uint32_t>len(tokens) > self.max_tokens:
            raise FrameError("a path is too deep")
        return tuple(tokens)

    cdef tuple _chain(self, uint32_t start, uint32_t node):
        """Tokens from `start` down to `node`; None where a step says it."""
        known = self.chains[node] if start == 0 else self.far_chains.get((start, node))
        if known is not None:
            return known
        cdef list tokens = []
        cdef uint32_t at = node
        while at != start:
            if at == 0:
                raise FrameError("a node outside the subtree of the reference")
            entry = self.nodes[at]
            if entry.step == PROPERTY:
                tokens.append(entry.key)
            elif entry.step == PREFIX_ITEM:
                tokens.append(entry.index)
            else:
                tokens.append(None)
            at = entry.parent
        tokens.reverse()
        chain = tuple(tokens)
        if start == 0:
            self.chains[node] = chain
        else:
            self.far_chains[start, node] = chain
        return chain

    cdef int _fill(
        self, list out, tuple chain, list steps, Py_ssize_t first, Py_ssize_t last, bint is_last
    ) except -1:
        """Append the tokens of a chain, those without a name from steps[first:last]."""
        for token in chain:
            if token is None:
                if first == last:
                    raise FrameError("a path lacks steps")
                out.append(steps[first])
                first += 1
            else:
                out.append(token)
        if is_last:
            while first < last:
                out.append(steps[first])
                first += 1
        elif first != last:
            raise FrameError("a path has steps that its nodes do not take")
        return 0

    cdef int part_arrived(self, tuple tokens, object piece) except -1:
        """Keep a part of a string until its last piece."""
        if self.parts and self.parts_of != tokens:
            if not self.missing:
                raise FrameError("parts of two strings are mixed")
            self.parts.clear()
        self.parts_of = tokens
        self.parts.append(piece)
        return 0

    cdef dict value_arrived(self, tuple tokens, object value, uint32_t parts):
        """Put a scalar into the document; returns the delta, or None where it is empty."""
        cdef list pieces
        cdef Py_ssize_t depth = len(tokens)
        if parts or self.parts:
            pieces = self.parts
            self.parts = []
            if parts != <uint32_t>len(pieces) or self.parts_of != tokens:
                if not self.missing:
                    raise FrameError("a value and its parts do not match")
                return None
            if not isinstance(value, str):
                raise FrameError("parts of a value that is no string")
            pieces.append(value)
            value = "".join(pieces)
        if depth == 0:
            self.result = value
            self.containers.clear()
            self.tokens.clear()
            return None
        token = tokens[depth - 1]
        self._put(self._container(tokens), token, value)
        if depth == 1 and isinstance(token, str):
            return {token: value}
        return None

    cdef dict close_arrived(self, tuple tokens, uint64_t size, bint is_array):
        """Close a container; returns the delta, or None where it is empty."""
        cdef Py_ssize_t depth = len(tokens)
        cdef Py_ssize_t i
        cdef bint is_open = len(self.containers) > depth
        if is_open:
            for i in range(depth):
                if self.tokens[i] != tokens[i]:
                    is_open = False
                    break
        if is_open:
            container = self.containers[depth]
            if isinstance(container, list) != is_array:
                raise FrameError("an object is closed as an array, or the reverse")
        else:
            container = [] if is_array else {}
            if depth:
                self._put(self._container(tokens), tokens[depth - 1], container)
            else:
                self.result = container
        if (is_array or self.counts_once) and not self.missing and <uint64_t>len(container) != size:
            raise FrameError("a container is closed with another size than it has")
        del self.containers[depth:]
        del self.tokens[depth - 1 if depth else 0 :]
        if depth == 1:
            token = tokens[0]
            if isinstance(token, str):
                return {token: container}
        return None

    cdef object _container(self, tuple tokens):
        """The open container that holds the last token; opened where it is not."""
        cdef Py_ssize_t depth = len(tokens) - 1
        cdef Py_ssize_t common = 0
        cdef Py_ssize_t known = len(self.tokens)
        if not self.containers:
            self.result = {} if isinstance(tokens[0], str) else []
            self.containers.append(self.result)
        while common < known and common < depth and self.tokens[common] == tokens[common]:
            common += 1
        if common < known:
            del self.containers[common + 1 :]
            del self.tokens[common:]
        while common < depth:
            inner = {} if isinstance(tokens[common + 1], str) else []
            self._put(self.containers[common], tokens[common], inner)
            self.containers.append(inner)
            self.tokens.append(tokens[common])
            common += 1
        return self.containers[depth]

    cdef int _put(self, object container, object token, object value) except -1:
        cdef Py_ssize_t gap
        if isinstance(container, dict):
            if not isinstance(token, str):
                raise FrameError("an index into an object")
            (<dict>container)[token] = value
            return 0
        if isinstance(token, str):
            raise FrameError("a key of an array")
        gap = <Py_ssize_t>token - len(<list>container)
        if gap > 0:
            if not self.missing or gap > self.max_array_gap:
                raise FrameError("an array leaves out items")
            self.max_array_gap -= gap
            container.extend([None] * gap)
        if gap < 0:
            raise FrameError("an item of an array comes twice")
        (<list>container).append(value)
        return 0

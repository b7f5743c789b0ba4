"""A document that is being rebuilt from frames."""

from __future__ import annotations

from typing import Any

from .constants import FieldStep, FieldType
from .errors import FrameError
from .frames import End, Header
from .limits import Limits
from .rules import FieldNode
from .wire import RefStep

Token = int | str
_MISSING = object()


class Document:
    """State of one document: its table, what is open, what was lost."""

    def __init__(self, limits: Limits) -> None:
        self.header: Header | None = None
        self.end: End | None = None
        self.result: Any = None
        self.missing = 0
        self._limits = limits
        self._nodes: list[FieldNode] = []
        self._chains: dict[tuple[int, int], tuple[Token | None, ...]] = {}
        self._next_seq = 1
        self._parts: list[str] = []
        self._parts_of: tuple[Token, ...] = ()
        # _open[i] is the container at the path _tokens[:i]; only these may still grow.
        self._open: list[dict[str, Any] | list[Any]] = []
        self._tokens: list[Token] = []

    @property
    def text(self) -> str:
        """Of plain text what arrived so far, else an empty string."""
        if self.header is None or not self.header.is_text:
            return ""
        return self.result if isinstance(self.result, str) else "".join(self._parts)

    def follows(self, seq: int) -> bool:
        """Count what was lost before `seq`; False for a frame that was here before."""
        if seq < 1:
            raise FrameError("a document frame without a sequence number")
        if seq < self._next_seq:
            return False
        if self.end is not None:
            raise FrameError("a frame after the end of its document")
        self.missing += seq - self._next_seq
        self._next_seq = seq + 1
        return True

    def header_arrived(self, header: Header) -> None:
        """Add the nodes of a header frame to the table."""
        if self.header is None:
            if header.wire_version != 1:
                raise FrameError(f"wire version {header.wire_version} is not known")
            if header.node_count > self._limits.max_nodes:
                raise FrameError("the field table is too large")
            self.header = header
        for node in header.nodes:
            if node.node != len(self._nodes):
                if self.missing:
                    return
                raise FrameError("nodes of the field table out of order")
            if node.node >= self.header.node_count:
                raise FrameError("more nodes than the header says")
            if node.node and node.parent >= node.node:
                raise FrameError("a node stands before its parent")
            if node.ref_node is not None and node.ref_node > node.node:
                raise FrameError("a reference to a later node")
            self._nodes.append(node)

    def end_arrived(self, end: End) -> None:
        """Close the document."""
        if end.frames != self._next_seq - 1:
            raise FrameError("the end counts other frames than were sent")
        self.end = end

    def resolve(self, node: int, steps: list[Token | RefStep] | None) -> tuple[Token, ...] | None:
        """The path as keys and indexes; None where lost frames make it unknown."""
        if node >= len(self._nodes):
            if self.missing:
                return None
            raise FrameError("a frame of a node that is not in the table")
        if not steps:
            chain = self._chain(0, node)
            if None in chain:
                raise FrameError("a path lacks steps")
            return chain  # type: ignore[return-value]
        tokens: list[Token] = []
        start = 0
        at = 0
        for position, step in enumerate(steps):
            if not isinstance(step, RefStep):
                continue
            if step >= len(self._nodes):
                raise FrameError("a step follows a node that is not in the table")
            target = self._nodes[step].ref_node
            if target is None:
                raise FrameError("a step follows a node that is no reference")
            self._fill(tokens, self._chain(start, int(step)), steps[at:position], is_last=False)
            start = target
            at = position + 1
        self._fill(tokens, self._chain(start, node), steps[at:], is_last=True)
        if len(tokens) > 2 * self._limits.max_depth + 2:
            raise FrameError("a path is too deep")
        return tuple(tokens)

    def _chain(self, start: int, node: int) -> tuple[Token | None, ...]:
        """Tokens from `start` down to `node`; None where a step says it."""
        known = self._chains.get((start, node))
        if known is not None:
            return known
        tokens: list[Token | None] = []
        at = node
        while at != start:
            if at == 0:
                raise FrameError("a node outside the subtree of the reference")
            entry = self._nodes[at]
            if entry.step == FieldStep.PROPERTY:
                tokens.append(entry.key)
            elif entry.step == FieldStep.PREFIX_ITEM:
                tokens.append(entry.index)
            else:
                tokens.append(None)
            at = entry.parent
        chain = self._chains[start, node] = tuple(reversed(tokens))
        return chain

    @staticmethod
    def _fill(
        tokens: list[Token],
        chain: tuple[Token | None, ...],
        steps: list[Token | RefStep],
        *,
        is_last: bool,
    ) -> None:
        used = 0
        for token in chain:
            if token is None:
                if used == len(steps):
                    raise FrameError("a path lacks steps")
                tokens.append(steps[used])
                used += 1
            else:
                tokens.append(token)
        if is_last:
            tokens.extend(steps[used:])
        elif used != len(steps):
            raise FrameError("a path has steps that its nodes do not take")

    def part_arrived(self, tokens: tuple[Token, ...], piece: str) -> None:
        """Keep a part of a string until its last piece."""
        if self._parts and self._parts_of != tokens:
            if not self.missing:
                raise FrameError("parts of two strings are mixed")
            self._parts.clear()
        self._parts_of = tokens
        self._parts.append(piece)

    def value_arrived(self, tokens: tuple[Token, ...], value: Any, parts: int) -> dict[str, Any]:
        """Put a scalar into the document; returns the delta."""
        pieces, self._parts = self._parts, []
        if parts or pieces:
            if parts != len(pieces) or self._parts_of != tokens:
                if not self.missing:
                    raise FrameError("a value and its parts do not match")
                return {}
            if not isinstance(value, str):
                raise FrameError("parts of a value that is no string")
            value = "".join((*pieces, value))
        if not tokens:
            self.result = value
            self._open.clear()
            self._tokens.clear()
            return {}
        self._put(self._container(tokens), tokens[-1], value)
        return self._delta(tokens, value)

    def close_arrived(self, tokens: tuple[Token, ...], size: int, is_array: bool) -> dict[str, Any]:
        """Close a container; returns the delta."""
        depth = len(tokens)
        container: dict[str, Any] | list[Any]
        if len(self._open) > depth and tuple(self._tokens[:depth]) == tokens:
            container = self._open[depth]
            if isinstance(container, list) != is_array:
                raise FrameError("an object is closed as an array, or the reverse")
        else:
            container = [] if is_array else {}
            if depth:
                self._put(self._container(tokens), tokens[-1], container)
            else:
                self.result = container
        counts_once = is_array or (self.header is not None and self.header.schema_hash)
        if counts_once and not self.missing and len(container) != size:
            raise FrameError("a container is closed with another size than it has")
        del self._open[depth:]
        del self._tokens[max(0, depth - 1) :]
        return self._delta(tokens, container)

    def _delta(self, tokens: tuple[Token, ...], value: Any) -> dict[str, Any]:
        if len(tokens) == 1 and isinstance(tokens[0], str):
            return {tokens[0]: value}
        return {}

    def _container(self, tokens: tuple[Token, ...]) -> dict[str, Any] | list[Any]:
        """The open container that holds the last token; opened where it is not."""
        depth = len(tokens) - 1
        if not self._open:
            root: dict[str, Any] | list[Any] = {} if isinstance(tokens[0], str) else []
            self._open.append(root)
            self.result = root
        common = 0
        open_tokens = self._tokens
        limit = min(len(open_tokens), depth)
        while common < limit and open_tokens[common] == tokens[common]:
            common += 1
        del self._open[common + 1 :]
        del open_tokens[common:]
        for position in range(common, depth):
            inner: dict[str, Any] | list[Any] = {} if isinstance(tokens[position + 1], str) else []
            self._put(self._open[position], tokens[position], inner)
            self._open.append(inner)
            open_tokens.append(tokens[position])
        return self._open[depth]

    def _put(self, container: dict[str, Any] | list[Any], token: Token, value: Any) -> None:
        if isinstance(container, dict):
            if not isinstance(token, str):
                raise FrameError("an index into an object")
            container[token] = value
            return
        if isinstance(token, str):
            raise FrameError("a key of an array")
        gap = token - len(container)
        if gap > 0:
            if not self.missing or gap > self._limits.max_array_gap:
                raise FrameError("an array leaves out items")
            container.extend([None] * gap)
        if gap < 0:
            raise FrameError("an item of an array comes twice")
        container.append(value)


__all__ = ["Document", "FieldType"]

"""How a model is held to a schema: the grammar and the mode that is announced for it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ssop.v1 import mesh_pb2
from ssop_inference.core.grammar_size import MAX_STATES, cap_items, count_states
from ssop_inference.core.limits import EngineLimits, add_limits
from ssop_inference.core.relaxation import Relaxation, read_refusal, relax

Gate = Callable[[str], str]
"""Says whether the engine can compile a schema (JSON text): "" when it can, else why not."""

MAX_RELAXATIONS: Final = 16
# Blanks between tokens are where small models run away, so there is one fixed form.
_GUIDANCE: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Mode(IntEnum):
    """How strictly the backend is held; the same numbers as `ssop.v1.ConstraintMode`."""

    TEXT = mesh_pb2.CONSTRAINT_MODE_UNSPECIFIED
    FULL = mesh_pb2.CONSTRAINT_MODE_FULL
    RELAXED = mesh_pb2.CONSTRAINT_MODE_RELAXED
    ENVELOPE = mesh_pb2.CONSTRAINT_MODE_ENVELOPE


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a backend is given. `schema` is what it is told of the schema, None where it is told nothing."""

    mode: Mode
    schema: Any = None
    grammar: str | None = None
    engine_limits: tuple[str, ...] = ()
    detail: str = ""


TEXT: Final = Constraint(Mode.TEXT)
LOST: Final = Constraint(Mode.ENVELOPE, detail="the engine let go of the schema's grammar while it generated")
"""What takes the place of a constraint that the engine announced and did not keep."""

_COUNTED: Final = Relaxation(frozenset({"multipleOf"}))
# What no grammar lets through. A relaxed one may lack the types, as that of `false` does.
_HELD_RULES: Final = {Mode.FULL: frozenset({"syntax", "type"}), Mode.RELAXED: frozenset({"syntax"})}


def is_lost(mode: Mode, violated_rule: str) -> bool:
    """Whether a violation proves that the engine no longer held the model to the grammar."""
    return violated_rule in _HELD_RULES.get(mode, ())


def choose_constraint(schema: Any, gate: Gate, limits: EngineLimits, *, format_assertion: bool = True) -> Constraint:
    """The strictest mode that the engine can keep.

    FULL where it compiles the schema, with limits if it takes them; RELAXED where it compiles the schema without
    the keywords that it names as missing; else ENVELOPE. `detail` says why it is not FULL.
    """
    target = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    if not format_assertion:
        target = relax(target, Relaxation(frozenset({"format"})))
    target, capped = cap_items(target)
    left_out: list[str] = []
    if count_states(target) > MAX_STATES:
        target = relax(target, _COUNTED)
        left_out.append(f"{_COUNTED} of this size")
        if count_states(target) > MAX_STATES:
            return Constraint(Mode.ENVELOPE, detail="the engine can't count so many items")
    for _ in range(MAX_RELAXATIONS + 1):
        mode = Mode.RELAXED if left_out else Mode.FULL
        detail = f"the engine lacks: {', '.join(left_out)}" if left_out else ""
        limited, added = add_limits(target, limits)
        if not (refusal := gate(grammar_schema(limited))):
            return _held(mode, limited, (*capped, *added), detail)
        if not (plain_refusal := gate(grammar_schema(target))):
            # The limits themselves are what can't be compiled; max_output_tokens then bounds the answer alone.
            return _held(mode, target, capped, detail)
        refusal = plain_refusal
        relaxation = read_refusal(refusal)
        if relaxation is None or (weaker := relax(target, relaxation)) == target:
            break
        left_out.append(str(relaxation))
        target = weaker
    return Constraint(Mode.ENVELOPE, detail=f"the engine can't compile the schema: {refusal}"[:500])


def grammar_schema(schema: Any) -> str:
    """The schema as the engine reads it, with the fixed form of blanks."""
    return json.dumps({**schema, "x-guidance": _GUIDANCE}, ensure_ascii=False, separators=(",", ":"))


def _held(mode: Mode, schema: Any, added: tuple[str, ...], detail: str) -> Constraint:
    grammar = "%llguidance {}\nstart: %json " + grammar_schema(schema)
    return Constraint(mode, schema, grammar, added, detail)

"""Rules as data: which posts concern people, one by one, by their pace or in a row. Pure."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record

Severity = Literal["info", "warning", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
ENTITY: Final = "main_entity"
EVENT: Final = "event_type"
MAX_LABEL_CHARACTERS: Final = 64
CANNED_LEVEL: Final = 3
"""A canned document (DESIGN section 7) says nothing of the post: no rule takes it."""
_METADATA: Final = ("region", "product_line", "channel", "source")
_NUMERIC: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_Scalar = StrictBool | StrictInt | StrictFloat | StrictStr


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a post: its metadata and the fields that have arrived. `received_ms` is in Unix milliseconds.

    `is_valid` is False for an answer that was refused, cut or failed: its fields hold nothing.
    """

    key: str
    tenant: str
    values: Mapping[str, Any]
    received_ms: int
    is_final: bool = False
    is_valid: bool = True
    degraded_level: int = 0

    def label(self, name: str) -> str:
        """A value as a short text; empty where it is none. Half a surrogate pair becomes a question mark."""
        found = self.values.get(name, "")
        if not isinstance(found, str):
            return ""
        text = found[:MAX_LABEL_CHARACTERS]
        return text if text.isascii() else text.encode("utf-8", "replace").decode()


def facts_of_fields(post: Post, fields: Mapping[str, Any]) -> Facts:
    """The facts of a post whose answer is still arriving."""
    return Facts(post.key, post.tenant, {**fields, **_metadata(post)}, post.received_ms)


def facts_of_record(record: Record) -> Facts:
    """The final facts of a post."""
    found, post = record.analysis, record.post
    return Facts(
        post.key,
        post.tenant,
        {**found.fields, **_metadata(post)},
        post.received_ms,
        is_final=True,
        is_valid=found.verdict == "ok",
        degraded_level=found.degraded_level,
    )


def _metadata(post: Post) -> dict[str, str]:
    return {
        "region": post.region, "product_line": post.product_line, "channel": post.channel, "source": post.source,
    }  # fmt: skip


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Condition(_Data):
    """One comparison of a field of the answer, or of `region`, `product_line`, `channel` or `source`."""

    field: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", description="The field's name.")
    op: Literal["=", "!=", "<", "<=", ">", ">=", "in"] = Field("=", description="The comparison.")
    value: _Scalar | tuple[_Scalar, ...] = Field(description="What to compare with; a list for `in`.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.op == "in") != isinstance(self.value, tuple):
            raise ValueError("`in` takes a list, the other comparisons a single value")
        if self.op in _NUMERIC and (isinstance(self.value, (bool, str, tuple))):
            raise ValueError(f"{self.op} compares numbers")
        return self

    def holds(self, found: Any) -> bool:
        """Whether a value that is there fits. Texts are compared without case; values of different kinds never fit."""
        if isinstance(self.value, tuple):
            return any(_equals(found, one) for one in self.value)
        if self.op == "=":
            return _equals(found, self.value)
        if self.op == "!=":
            return not _equals(found, self.value)
        if isinstance(found, bool) or not isinstance(found, int | float) or isinstance(self.value, str):
            return False
        return _NUMERIC[self.op](found, self.value)


def _equals(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str):
        return found.casefold() == wanted.casefold()
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return bool(found == wanted)


class Rule(_Data):
    """When an alert is due. A `threshold` is crossed by each post that fits; a `velocity` by `count` posts of a group
    that fit within `within_s`; a `sequence` by `count` posts of a group that fit with none between that does not.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]{1,64}$", description="Names the rule in alerts.")
    kind: Literal["threshold", "velocity", "sequence"] = Field("threshold", description="What crosses it.")
    severity: Severity = Field("warning", description="Of its alerts.")
    when: tuple[Condition, ...] = Field(min_length=1, max_length=16, description="All must hold for a post to fit.")
    entities: tuple[str, ...] = Field((), description="Only posts about these; none named: about any.")
    regions: tuple[str, ...] = Field((), description="Only posts from these regions.")
    product_lines: tuple[str, ...] = Field((), description="Only posts about these product lines.")
    count: int = Field(1, ge=1, le=1_000, description="Posts that cross a velocity or a sequence.")
    within_s: int = Field(0, ge=0, le=86_400, description="Time in which they come; 0 for a sequence without limit.")
    per: Literal["entity", "event"] = Field(
        "entity",
        description="What a group of posts of a velocity or a sequence shares: the entity, or entity and event type.",
    )
    takes_degraded: bool = Field(True, description="Whether degraded answers count; alerts say how many did.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "threshold" and (self.count != 1 or self.within_s):
            raise ValueError("a threshold is crossed by one post: it has no `count` and no `within_s`")
        if self.kind != "threshold" and self.count < 2:
            raise ValueError(f"a {self.kind} needs a `count` of at least 2")
        if self.kind == "velocity" and not self.within_s:
            raise ValueError("a velocity needs `within_s`")
        return self

    @property
    def needed(self) -> frozenset[str]:
        """Fields of the answer without which nothing can be said yet."""
        return frozenset({one.field for one in self.when} | {ENTITY, EVENT}) - frozenset(_METADATA)

    def fits(self, facts: Facts) -> bool | None:
        """Whether a post fits; None while fields that decide have not arrived."""
        values = facts.values
        if not facts.is_final and (
            ENTITY not in values or EVENT not in values or any(one.field not in values for one in self.when)
        ):
            return None
        if not facts.is_valid or facts.degraded_level >= CANNED_LEVEL:
            return False
        if facts.degraded_level and not self.takes_degraded:
            return False
        for one in self.when:
            if one.field not in values or not one.holds(values[one.field]):
                return False
        return self.is_scoped(facts)

    def group(self, facts: Facts) -> str:
        """The group that a post belongs to."""
        entity = fold(facts.label(ENTITY))
        # Alerts are told apart by entity and event, and each post that crosses a threshold is one.
        is_by_event = self.per == "event" or self.kind == "threshold"
        return f"{entity}\n{fold(facts.label(EVENT))}" if is_by_event else entity

    def is_scoped(self, facts: Facts) -> bool:
        """Whether a sequence regards the post at all: one of another region breaks no row."""
        return (
            (not self.entities or fold(facts.label(ENTITY)) in _folded(self.entities))
            and (not self.regions or fold(facts.label("region")) in _folded(self.regions))
            and (not self.product_lines or fold(facts.label("product_line")) in _folded(self.product_lines))
        )


@lru_cache(1_024)
def _folded(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(fold, names))


def fold(text: str) -> str:
    """A name as it is compared: without case and without space that nobody sees."""
    return " ".join(text.casefold().split())


DEFAULT_RULES: Final = (
    Rule(
        name="grave",
        severity="critical",
        when=(
            Condition(field="severity", op=">=", value=4),
            Condition(field="sentiment_score", op="<=", value=-3),
        ),
    ),
    Rule(
        name="pace",
        kind="velocity",
        when=(Condition(field="sentiment_label", value="negative"),),
        count=5,
        within_s=600,
    ),
    Rule(
        name="row",
        kind="sequence",
        when=(Condition(field="sentiment_score", op="<", value=-3.5),),
        count=3,
    ),
)
"""For tenants that have none of their own."""

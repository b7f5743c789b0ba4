"""What a tenant says about its alerts: rules, routes, quiet hours, escalation, and the bounds of a storm. Pure."""

from collections.abc import Iterator
from datetime import datetime, time, timedelta, tzinfo
from typing import Annotated, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ssop_opinion.core.rules import DEFAULT_RULES, SEVERITIES, Rule, Severity, fold

EventKind = Literal["opened", "confirmed", "corrected", "withdrawn", "raised", "grown", "escalated", "expired", "storm"]
"""What happened to an alert. `confirmed` and `expired` change nothing for those who were told, and `grown` little."""
TOLD: Final[tuple[EventKind, ...]] = ("opened", "corrected", "withdrawn", "raised", "grown", "escalated", "storm")


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"there is no time zone {name}") from error
    return name


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class QuietHours(_Data):
    """Hours in which only alerts of a severity are told at once. Others wait for their end. They may span midnight."""

    begin: time = Field(alias="from", description="First minute, as `22:00`, in the time zone.")
    until: time = Field(description="First minute after them.")
    time_zone: Annotated[str, AfterValidator(_zone)] = Field("UTC", description="As `Asia/Shanghai`.")
    days: tuple[Annotated[int, Field(ge=0, le=6)], ...] = Field(
        (0, 1, 2, 3, 4, 5, 6), min_length=1, description="Weekdays on which they begin; 0 is Monday."
    )
    lets_through: Severity = Field("critical", description="The least severity that is told at once.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.begin == self.until:
            raise ValueError("quiet hours that begin and end at the same minute have no length")
        if self.begin.tzinfo or self.until.tzinfo:
            raise ValueError("the time zone of quiet hours is `time_zone`")
        return self

    def end_ms(self, severity: Severity, now_ms: int) -> int:
        """When a message of the severity may be sent, Unix milliseconds: now, or the end of the quiet hours."""
        if SEVERITIES.index(severity) >= SEVERITIES.index(self.lets_through):
            return now_ms
        zone = ZoneInfo(self.time_zone)
        now = datetime.fromtimestamp(now_ms / 1_000, zone)
        for begin, end in self._spans(now, zone):
            if begin <= now_ms < end:
                return end
        return now_ms

    def _spans(self, now: datetime, zone: tzinfo) -> Iterator[tuple[int, int]]:
        # Yesterday's may still last; each end is made from its own date, so that clocks that change are followed.
        for back in (1, 0):
            day = now.date() - timedelta(days=back)
            if day.weekday() not in self.days:
                continue
            last = day + timedelta(days=1) if self.until <= self.begin else day
            begin = datetime.combine(day, self.begin, zone)
            end = datetime.combine(last, self.until, zone)
            yield round(begin.timestamp() * 1_000), round(end.timestamp() * 1_000)


class Route(_Data):
    """Who is told of which alerts. A channel is one of the settings' `opinion.channels`, named here."""

    channel: str = Field(pattern=r"^[a-z0-9_-]{1,64}$", description="Name of a channel.")
    least: Severity = Field("info", description="The least severity.")
    regions: tuple[str, ...] = Field((), description="Only alerts from these regions; none named: from any.")
    product_lines: tuple[str, ...] = Field((), description="Only alerts about these product lines.")
    events: tuple[EventKind, ...] = Field(TOLD, min_length=1, description="What is told of an alert.")
    is_escalation: bool = Field(False, description="Is told of escalations, and of what follows on them, alone.")

    def takes(self, severity: Severity, place: tuple[str, str] | None, event: EventKind, escalations: int) -> bool:
        """Whether the channel is told of an event. `place` is region and product line; None is everywhere."""
        return (
            event in self.events
            and SEVERITIES.index(severity) >= SEVERITIES.index(self.least)
            and (place is None or _is_among(self.regions, place[0]))
            and (place is None or _is_among(self.product_lines, place[1]))
            and (not self.is_escalation or escalations > 0)
        )


def _is_among(names: tuple[str, ...], found: str) -> bool:
    return not names or fold(found) in map(fold, names)


class AlertPolicy(_Data):
    """The table `alerts` of a tenant's file."""

    policy: str = Field("default", pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Names it in comparisons.")
    rules: tuple[Rule, ...] = Field(DEFAULT_RULES, max_length=64, description="When an alert is due.")
    routes: tuple[Route, ...] = Field((), max_length=32, description="Who is told. None: the page alone shows alerts.")
    quiet: QuietHours | None = Field(None, description="Hours in which only the gravest are told at once.")
    dedup_s: int = Field(
        3_600, ge=1, le=604_800, description="Posts about the entity and event of an alert join it for so long."
    )
    escalate_after_s: dict[Severity, Annotated[int, Field(ge=10)]] = Field(
        default={"critical": 900}, description="By severity: an alert that nobody acknowledged is told again."
    )
    max_escalations: int = Field(2, ge=0, le=10, description="Times that it is told again.")
    expires_after_s: int = Field(86_400, ge=60, le=2_592_000, description="An alert without new posts is over.")
    storm_alerts: int = Field(20, ge=1, le=1_000, description="New alerts of one severity within `storm_s`.")
    storm_s: int = Field(600, ge=10, le=86_400, description="More than that are counted in one summary.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rules are named {twice[0]}")
        if self.expires_after_s < self.dedup_s:
            raise ValueError("an alert can't be over (`expires_after_s`) while posts still join it (`dedup_s`)")
        return self

    def due_ms(self, severity: Severity, now_ms: int) -> int:
        """When something of the severity may be told."""
        return now_ms if self.quiet is None else self.quiet.end_ms(severity, now_ms)

"""When a profile of the settings holds: from one moment to another, or at a time of day. Pure; the time is passed in.

`from` and `until` are both ISO 8601 moments with an offset (`2026-12-24T18:00:00+01:00`), or both times of day
(`18:00`) in `time_zone`, on the `days` that are named. A time of day that is not before its end crosses midnight, and
belongs to the day on which it begins. In the hour that a time zone skips or repeats, its wall clock decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Final, Generic, Literal, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, model_validator

from ssop_chassis.settings import Settings

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_DAYS: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Schedule(Protocol):
    """When something holds."""

    def holds(self, now_ms: int) -> bool:
        """Whether it holds at a moment, in milliseconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """From one moment to another."""

    begin: datetime
    end: datetime

    def holds(self, now_ms: int) -> bool:
        """See Schedule."""
        return self.begin <= datetime.fromtimestamp(now_ms / 1000, UTC) < self.end


@dataclass(frozen=True, slots=True)
class Daily:
    """From one time of day to another, in a time zone, on days that are numbered from Monday, 0."""

    begin: time
    end: time
    zone: ZoneInfo
    days: frozenset[int]

    def holds(self, now_ms: int) -> bool:
        """See Schedule."""
        local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(self.zone)
        clock, yesterday = local.time(), (local.weekday() - 1) % len(_DAYS)
        if self.begin < self.end:
            return self.begin <= clock < self.end and local.weekday() in self.days
        if clock >= self.begin:
            return local.weekday() in self.days
        return clock < self.end and yesterday in self.days


class ProfileSettings(Settings):
    """Base of a `[[<section>.profiles]]` table: settings that hold for some time instead of the section's own."""

    name: str = Field("", max_length=64, description="Its name, in logs and metrics.")
    starts: str = Field(alias="from", description="ISO moment with an offset, or a time of day as `18:00`.")
    until: str = Field(description="As `from`; not included.")
    time_zone: str = Field("UTC", description="Time zone of times of day, as `Europe/Berlin`.")
    days: list[Day] = Field(default=[], description="Days on which a time of day begins; none: all.")

    @model_validator(mode="after")
    def _check(self) -> "ProfileSettings":
        self.schedule()
        return self

    def schedule(self) -> Schedule:
        """When it holds. Raises ValueError."""
        begin, end = _moment(self.starts), _moment(self.until)
        try:
            zone = ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"no time zone '{self.time_zone}'") from error
        if isinstance(begin, datetime) and isinstance(end, datetime):
            if begin >= end:
                raise ValueError("'until' must come after 'from'")
            return Span(begin, end)
        if isinstance(begin, time) and isinstance(end, time):
            return Daily(begin, end, zone, frozenset(_DAYS.index(day) for day in self.days or _DAYS))
        raise ValueError("'from' and 'until' must both be moments, or both times of day")


def _moment(text: str) -> datetime | time:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        clock = None
    if clock is not None:
        if clock.tzinfo is not None:
            raise ValueError(f"'{text}': a time of day has no offset; name its time_zone")
        return clock
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is neither an ISO moment nor a time of day") from error
    if moment.tzinfo is None:
        raise ValueError(f"'{text}' has no offset, such as +01:00")
    return moment


P = TypeVar("P", bound=ProfileSettings)


class Profiles(Generic[P]):
    """The profiles of a section, in their order."""

    def __init__(self, profiles: Sequence[P]) -> None:
        self._profiles = [(profile.schedule(), profile) for profile in profiles]

    def find(self, now_ms: int) -> P | None:
        """The first that holds at a moment, in milliseconds since the epoch."""
        return next((profile for schedule, profile in self._profiles if schedule.holds(now_ms)), None)

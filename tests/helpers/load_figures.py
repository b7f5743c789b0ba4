"""What a load was asked to be and what became of it: orders, results, and the arithmetic on them. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Client = Literal["native", "grpc", "http"]
FLAT: Final = 2.0
"""The dearest rate may cost so many times the cheapest."""
SATURATED_SHARE: Final = 0.97
"""Less of a rate than this within the window, and its latencies are those of a queue that grows."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """One load. `rate` 0: a closed loop of `width` requests at a time; else requests are begun when they are due.

    What is begun within `seconds` after `warm_s` counts; with a `count` that many requests end it earlier. `pids` are
    the processes whose CPU and memory are read meanwhile. `sample_s`: how often memory is read; 0: never.
    `max_in_flight` requests without an answer show an open loop to be saturated.
    """

    client: Client
    targets: Sequence[str]
    key: str = ""
    pids: Mapping[str, int] = field(default_factory=dict)
    frames: int = 12
    width: int = 64
    rate: float = 0.0
    seconds: float = 5.0
    warm_s: float = 1.0
    count: int = 0
    connections: int = 4
    sample_s: float = 0.0
    max_in_flight: int = 256
    ca_file: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the command line."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What became of it. `cpu_us` is CPU for each request by process, `client_share` the part of a core that the
    generator used, `late_p99_ms` what it was late with; `busy_share`, `others_share` and `steal_share` are parts of all
    cores. `faults` are counted by kind, and so are the `flaws` of those answers that were read whole."""

    rate: float
    done: int
    faults: dict[str, int]
    checked: int
    flaws: dict[str, int]
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    first_p50_ms: float
    late_p99_ms: float
    messages: float
    answer_bytes: float
    cpu_us: dict[str, float]
    client_share: float
    busy_share: float
    others_share: float
    steal_share: float
    is_saturated: bool
    samples: list[tuple[int, dict[str, int]]] = field(default_factory=list)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "LoadResult":
        """As the generator printed it."""
        samples = [(int(done), dict(rss)) for done, rss in found["samples"]]
        return cls(**{**found, "samples": samples})

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    @property
    def failed(self) -> int:
        """Requests without a whole answer."""
        return sum(self.faults.values())

    @property
    def total_cpu_us(self) -> float:
        """CPU for each request, generator included."""
        return sum(self.cpu_us.values())


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that `share` of the values are not above (nearest rank); 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def is_saturated(asked: float, done_rate: float) -> bool:
    """Whether an open loop asked for more than was done. A closed loop (`asked` 0) asks for no rate."""
    return asked > 0 and done_rate < SATURATED_SHARE * asked


def others_share(busy_share: float, measured_s: float, window_s: float, cores: int) -> float:
    """The part of all cores that went to processes that were not measured, the kernel's among them."""
    return max(0.0, busy_share - measured_s / max(window_s * cores, 1e-9))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line of least squares; 0 where the points have no breadth."""
    count = len(points)
    if count < 2:
        return 0.0
    mean_x, mean_y = (math.fsum(column) / count for column in zip(*points, strict=True))
    breadth = math.fsum((x - mean_x) ** 2 for x, _ in points)
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / breadth if breadth else 0.0


def judge_rates(costs: Mapping[float, float]) -> dict[str, Any]:
    """CPU in microseconds by rate, of those rates that were kept: the dearest beside the cheapest.

    One rate alone says nothing. Whether it is flat is said as far as the highest rate that was kept.
    """
    if len(costs) < 2:
        return {"cpu_us": dict(costs), "up_to": max(costs, default=0.0), "is_flat": None}
    ratio = max(costs.values()) / min(costs.values())
    found = {rate: round(cost) for rate, cost in costs.items()}
    return {"cpu_us": found, "up_to": max(costs), "dearest_to_cheapest": round(ratio, 2), "is_flat": ratio <= FLAT}


def growth(samples: Sequence[tuple[int, Mapping[str, int]]], per: int, skip_share: float) -> dict[str, float]:
    """Bytes by which each process grew for `per` requests, without the first `skip_share` of the requests."""
    if not samples:
        return {}
    begin = samples[0][0] + skip_share * (samples[-1][0] - samples[0][0])
    kept = [sample for sample in samples if sample[0] >= begin]
    names = kept[-1][1]
    return {name: per * slope([(done, rss[name]) for done, rss in kept if name in rss]) for name in names}

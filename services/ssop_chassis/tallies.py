# cython: annotation_typing=False
"""Counters, gauges and histograms for hot paths: no lock, no text until somebody reads them.

They take the place of prometheus_client's in a process whose event loop owns what it counts: only that loop's thread
may change them. A reader in another thread sees each number as it was at some moment of its reading.

`tallies.pxd` gives the types with which this very file is compiled, as with `deadline.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

C = TypeVar("C")


class _Family(Collector, Generic[C]):
    """Children by the values of their labels; one without labels is its own only child."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], child: Callable[[], C], registry: CollectorRegistry
    ) -> None:
        self.name: Final = name
        self.documentation: Final = documentation
        self._label_names: Final = tuple(labels)
        self._make = child
        self._children: dict[tuple[str, ...], C] = {}
        registry.register(self)

    def labels(self, *values: str) -> C:
        """The child of these values, made when it is first asked for. Raises ValueError for too few or too many."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self._label_names):
                raise ValueError(f"{self.name} has the labels {self._label_names}")
            child = self._children[values] = self._make()
        return child

    def _items(self) -> list[tuple[tuple[str, ...], C]]:
        # A copy in one step: the loop may add children while another thread reads.
        return list(self._children.items())

    def _bare(self) -> C:
        return self.labels()

    def describe(self) -> Iterator[Metric]:
        """See Collector."""
        yield from self.collect()


class Count:
    """One counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add. Raises ValueError for less than nothing."""
        if amount < 0:
            raise ValueError("a counter never falls")
        self.value += amount


class Counter(_Family[Count]):
    """What only grows. The name goes without its `_total`."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: CollectorRegistry
    ) -> None:
        super().__init__(name, documentation, labels, Count, registry)
        if not labels:
            self.inc: Final = self._bare().inc

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        family = CounterMetricFamily(self.name, self.documentation, labels=self._label_names)
        for values, child in self._items():
            family.add_metric(values, child.value)
        yield family


class Level:
    """One gauge."""

    __slots__ = ("_ask", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._ask: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Take a value."""
        self.value = float(value)

    def inc(self, amount: float = 1) -> None:
        """Add."""
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        """Take away."""
        self.value -= amount

    def set_function(self, ask: Callable[[], float]) -> None:
        """Ask `ask` whenever the gauge is read."""
        self._ask = ask

    def read(self) -> float:
        """What it shows now."""
        return self.value if self._ask is None else float(self._ask())


class Gauge(_Family[Level]):
    """What rises and falls."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: CollectorRegistry
    ) -> None:
        super().__init__(name, documentation, labels, Level, registry)
        if not labels:
            bare = self._bare()
            self.set: Final = bare.set
            self.inc: Final = bare.inc
            self.dec: Final = bare.dec
            self.set_function: Final = bare.set_function

    def remove(self, *values: str) -> None:
        """Forget a child, if there is one."""
        self._children.pop(values, None)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        family = GaugeMetricFamily(self.name, self.documentation, labels=self._label_names)
        for values, child in self._items():
            family.add_metric(values, child.read())
        yield family


class Distribution:
    """One histogram: how many values lie in each bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Take a value."""
        place = 0
        # Bounds are few: once it is compiled, to pass them one by one costs less than a search that is a call.
        for bound in self._bounds:
            if bound >= value:
                break
            place += 1
        self.counts[place] += 1
        self.sum += value


class Histogram(_Family[Distribution]):
    """How values are spread. `buckets` are upper bounds that rise; the last, infinite one is not named."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._bounds: Final = tuple(map(float, buckets))
        super().__init__(name, documentation, labels, self._new, registry)
        if not labels:
            self.observe: Final = self._bare().observe

    def _new(self) -> Distribution:
        return Distribution(self._bounds)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        family = HistogramMetricFamily(self.name, self.documentation, labels=self._label_names)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, child in self._items():
            total, buckets = 0, []
            for name, count in zip(names, tuple(child.counts), strict=True):
                total += count
                buckets.append((name, float(total)))
            family.add_metric(values, buckets, child.sum)
        yield family

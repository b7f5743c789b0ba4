"""The kernel's counts as metrics. No label holds a stream, a request, a tenant or a process id."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ssop_ebpf.core.durations import SLOTS, cumulate
from ssop_ebpf.core.host import LIBRARIES
from ssop_ebpf.core.ledger import Count, Ledger
from ssop_ebpf.kernel import Kernel
from ssop_ebpf.probes import Probes
from ssop_ebpf.processes import Processes

_FRAME, _RELAY, _DECISION, _PREFETCH = 0, 1, 2, 5
_TIERS: Final = ("none", "lite", "full")
_USES: Final = ("wasted", "hit")


class Watch(Collector):
    """Reads the kernel. `poll` and `collect` may be called from different threads."""

    def __init__(self, kernel: Kernel, processes: Processes, probes: Probes) -> None:
        self._kernel = kernel
        self._processes = processes
        self._probes = probes
        self._ledger = Ledger()
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def scan(self) -> None:
        """Look for libraries that came or went."""
        with self._lock:
            self._probes.refresh()

    def poll(self) -> None:
        """Read the counts, and forget processes that have ended."""
        with self._lock:
            self._poll()

    def _poll(self) -> None:
        # Whoever has ended by now counts no more, so what is read after this is all that it will ever have counted.
        places = [place for place, _ in self._kernel.read_pairs("counts", 2)]
        found = {process: self._processes.origin(process) for process in {place[0] for place in places}}
        counts = {place: Count(*words) for place, words in self._kernel.read_pairs("counts", 2) if place[0] in found}
        self._ledger.update(counts, {process: origin for process, (origin, _) in found.items()})
        ended = [place for place in counts if not found[place[0]][1]]
        for place in ended:
            self._kernel.delete_pair("counts", place)
        self._ledger.settle(ended)
        self._running = Counter(origin.service for origin, is_there in found.values() if is_there)

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        with self._lock:
            self._poll()
            yield from self._frames()
            yield from self._durations()
            yield from self._state()

    def _frames(self) -> Iterator[Metric]:
        labels = ["service", "unit", "event"]
        frames = CounterMetricFamily("ssop_ebpf_frames", "Document frames by what happened to them.", labels=labels)
        sizes = CounterMetricFamily("ssop_ebpf_frame_bytes", "Bytes of frames, or of their chunks.", labels=labels)
        for origin, event, count in self._ledger.totals():
            frames.add_metric([*origin, event.name.lower()], count.frames)
            sizes.add_metric([*origin, event.name.lower()], count.size_bytes)
        yield frames
        yield sizes

    def _durations(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "ssop_ebpf_frame_latency_seconds", "From a frame's making to its reading by a process of this host."
        )
        latency.add_metric([], *self._histogram(_FRAME))
        yield latency
        relay = HistogramMetricFamily(
            "ssop_ebpf_relay_seconds", "From the oldest chunk that a router held to its sending it on."
        )
        relay.add_metric([], *self._histogram(_RELAY))
        yield relay
        decisions = HistogramMetricFamily("ssop_ebpf_decision_seconds", "Time of a decision.", labels=["tier"])
        for number, tier in enumerate(_TIERS):
            decisions.add_metric([tier], *self._histogram(_DECISION + number))
        yield decisions
        ages = HistogramMetricFamily(
            "ssop_ebpf_prefetch_age_seconds", "Age of a prefetch when it was used, or was for nothing.", labels=["use"]
        )
        for number, use in enumerate(_USES):
            ages.add_metric([use], *self._histogram(_PREFETCH + number))
        yield ages

    def _histogram(self, which: int) -> tuple[list[tuple[str, float]], float]:
        *slots, sum_ns = self._kernel.read_array("durations", which, SLOTS + 1)
        return cumulate(slots), sum_ns / 1e9

    def _state(self) -> Iterator[Metric]:
        attached = GaugeMetricFamily(
            "ssop_probe_attached",
            "1 while a probe of a library is watched; 0 for one that can't be, or where no library was found.",
            labels=["probe", "library"],
        )
        states = list(self._probes.states())
        for probe, path, is_attached in states:
            attached.add_metric([probe, path], is_attached)
        for probe in {probe for probes in LIBRARIES.values() for probe in probes} - {probe for probe, _, _ in states}:
            attached.add_metric([probe, ""], 0)
        yield attached
        failures = CounterMetricFamily("ssop_ebpf_attach_failures", "Tries that failed, by probe.", labels=["probe"])
        for probes in LIBRARIES.values():
            for probe in probes:
                failures.add_metric([probe], self._probes.failures[probe])
        yield failures
        uncounted = CounterMetricFamily("ssop_ebpf_hits_uncounted", "Hits that the kernel had no room to count.")
        uncounted.add_metric([], self._kernel.read_array("uncounted", 0, 1)[0])
        yield uncounted
        running = GaugeMetricFamily("ssop_ebpf_processes", "Processes that have counted frames.", labels=["service"])
        for service, number in sorted(self._running.items()):
            running.add_metric([service], number)
        yield running

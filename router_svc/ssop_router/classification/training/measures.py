"""How routing scores are judged: RouteLLM's APGR and CPT (arXiv 2406.18665, section 3), exact, with intervals."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value, with the 2.5 and 97.5 percentiles of its bootstrap."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def recover_quality(score: Floats, weak: Floats, strong: Floats) -> Floats:
    """Performance gap recovered after each further prompt went to the strong model, hardest first: n + 1 values.

    0 is the weak model's mean quality, 1 the strong one's. Prompts with equal scores count as in random order: each
    carries the mean gain of them all. ValueError where the two models are equally good.
    """
    order = np.argsort(-score, kind="stable")
    gain = (strong - weak)[order].astype(np.float64)
    ranked = score[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    sizes = np.diff(np.r_[starts, len(ranked)])
    gain = np.repeat(np.add.reduceat(gain, starts) / sizes, sizes)
    total = gain.sum()
    if not total:
        raise ValueError("the two models are equally good: no gap to recover")
    curve: Floats = np.r_[0.0, np.cumsum(gain)] / total
    return curve


def measure_apgr(score: Floats, weak: Floats, strong: Floats) -> float:
    """Average performance gap recovered: the area under the curve over the share of strong calls."""
    return float(np.trapezoid(recover_quality(score, weak, strong), dx=1 / len(score)))


def measure_cpt(score: Floats, weak: Floats, strong: Floats, share: float) -> float:
    """Call-performance threshold: per cent of strong calls at which `share` of the gap is recovered."""
    curve = recover_quality(score, weak, strong)
    at = int(np.argmax(curve >= share - 1e-12))
    if at == 0:
        return 0.0
    part = (share - curve[at - 1]) / (curve[at] - curve[at - 1])
    return float((at - 1 + part) * 100 / len(score))


@dataclass(frozen=True, slots=True)
class Routing:
    """A score on one set. `lead` is its APGR less that of the reference, None without one."""

    apgr: Interval
    cpt50: Interval
    cpt80: Interval
    lead: Interval | None = None


def measure_routing(
    score: Any, weak: Any, strong: Any, *, reference: Any = None, draws: int = 1000, seed: int = 0
) -> Routing:
    """APGR, CPT50 and CPT80 with intervals by bootstrap over prompts.

    Draws in which the strong model is not the better one have no gap; they are left out.
    """
    score, weak, strong = (np.asarray(values, np.float64) for values in (score, weak, strong))
    other = None if reference is None else np.asarray(reference, np.float64)
    generator = np.random.default_rng(seed)
    drawn: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        at = generator.integers(0, len(score), len(score))
        if strong[at].sum() <= weak[at].sum():
            continue
        sample = (score[at], weak[at], strong[at])
        apgr = measure_apgr(*sample)
        lead = 0.0 if other is None else apgr - measure_apgr(other[at], weak[at], strong[at])
        drawn.append((apgr, measure_cpt(*sample, 0.5), measure_cpt(*sample, 0.8), lead))
    low, high = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    whole = (score, weak, strong)
    apgr = measure_apgr(*whole)
    values = [apgr, measure_cpt(*whole, 0.5), measure_cpt(*whole, 0.8)]
    values.append(0.0 if other is None else apgr - measure_apgr(other, weak, strong))
    found = [Interval(value, float(low[at]), float(high[at])) for at, value in enumerate(values)]
    return Routing(found[0], found[1], found[2], None if other is None else found[3])


def measure_balance(is_full: NDArray[np.bool_], said_full: NDArray[np.bool_]) -> float:
    """Balanced accuracy: the mean of the two classes' recalls. ValueError where a class is empty."""
    if is_full.all() or not is_full.any():
        raise ValueError("both tiers are needed")
    return float((said_full[is_full].mean() + (~said_full[~is_full]).mean()) / 2)


def rank_within(values: Floats, groups: NDArray[Any]) -> Floats:
    """Ranks from 0 to 1 inside each group, ties by order of appearance."""
    ranks = np.empty(len(values))
    for group in np.unique(groups):
        at = np.flatnonzero(groups == group)
        ranks[at[np.argsort(values[at], kind="stable")]] = (np.arange(len(at)) + 0.5) / len(at)
    return ranks

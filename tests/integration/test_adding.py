"""`ssop index add` against a retrieval service with a hashing embedder: parts, duplicates, pruning, failures."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.document_edge import serve_documents
from helpers.sdk_clients import KEY
from ssop_cli.documents.adding import Adder, AddOptions, AddReport
from ssop_cli.documents.parser_process import ParserProcess
from ssop_sdk import QuotaExhausted, SsopClient


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with serve_documents(tmp_path, max_tenant_passages=4000) as address:
        yield address


class Runner:
    """Runs `add` in a folder and looks at what is indexed."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self.folder = folder
        self.progress: list[tuple[str, int]] = []

    async def add(self, *names: str, **options: Any) -> AddReport:
        return await asyncio.to_thread(self._add, names, options)

    def _add(self, names: tuple[str, ...], options: dict[str, Any]) -> AddReport:
        paths = [str(self.folder / name) for name in names]
        wanted = AddOptions(paths, "c", self.folder, **options)
        with SsopClient(KEY, self._address) as client, ParserProcess() as parser:
            adder = Adder(client, wanted, parser, lambda name, report: self.progress.append((name, report.added)))
            self.report = adder.report
            return adder.run()

    async def ids(self) -> list[str]:
        def ask() -> list[str]:
            with SsopClient(KEY, self._address) as client:
                return sorted(one.document_id for one in client.index.documents("c"))

        return await asyncio.to_thread(ask)


@pytest.fixture
def runner(address: str, tmp_path: Path) -> Runner:
    folder = tmp_path / "work"
    folder.mkdir()
    return Runner(address, folder)


def story(lines: int) -> str:
    return "".join(f"Line {number} of a long story.\n" for number in range(lines))


async def test_a_long_document_goes_in_parts_and_later_ones_go_when_it_shrinks(runner: Runner) -> None:
    path = runner.folder / "long.txt"
    path.write_text(story(9_000))
    assert (await runner.add("long.txt")).added == 4
    assert await runner.ids() == ["long.txt", "long.txt#2", "long.txt#3", "long.txt#4"]
    assert (await runner.add("long.txt")).unchanged == 4
    path.write_text(story(3_000))
    report = await runner.add("long.txt")
    assert (report.removed, await runner.ids()) == (2, ["long.txt", "long.txt#2"])
    path.write_text(story(1))
    report = await runner.add("long.txt")
    assert (report.removed, await runner.ids()) == (1, ["long.txt"])


async def test_only_what_changed_is_added(runner: Runner) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (runner.folder / name).write_text(f"The text of {name}.")
    await runner.add(".")
    (runner.folder / "b.txt").write_text("Another text.")
    report = await runner.add(".")
    assert (report.added, report.unchanged, report.passages) == (1, 2, 1)


async def test_two_documents_of_one_id_are_not_both_taken(runner: Runner) -> None:
    lines = [{"id": "a.txt", "text": "from the lines"}, {"id": "x", "text": "one"}, {"id": "x", "text": "two"}]
    (runner.folder / "a.txt").write_text("from the file")
    (runner.folder / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = await runner.add(".")
    assert (report.added, [name for name, _ in report.refused]) == (2, ["a.txt", "x"])


async def test_the_server_s_refusals_are_in_the_report(runner: Runner) -> None:
    (runner.folder / "a.txt").write_text("text\x01\x02\x03\x04")
    (runner.folder / "b.txt").write_text("good")
    report = await runner.add(".")
    assert (report.added, report.refused) == (1, [("a.txt", "the text is not text: it holds control characters")])


async def test_pruning_deletes_what_is_not_named(runner: Runner) -> None:
    for name in ("a.txt", "b.txt"):
        (runner.folder / name).write_text(name)
    await runner.add(".")
    (runner.folder / "a.txt").unlink()
    assert (await runner.add(".")).removed == 0
    report = await runner.add(".", is_pruned=True)
    assert (report.removed, await runner.ids()) == (1, ["b.txt"])


async def test_pruning_deletes_nothing_when_a_document_was_refused(runner: Runner) -> None:
    for name in ("a.txt", "b.txt"):
        (runner.folder / name).write_text(name)
    await runner.add(".")
    (runner.folder / "a.txt").unlink()
    (runner.folder / "b.txt").write_bytes(b"\0")
    report = await runner.add(".", is_pruned=True)
    assert (report.removed, report.is_prune_skipped, await runner.ids()) == (0, True, ["a.txt", "b.txt"])


async def test_what_was_done_before_a_failure_is_told_and_kept(runner: Runner) -> None:
    lines = (json.dumps({"id": str(n), "text": "x" * 9_000}) for n in range(300))
    (runner.folder / "many.jsonl").write_text("\n".join(lines))
    with pytest.raises(QuotaExhausted):
        await runner.add("many.jsonl")
    assert 0 < runner.report.added < 300
    assert len(await runner.ids()) == runner.report.added


async def test_progress_moves(runner: Runner) -> None:
    (runner.folder / "many.jsonl").write_text("".join(f'{{"id": "{n}", "text": "word {n}"}}\n' for n in range(500)))
    await runner.add("many.jsonl")
    counts = [count for _, count in runner.progress]
    assert counts == sorted(counts)
    assert len(set(counts)) >= 8

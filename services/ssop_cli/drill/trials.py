"""Faults with steps and checks of their own, on the drill's own mesh. Each returns when it is lifted."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from ssop_cli.drill.injection import find_child, wait_until
from ssop_cli.drill.rig import Rig
from ssop_cli.mesh import find_access
from ssop_cli.status import damage_of, local_report
from ssop_sdk import AsyncSsopClient, CollectionUnknown, SsopClient, SsopError

COLLECTION: Final = "facts"
_BACK_S: Final = 60.0
_FULL_S: Final = 3.0
"""How long a disk stays full at least, so that the load meets it."""
_DOCUMENTS: Final = 60
_IN_LOG: Final = 10
"""Documents that only the log of the store holds as it is harmed."""
_ROUNDS: Final = 4
_METRICS_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a fault's own checks saw. `failures` break its row, and so does `wrong`: what no fault excuses."""

    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, *, holds: bool) -> None:
        """A failure unless it holds."""
        if not holds:
            self.failures.append(f"it does not hold that {what}")


def lose_classifier(rig: Rig) -> Finding:
    """The classifier's file is gone as the router starts: it serves without, says so, and takes it when it is back."""
    found = Finding()
    hidden = rig.classifier.with_suffix(".gone")
    rig.classifier.rename(hidden)
    try:
        mark = rig.log_size("router")
        _restart(rig, "router", signal.SIGTERM)
        told = [line for line in rig.log_lines("router", mark) if line["message"] == "routing without a classifier"]
        found.expect("the log says that the classifier is missing", holds=[t["fault"] for t in told] == ["missing"])
        loaded = _metric(rig, "router", "ssop_router_classifier_loaded")
        found.expect("the metric says that no classifier is loaded", holds=sum(loaded.values()) == 0)
        with rig.client() as client:
            # Connections of this process that were refused meanwhile wait a little before they are made again.
            is_served = wait_until(lambda: _is_answered(client), _BACK_S)
        found.expect("requests are answered without it", holds=is_served)
    finally:
        hidden.rename(rig.classifier)
    _restart(rig, "router", signal.SIGTERM)
    loaded = _metric(rig, "router", "ssop_router_classifier_loaded")
    found.expect("it is loaded again", holds=sum(loaded.values()) == 1)
    found.notes.append("said by log and metric; the router drained twice")
    return found


def _is_answered(client: SsopClient) -> bool:
    try:
        return _keeps(_FIRST, client.generate("Judge this post: it is fine.", output_schema=dict(_FIRST)).result())
    except SsopError:
        return False


_FIRST: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "is_urgent": {"type": "boolean"}},
    "required": ["mood", "is_urgent"],
    "additionalProperties": False,
}
_SECOND: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"tone": {"enum": ["warm", "cold"]}, "mood": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["tone", "mood"],
    "additionalProperties": False,
}


def _keeps(schema: Mapping[str, Any], answer: Any) -> bool:
    """Whether an answer is one of the first or of the second schema, by rules that share no code with the mesh."""
    if not isinstance(answer, dict) or set(answer) != set(schema["required"]):
        return False
    if schema is _FIRST:
        return answer["mood"] in {"good", "bad"} and isinstance(answer["is_urgent"], bool)
    mood = answer["mood"]
    return answer["tone"] in {"warm", "cold"} and type(mood) is int and 1 <= mood <= 3


def change_schema(rig: Rig) -> Finding:
    """On one session the schema changes with every request, and the same prompt is asked with both at once."""
    found = Finding()
    asyncio.run(_change_schema(rig, found))
    return found


async def _change_schema(rig: Rig, found: Finding) -> None:
    target = find_access(rig.places, None, {}).target
    async with AsyncSsopClient(rig.key, target, allow_degraded=True) as client, client.session() as session:

        async def ask(prompt: str, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
            stream = await session.begin(prompt, output_schema=dict(schema), is_complete=True, max_output_tokens=48)
            return schema, await stream.result()

        count = 0
        for number in range(_ROUNDS):
            prompt = f"Judge post {number}: the menu surprised us."
            # The second time the store may answer; a schema that differs in nothing but its keys must not be mixed up.
            for _ in range(2):
                asked = [ask(prompt, schema) for schema in (_FIRST, _SECOND)]
                for result in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(result, SsopError):
                        found.failures.append(f"a request failed: {result.reason}")
                    elif isinstance(result, BaseException):
                        found.wrong.append(f"an error without a type of its own: {type(result).__name__}")
                    elif not _keeps(*result):
                        found.wrong.append("an answer breaks the schema that it was asked for")
                    else:
                        count += 1
        broken = {"type": "object", "properties": {"mood": {"type": "nonsense"}}}
        try:
            await ask("Judge this post.", broken)
            found.failures.append("a schema that is none was taken in mid-session")
        except SsopError as error:
            found.notes.append(f"{count} answers, each of its own schema; one that is none: {error.reason}")
        _, answer = await ask("Judge this post: all is well.", _FIRST)
        found.expect("the session goes on after a schema that is refused", holds=_keeps(_FIRST, answer))


def text_of(number: int) -> str:
    """What a document of the drill says; nothing else ever may."""
    return f"Fact {number}: the code word of house {number} is {_WORDS[number % len(_WORDS)]}-{number * 7919}."


_WORDS: Final = ("amber", "basalt", "cedar", "dune", "ember", "fjord", "grove")


def fill_disk(rig: Rig) -> Finding:
    """The disk of the documents is full: indexing is refused with a reason, searching goes on, and all comes back."""
    found = Finding([rig.disk.means])
    old, new, later = range(10), range(20, 30), range(30, 33)
    with rig.client() as client:
        _index(client, old)
        before = _search(client, old, found)
        restarts = find_child(rig.places, "redis-state").restarts
        with contextlib.ExitStack() as stack:
            stack.enter_context(rig.disk.filled(find_child(rig.places, "rag").pid))
            if rig.state_disk.is_mounted:
                # A limit on its files would end this Redis at once, which is another fault.
                stack.enter_context(rig.state_disk.filled(find_child(rig.places, "redis-state").pid))
            # What is left of a block may take a document or two.
            answers = [_refusal(client, number) for number in new]
            refused = next((reason for reason in answers if reason), "")
            found.expect("indexing is refused as STORE_UNAVAILABLE", holds=refused == "STORE_UNAVAILABLE")
            found.expect("what was indexed before is found", holds=_search(client, old, found) == before)
            time.sleep(_FULL_S)
        begun_s = time.monotonic()
        found.expect("indexing works again", holds=wait_until(lambda: not _refusal(client, later[0]), _BACK_S))
        found.notes.append(
            f"{answers.count(refused)} refused as {refused}; taken {time.monotonic() - begun_s:.1f} s after"
        )
        if rig.state_disk.is_mounted:
            ended = find_child(rig.places, "redis-state").restarts - restarts
            found.notes.append(f"the disk of keys, quotas and leases too: their Redis ended itself {ended} times")
        _index(client, later)
        taken = {number for number, reason in zip(new, answers, strict=True) if not reason} | set(later)
        held = _search(client, range(old.start, later.stop), found)
        found.expect("all that was acknowledged is found", holds=before | taken <= held)
    return found


def corrupt_store(rig: Rig) -> Finding:
    """Bytes are flipped in every file of the store while the service is down; it comes up and says what was lost."""
    found = Finding()
    with rig.client() as client:
        with_log = range(_DOCUMENTS - _IN_LOG, _DOCUMENTS)
        _index(client, range(_DOCUMENTS - _IN_LOG))
        # A start moves what the log holds into files of their own.
        _restart(rig, "rag", signal.SIGTERM)
        _await_index(client)
        _index(client, with_log)
        mark = rig.log_size("rag")
        harmed: list[str] = []
        _restart(rig, "rag", signal.SIGKILL, meanwhile=lambda: harmed.extend(flip_files(rig.index)))
        found.expect("files were harmed", holds=bool(harmed))
        told = [line for line in rig.log_lines("rag", mark) if "damaged and is lost" in line["message"]]
        damage = _metric(rig, "rag", "ssop_rag_store_damage")
        found.expect("the log says what was lost", holds=bool(told))
        found.expect("the metric says what was lost", holds=sum(damage.values()) > 0)
        found.expect("the status says what was lost", holds=damage_of(local_report(rig.places)) is not None)
        _await_index(client)
        kept = _search(client, range(_DOCUMENTS), found)
        _index(client, range(_DOCUMENTS))
        back = _search(client, range(_DOCUMENTS), found)
        found.expect("all is found once it is indexed again", holds=back == set(range(_DOCUMENTS)))
    said = ", ".join(f"{name} {value:.0f}" for name, value in sorted(damage.items()))
    found.notes.append(f"{len(harmed)} files harmed; said: {said}; {len(kept)} of {_DOCUMENTS} documents kept")
    return found


def flip_files(folder: Path) -> list[str]:
    """Invert a byte in the middle of each table and log of a store; the names of those that were harmed."""
    harmed = []
    for path in [*folder.glob("*.sst"), *folder.glob("*.log")]:
        with path.open("r+b") as file:
            middle = path.stat().st_size // 2
            file.seek(middle)
            byte = file.read(1)
            if not byte:
                continue
            file.seek(middle)
            file.write(bytes([byte[0] ^ 0xFF]))
        harmed.append(path.name)
    return harmed


def _index(client: SsopClient, numbers: range) -> None:
    client.index.upsert(COLLECTION, [{"id": f"f{number}", "text": text_of(number)} for number in numbers])


def _await_index(client: SsopClient) -> None:
    """Return when the router has found the service again."""

    def answers() -> bool:
        try:
            client.index.collections()
        except SsopError:
            return False
        return True

    wait_until(answers, _BACK_S)


def _refusal(client: SsopClient, number: int) -> str:
    """Why a document can't be indexed now; empty if it can."""
    try:
        _index(client, range(number, number + 1))
    except SsopError as error:
        return error.reason
    return ""


def _search(client: SsopClient, numbers: range, found: Finding) -> set[int]:
    """Documents that are found by their own words. What is found and was never indexed so is wrong."""
    hits = set()
    for number in numbers:
        try:
            passages = client.index.search(text_of(number), collections=[COLLECTION], top_k=3)
        except CollectionUnknown:
            # All of it was lost.
            return set()
        for passage in passages:
            if passage.text != text_of(int(passage.document_id[1:])):
                found.wrong.append(f"document {passage.document_id} was found with a text that it never had")
            if passage.document_id == f"f{number}":
                hits.add(number)
    return hits


def _restart(rig: Rig, name: str, number: signal.Signals, *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """End a child, do something before the supervisor has started it again, and wait until it serves."""
    before = find_child(rig.places, name)
    os.kill(before.pid, number)
    wait_until(lambda: not Path(f"/proc/{before.pid}").exists(), _BACK_S)
    meanwhile()

    def is_back() -> bool:
        now = find_child(rig.places, name)
        return now.state == "ready" and now.pid not in {0, before.pid}

    wait_until(is_back, _BACK_S)


def _metric(rig: Rig, child: str, name: str) -> dict[str, float]:
    """The values of a metric by its labels, as text."""
    with urlopen(f"http://{rig.metrics_address(child)}/metrics", timeout=_METRICS_TIMEOUT_S) as page:
        lines = page.read().decode().splitlines()
    found = [line.removeprefix(name).rsplit(" ", 1) for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return {labels.strip("{}"): float(value) for labels, value in found}


TRIALS: Final[Mapping[str, Callable[[Rig], Finding]]] = {
    "classifier-missing": lose_classifier,
    "schema-changed": change_schema,
    "disk-full": fill_disk,
    "store-corrupted": corrupt_store,
}

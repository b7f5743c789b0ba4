"""docs/interop.md: what came of gRPC's interop cases.

`PYTHONPATH=tests python -m helpers.interop_page` runs all of them and writes the page.
"""

import json
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Final

from helpers.interop import (
    AGING,
    CASES,
    CLIENTS,
    COMPRESSED,
    HERE,
    PACKED,
    PROGRAMS,
    ROOT,
    SERVERS,
    Outcomes,
    run_clients,
    run_servers,
)

PAGE: Final = ROOT / "docs" / "interop.md"
AS_SERVER: Final = "Clients of the native server"
AS_CLIENT: Final = "Servers of the native client"
_MARK: Final = "<!-- {} {} -->"


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found[1]


def _version(name: str) -> str:
    """The version that a program is built with."""
    beside = HERE.parent
    if name == "grpcio":
        return version("grpcio")
    if name == "grpc-go":
        return _found(r"google.golang.org/grpc v(\S+)", (HERE / "go" / "go.mod").read_text())
    if name == "grpc-java":
        return _found(r"<grpc.version>(.+)</grpc.version>", (beside / "java" / "pom.xml").read_text())
    if name == "grpc-js":
        lock = json.loads((beside / "typescript" / "package-lock.json").read_text())
        return str(lock["packages"]["node_modules/@grpc/grpc-js"]["version"])
    return _found(r'name = "tonic"\nversion = "(.+)"', (beside / "rust" / "Cargo.lock").read_text())


def title(name: str) -> str:
    """A program as the page names it."""
    return f"{PROGRAMS[name].title} {_version(name)}"


def _cell(outcomes: Outcomes, name: str, case: str) -> str:
    wires = {AGING: ["aging"], **{packed: ["packed"] for packed in (PACKED, *COMPRESSED)}}.get(case, ["plain", "tls"])
    found = {wire: outcomes[name, wire][case] for wire in wires if case in outcomes.get((name, wire), ())}
    if not found:
        return "-"
    failed = [wire for wire, error in found.items() if error]
    return "failed: " + ", ".join(failed) if failed else "ok"


def column(outcomes: Outcomes, name: str) -> dict[str, str]:
    """What the page says of a program, by case."""
    cases = (*CASES, PACKED, *COMPRESSED, *([AGING] if (name, "aging") in outcomes else []))
    return {case: _cell(outcomes, name, case) for case in cases}


def _table(heading: str, columns: Mapping[str, Mapping[str, str]]) -> str:
    rows = next(iter(columns.values()))
    lines = [f"| {heading} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {case} | {' | '.join(found[case] for found in columns.values())} |" for case in rows]
    return "\n".join(lines)


def published(heading: str) -> dict[str, dict[str, str]]:
    """The columns of a table of the page, by title and case."""
    text = PAGE.read_text()
    part = text[text.index(_MARK.format("begin", heading)) : text.index(_MARK.format("end", heading))]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[1:]]
    head, rows = lines[0], lines[2:]
    return {name: {row[0]: row[place] for row in rows} for place, name in enumerate(head) if place}


def _put(text: str, heading: str, names: Iterable[str], outcomes: Outcomes) -> str:
    begin, end = _MARK.format("begin", heading), _MARK.format("end", heading)
    table = _table(heading, {title(name): column(outcomes, name) for name in names})
    return text[: text.index(begin)] + f"{begin}\n{table}\n" + text[text.index(end) :]


def main() -> None:
    """Run all, and write the page."""
    clients, servers = run_clients(CLIENTS), run_servers(SERVERS)
    for outcomes in (clients, servers):
        for (name, wire), cases in outcomes.items():
            for case, error in cases.items():
                if error:
                    print(f"{name} {wire} {case}: {error}")
    text = _put(PAGE.read_text(), AS_SERVER, CLIENTS, clients)
    PAGE.write_text(_put(text, AS_CLIENT, SERVERS, servers))


if __name__ == "__main__":
    main()

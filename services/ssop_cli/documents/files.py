"""Which files are meant, and their bytes: folders, globs, standard input; never a device, never more than the limit."""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final

from ssop_cli.documents.extract import KINDS, ReadError

STDIN: Final = "-"
_GLOB: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Source:
    """A file to index. `id` is its path from the base, with slashes; `fault` is set where it can't be."""

    id: str
    path: Path
    fault: str = ""


@dataclass(slots=True)
class Tally:
    """What folders held and was passed over."""

    unknown_kind: int = 0
    links: int = 0


def find_sources(names: Iterable[str], base: Path, tally: Tally) -> Iterator[Source]:
    """The files that are named, in order: a folder stands for the files of known kinds below it, hidden ones left out.

    Links are followed where they are named, not where a folder holds them, so that no folder goes round in a circle.
    """
    for name in names:
        path = Path(name)
        if _GLOB & set(name) and not os.path.lexists(path):
            matches = sorted(_match(path))
            if not matches:
                yield Source(name, path, "no file matches")
            for match in matches:
                yield _source(match, base)
        elif path.is_dir():
            yield from _walk(path, base, tally)
        else:
            yield _source(path, base)


def _match(pattern: Path) -> Iterator[Path]:
    """Files that a pattern matches; `**` is any number of folders. Unlike `glob`, it follows no link to a folder."""
    fixed = [*takewhile(lambda part: not _GLOB & set(part), pattern.parts)]
    folder = Path(*fixed)
    rest = pattern.parts[len(fixed) :]
    wanted = re.compile("".join(_translate(part, is_last=part is rest[-1]) for part in rest))
    for where, folders, files in os.walk(folder, followlinks=False):
        folders[:] = [one for one in folders if not one.startswith(".")] if "**" in rest else folders
        if len(Path(where).parts) - len(folder.parts) >= len(rest) - 1 and "**" not in rest:
            folders.clear()
        for file in files:
            path = Path(where, file)
            if wanted.fullmatch(path.relative_to(folder).as_posix()):
                yield path


def _translate(part: str, *, is_last: bool) -> str:
    if part == "**":
        return ".*" if is_last else "(?:[^/]+/)*"
    # What fnmatch makes of a component, with a dot for any character, within this component.
    body = fnmatch.translate(part).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(r")\Z")
    body = re.sub(r"(?<!\\)\.", "[^/]", body)
    hidden = "" if part.startswith(".") else r"(?!\.)"
    return f"{hidden}{body}" + ("" if is_last else "/")


def _walk(folder: Path, base: Path, tally: Tally) -> Iterator[Source]:
    faults: list[OSError] = []
    for where, folders, files in os.walk(folder, onerror=faults.append, followlinks=False):
        while faults:
            error = faults.pop()
            yield Source(str(error.filename), Path(str(error.filename)), f"can't be listed: {error.strerror}")
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for file in sorted(files):
            path = Path(where, file)
            if file.startswith("."):
                continue
            if path.suffix.lower() not in KINDS:
                tally.unknown_kind += 1
            elif path.is_symlink():
                tally.links += 1
            else:
                yield _source(path, base)
    for error in faults:
        yield Source(str(error.filename), Path(str(error.filename)), f"can't be listed: {error.strerror}")


def _source(path: Path, base: Path) -> Source:
    # Not `resolve`: a link that is named keeps its name.
    absolute = Path(os.path.normpath(Path.cwd() / path))
    try:
        name = absolute.relative_to(base).as_posix()
    except ValueError:
        name = absolute.relative_to(absolute.parent.parent).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        return Source(os.fsencode(name).decode("utf-8", "replace"), path, "its name is no UTF-8")
    return Source(name, path)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file. Raises ReadError for anything else, without waiting for a pipe's other end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise ReadError(_explain(error)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ReadError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def _explain(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its links go round in a circle"
    if error.errno == errno.ENXIO:
        return "it is no regular file"
    return f"can't be opened: {error.strerror}"


def read_bytes(file: BinaryIO, max_bytes: int) -> bytes:
    """All of a file. Raises ReadError when it is longer than `max_bytes`."""
    try:
        data = file.read(max_bytes + 1)
    except OSError as error:
        raise ReadError(f"can't be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise ReadError(f"it is larger than {max_bytes / 2**20:g} MiB; --max-mib takes larger files")
    return data

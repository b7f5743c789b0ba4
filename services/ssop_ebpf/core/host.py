"""What the files of /proc say of a process: its libraries with probes, its service, its unit. Text in, values out."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

LIBRARIES: Final = {
    "_frame_writer": ("frame_sent",),
    "_decoder": ("frame_received",),
    "_service_probes": ("chunk_sent", "chunk_received", "decision", "prefetch"),
}
"""Modules of the codec that hold probes, and which."""
CLIENT: Final = "client"
"""The service of a process that is none of the mesh's: its frames are those of a client."""
_LIBRARY: Final = re.compile(
    r"/ssop_codec/(?P<module>_frame_writer|_decoder|_service_probes)\.[^/]*so(?: \(deleted\))?$"
)
_MODULE: Final = re.compile(r"ssop_(?P<name>router|inference|rag|cache|gateway|opinion)\.main")
_PROGRAM: Final = re.compile(r"(?:.*/)?ssop-(?P<name>router|inference|rag|cache|gateway|opinion)")
_UNIT: Final = re.compile(r"(?:.*/)(?P<unit>[^/]+\.service)(?:/.*)?")


class Library(NamedTuple):
    """A file with probes, as the kernel knows it: a new file under an old name is another library."""

    device: str
    inode: int
    module: str
    path: str
    """Where the process sees it."""


def find_libraries(maps: str) -> Iterator[Library]:
    """The libraries with probes in the text of /proc/PID/maps, once each."""
    seen: set[tuple[str, int]] = set()
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or (found := _LIBRARY.search(words[5])) is None:
            continue
        key = (words[3], int(words[4]))
        if key not in seen:
            seen.add(key)
            yield Library(*key, found["module"], words[5].removesuffix(" (deleted)"))


def service_of(command: bytes) -> str:
    """The service that a process is, by its command line (zero bytes between words); `client` where it is none."""
    words = command.decode(errors="replace").split("\0")
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" and (found := _MODULE.fullmatch(word)):
            return found["name"]
    for word in words[:2]:
        if found := _PROGRAM.fullmatch(word):
            return found["name"]
    return CLIENT


def unit_of(cgroup: str) -> str:
    """The systemd service in the text of /proc/PID/cgroup; empty where there is none. Scopes are as many as logins."""
    for line in cgroup.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in {"", "name=systemd"} and (found := _UNIT.fullmatch(path)):
            return found["unit"]
    return ""


def start_of(stat: str) -> int:
    """When a process began, in the kernel's ticks since boot, from the text of /proc/PID/stat: tells two of one id."""
    # The name of the program may hold anything, so the fields are counted from its last parenthesis.
    return int(stat.rpartition(")")[2].split()[19])

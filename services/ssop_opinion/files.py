"""The door for JSON Lines: a file, or standard input."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from ssop_opinion.core.post import PostError
from ssop_opinion.core.reading import LineSplitter, parse_post
from ssop_opinion.intake import Intake, Origin

_PIECE_BYTES: Final = 262_144
_MAX_BLOCK: Final = 500
STDIN: Final = Path("-")


async def read_file(path: Path, intake: Intake, origin: Origin) -> int:
    """Take in all posts of a file, `-` for standard input; how many the queue has now. Raises OSError."""
    lines = LineSplitter()
    taken = 0
    with contextlib.ExitStack() as stack:
        file: BinaryIO = sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))
        while True:
            # read1: what a pipe has, without waiting for a whole piece.
            piece = await asyncio.to_thread(getattr(file, "read1", file.read), _PIECE_BYTES)
            found = list(lines.feed(piece) if piece else lines.end())
            for at in range(0, len(found), _MAX_BLOCK):
                taken += await intake.take(parse_lines(found[at : at + _MAX_BLOCK]), origin)
            if not piece:
                return taken


def parse_lines(lines: list[bytes | PostError]) -> Iterator[tuple[dict[str, object] | PostError, bytes]]:
    """Each line as an object, or as the fault of reading it; with its bytes."""
    for line in lines:
        if isinstance(line, PostError):
            yield line, b""
            continue
        try:
            yield dict(parse_post(line)), line
        except PostError as error:
            yield error, line

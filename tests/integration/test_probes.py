"""What a tracer of the kernel sees of the frames of this process."""

import itertools
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.eventually import eventually
from ssop_codec import Decoder, Encoder


def send(number: int) -> list[tuple[int, int]]:
    """Send one document through a chunk; the sequence number and size of each of its frames."""
    encoder = Encoder(None, stream_id=number)
    encoder.feed(b"[1,null]")
    encoder.finish()
    chunk = b"".join(encoder.drain(True))
    frames = Decoder(stream_id=number).feed(chunk)
    return [(frame.seq, len(frame.raw) + 2) for frame in frames]


def program() -> str:
    """Prints each frame: what happened, stream, sequence number, bytes."""
    lines = []
    for module, name in (("_frame_writer", "frame_sent"), ("_decoder", "frame_received")):
        spec = find_spec(f"ssop_codec.{module}")
        assert spec is not None
        lines.append(f'usdt:{spec.origin}:ssop:{name} {{ printf("{name} %lu %lu %lu\\n", arg0, arg1, arg2); }}')
    return "\n".join(lines)


@pytest.mark.needs("sdt")
@pytest.mark.needs("bpftrace")
async def test_a_tracer_sees_each_frame_sent_and_received_once(tmp_path: Path) -> None:
    numbers = itertools.count(2**32 + os.getpid() * 1_000)
    seen = tmp_path / "seen"

    def lines_of(name: str, number: int) -> list[tuple[int, int]]:
        lines = [line.split() for line in seen.read_text().splitlines()]
        return [(int(words[2]), int(words[3])) for words in lines if words[:2] == [name, str(number)]]

    def is_attached() -> bool:
        assert tracer.poll() is None, seen.read_text()
        number = next(numbers)
        send(number)
        return bool(lines_of("frame_sent", number - 1) and lines_of("frame_received", number - 1))

    with seen.open("w") as out:
        tracer = subprocess.Popen(["bpftrace", "-B", "line", "-e", program()], stdout=out, stderr=subprocess.STDOUT)
        try:
            await eventually(is_attached)
            number = next(numbers)
            sent = send(number)
            await eventually(lambda: lines_of("frame_sent", number) == sent)
            await eventually(lambda: lines_of("frame_received", number) == sent)
        finally:
            tracer.terminate()
            tracer.wait(60)

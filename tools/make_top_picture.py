"""docs/images/top.svg: what `ssop top` shows of a mesh under load. PYTHONPATH=tests python tools/make_top_picture.py.

Starts a mesh of its own, asks it from a few threads, and draws what the command draws. The models are recordings, so
that the picture does not depend on how busy the machine is.
"""

import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from helpers.live_mesh import LiveMesh, run_mesh
from ssop_cli.mesh import find_access
from ssop_cli.top import Rates, look
from ssop_sdk import SsopClient
from ssop_sdk.errors import SsopError

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "images" / "top.svg"
SECONDS: Final = 45
CALLERS: Final = 6
PAUSE_S: Final = 0.15
WIDTH: Final = 108
# Milliseconds before each token.
PACES: Final = {"small": ("lite", 8), "large": ("full", 25)}
ANSWER: Final = ('{"mood": ', '"good", ', '"why": ', '"It ', "was ", "a ", "sunny ", 'day."', "}")
# The picture loads nothing from elsewhere.
FONTS: Final = re.compile(r"@font-face \{.*?\}|<!-- Generated.*?-->", re.DOTALL)
SCHEMA: Final = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "why": {"type": "string", "maxLength": 40}},
    "required": ["mood", "why"],
    "additionalProperties": False,
}


def record(folder: Path) -> list[dict[str, object]]:
    """Recordings, and the models that play them."""
    models: list[dict[str, object]] = []
    for name, (tier, pause_ms) in PACES.items():
        path = folder / f"{name}.jsonl"
        tokens = [[5 * pause_ms, ANSWER[0]], *([pause_ms, text] for text in ANSWER[1:])]
        path.write_text(json.dumps({"tokens": tokens, "input_tokens": 24}) + "\n")
        models.append({"name": name, "backend": "replay", "path": str(path), "tiers": [tier], "slots": 8})
    return models


def load(mesh: LiveMesh, number: int, stop: threading.Event) -> None:
    """Ask until told to stop: both tiers, some questions twice, some of them long."""
    with SsopClient(mesh.key, mesh.target, timeout_s=60) as client:
        for count in range(10_000):
            if stop.is_set():
                return
            policy = ("lite", "full", "full,no_cache", "auto")[count % 4]
            try:
                text = f"Day {count // 3 + number} was fine."
                client.generate(text, output_schema=SCHEMA, policy=policy, max_output_tokens=60).result()
                stop.wait(PAUSE_S)
            except SsopError as error:
                print(f"an answer failed: {error.reason}", file=sys.stderr)


def main() -> None:
    """Make the picture."""
    # The terminal's own output is not wanted, only its record.
    console = Console(record=True, width=WIDTH, force_terminal=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    with (
        tempfile.TemporaryDirectory() as folder,
        run_mesh(Path(folder), {"inference": {"models": record(Path(folder))}}, has_http=True) as mesh,
    ):
        stop = threading.Event()
        callers = [threading.Thread(target=load, args=(mesh, number, stop)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        access = find_access(mesh.places, None)
        rates = Rates()
        try:
            with SsopClient(api_key=access.api_key, target=access.target, timeout_s=10) as client:
                for _ in range(SECONDS):
                    view = look(client, access, mesh.places, rates)
                    time.sleep(1)
                console.print(view)
        finally:
            stop.set()
            for caller in callers:
                caller.join()
    TARGET.write_text(FONTS.sub("", console.export_svg(title="ssop top")))
    print(TARGET)


if __name__ == "__main__":
    main()

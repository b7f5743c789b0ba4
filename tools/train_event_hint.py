"""Puts event types into services/ssop_opinion/hint/hint.onnx, from rows that stand beside it. Needs the extra `train`.

Usage: train_event_hint.py [--hint FILE] [--out FILE] [--keep-choice]
"""

import argparse
from pathlib import Path
from typing import Final

from ssop_opinion.hint.training.event_graph import teach_events

SHIPPED: Final = Path(__file__).parents[1] / "services/ssop_opinion/hint/hint.onnx"


def main() -> None:
    """Choose, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hint", type=Path, default=SHIPPED, help="the artefact whose sentiment stays as it is")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--keep-choice", action="store_true", help="fit with the penalties that were chosen before")
    given = parser.parse_args()
    made, version = teach_events(given.hint.read_bytes(), is_choosing=not given.keep_choice)
    given.out.write_bytes(made)
    print(f"{version}, {len(made)} bytes")


if __name__ == "__main__":
    main()

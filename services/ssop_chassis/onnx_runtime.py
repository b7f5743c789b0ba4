"""ONNX Runtime without its telemetry, which it would keep in the user's home and send to its vendor."""

import os
from typing import Any

DISABLE_TELEMETRY = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> Any:
    """The module `onnxruntime`. Raises ImportError where it is not installed.

    It reads the variable when it is loaded, so nothing may import it in another way.
    """
    os.environ.setdefault(DISABLE_TELEMETRY, "1")
    import onnxruntime  # noqa: PLC0415 - heavy, and not everywhere

    return onnxruntime

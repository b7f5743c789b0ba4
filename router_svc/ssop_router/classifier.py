"""The classifier of the router: an ONNX artefact behind the port `core.complexity.ComplexityModel`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ssop_router.classification.artefact import ArtefactError
from ssop_router.classification.model import OnnxComplexityModel, open_model

__all__ = ["SHIPPED", "ArtefactError", "OnnxComplexityModel", "load_classifier"]

SHIPPED: Final = Path(__file__).parent / "classification" / "data" / "complexity.onnx"
"""The artefact that comes with the program; docs/models/classifier.md is its card."""


def load_classifier(path: Path = SHIPPED, *, providers: Sequence[str] = ("cpu",)) -> OnnxComplexityModel:
    """Read a classifier; some 50 ms. `providers` are of cpu and cuda, in order of preference.

    Where CUDA is wanted and missing, the CPU runs it, and `provider.missing` says why. Raises ArtefactError for a
    file that is missing, damaged or not made for this program's features.
    """
    return open_model(path, providers)

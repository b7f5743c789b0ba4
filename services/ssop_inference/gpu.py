"""GPUs of this host, by NVML (extra `gpu`). A thread asks: a driver in trouble takes seconds, or never answers."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_PERIOD_S: Final = 2.0
_MODULE: Final = "pynvml"
_DEVICE: Final = Path("/dev/nvidiactl")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. `busy_ratio` is from 0 to 1, None where the driver does not say."""

    name: str
    free_bytes: int
    total_bytes: int
    busy_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What was read, at `at_s` on the monotonic clock."""

    gpus: tuple[Gpu, ...] = ()
    at_s: float = 0.0


def read_gpus(nvml: Any) -> tuple[Gpu, ...]:
    """The GPUs that NVML shows, those left out whose memory it can't say. Raises what NVML raises."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            if not _is_unsupported(nvml, error):
                raise
            continue
        try:
            busy_ratio = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except nvml.NVMLError as error:
            if not _is_unsupported(nvml, error):
                raise
            busy_ratio = None
        name = nvml.nvmlDeviceGetName(handle)
        found.append(
            Gpu(
                name.decode(errors="replace") if isinstance(name, bytes) else str(name),
                int(memory.free),
                int(memory.total),
                busy_ratio,
            )
        )
    return tuple(found)


def _is_unsupported(nvml: Any, error: Exception) -> bool:
    """Some GPUs, and parts of them, have no such value; that is no fault."""
    return getattr(error, "value", None) in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION}


def load_nvml() -> Any:
    """NVML's module; None where it is not installed, which is said where there is a GPU."""
    try:
        return import_module(_MODULE)
    except ImportError:
        if _DEVICE.exists():
            _log.warning("there is a GPU, and its memory is not shown: the extra `gpu` is not installed")
        return None


class GpuWatch:
    """Reads the GPUs again and again; `sample` is what was read last, whatever happened since.

    `clock_s` is monotonic. Without NVML, or a GPU, nothing runs and the sample stays empty.
    """

    def __init__(
        self,
        nvml: Any,
        *,
        period_s: float = _PERIOD_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample = GpuSample()
        self._nvml = nvml
        self._period_s = period_s
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._is_open = False
        self._is_failing = False

    def start(self) -> None:
        """Begin. The thread ends with the process, if NVML does not let it end before."""
        if self._nvml is not None:
            threading.Thread(target=self._run, name="gpu-watch", daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()

    def _run(self) -> None:
        while self.look() and not self._stop.wait(self._period_s):
            continue

    def look(self) -> bool:
        """Read once; False where there is no GPU to look at."""
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            gpus = read_gpus(nvml)
        except nvml.NVMLError as error:
            # After a reset of the driver only a new beginning helps.
            was_open, self._is_open = self._is_open, False
            if was_open:
                self._shut_down()
            return self._bear(error, was_open=was_open)
        if self._is_failing:
            _log.info("GPUs can be read again")
        self._is_failing = False
        self.sample = GpuSample(gpus, self._clock_s())
        return bool(gpus)

    def _bear(self, error: Exception, *, was_open: bool) -> bool:
        if not was_open and not self.sample.gpus:
            # No driver here, or none that this process may use.
            _log.info("no GPU can be read", extra={"cause": str(error)})
            return False
        if not self._is_failing:
            _log.warning("GPUs can't be read; their last values stay, with their age", extra={"cause": str(error)})
        self._is_failing = True
        return True

    def _shut_down(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            _log.debug("NVML can't be shut down: %s", error)

"""GPUs as NVML says them, by a module that stands in for it; no build machine has one."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from helpers.inference import ScriptedBackend, scripted_node
from ssop_inference.gpu import Gpu, GpuSample, GpuWatch, load_nvml, read_gpus
from ssop_inference.metrics import ResourceMetrics
from ssop_inference.resource import Memory

GIB = 1 << 30


class FakeNvml:
    """The part of `pynvml` that is used, with its names and its errors that carry a number."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_GPU_IS_LOST = 15

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(self, *gpus: Any) -> None:
        self.gpus = gpus
        self.fault = 0
        self.inits = self.shutdowns = 0
        self.is_open = False

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.fault == self.NVML_ERROR_DRIVER_NOT_LOADED:
            raise self.NVMLError(self.fault)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        assert self.is_open
        if self.fault:
            raise self.NVMLError(self.fault)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.gpus[index]

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        if handle.free is None:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(free=handle.free, total=handle.total, used=handle.total - handle.free)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        if handle.busy is None:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=handle.busy, memory=0)

    def nvmlDeviceGetName(self, handle: Any) -> Any:
        return handle.name


def gpu(name: Any = "NVIDIA H200", free: int | None = 30 * GIB, total: int = 140 * GIB, busy: int | None = 40) -> Any:
    return SimpleNamespace(name=name, free=free, total=total, busy=busy)


def opened(*gpus: Any) -> FakeNvml:
    nvml = FakeNvml(*gpus)
    nvml.nvmlInit()
    return nvml


def test_memory_and_work_of_each_gpu_are_read() -> None:
    assert read_gpus(opened(gpu(), gpu(b"Tesla", 1, 2, 0))) == (
        Gpu("NVIDIA H200", 30 * GIB, 140 * GIB, 0.4),
        Gpu("Tesla", 1, 2, 0.0),
    )


def test_gpu_that_does_not_say_its_work_has_none() -> None:
    assert read_gpus(opened(gpu(busy=None)))[0].busy_ratio is None


def test_gpu_that_does_not_say_its_memory_is_left_out() -> None:
    assert [one.name for one in read_gpus(opened(gpu(free=None), gpu("b")))] == ["b"]


def test_values_stay_with_their_age_when_the_driver_fails_and_come_back_after_a_new_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nvml, now = FakeNvml(gpu()), [10.0]
    watch = GpuWatch(nvml, clock_s=lambda: now[0])
    assert watch.look()
    nvml.fault, now[0] = nvml.NVML_ERROR_GPU_IS_LOST, 12.0
    for _ in range(3):
        assert watch.look()
    assert (watch.sample.at_s, len(watch.sample.gpus)) == (10.0, 1)
    assert caplog.text.count("can't be read") == 1
    nvml.fault, now[0] = 0, 20.0
    assert watch.look()
    assert watch.sample.at_s == 20.0
    assert nvml.inits > 1
    assert nvml.shutdowns == nvml.inits - 1


def test_driver_that_is_gone_after_a_good_reading_is_tried_again() -> None:
    nvml = FakeNvml(gpu())
    watch = GpuWatch(nvml)
    watch.look()
    nvml.fault = nvml.NVML_ERROR_GPU_IS_LOST
    watch.look()
    nvml.fault = nvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert watch.look()
    nvml.fault = 0
    assert watch.look()


def test_machine_without_a_driver_is_not_asked_again() -> None:
    nvml = FakeNvml()
    nvml.fault = nvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert not GpuWatch(nvml).look()


def test_machine_without_a_gpu_is_not_asked_again() -> None:
    assert not GpuWatch(FakeNvml()).look()


async def test_watch_reads_again_and_again() -> None:
    device = gpu()
    watch = GpuWatch(FakeNvml(device), period_s=0.01)
    watch.start()
    await eventually(lambda: bool(watch.sample.gpus), 60)
    device.free = 5
    await eventually(lambda: watch.sample.gpus[0].free_bytes == 5, 60)
    watch.stop()


def test_gpu_without_the_extra_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ssop_inference.gpu._MODULE", "no_such_module_of_nvml")
    monkeypatch.setattr("ssop_inference.gpu._DEVICE", tmp_path)
    assert load_nvml() is None
    assert "extra `gpu`" in caplog.text


def test_machine_without_either_says_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("ssop_inference.gpu._MODULE", "no_such_module_of_nvml")
    assert load_nvml() is None
    assert not caplog.text


async def test_status_says_gpus_and_the_process_with_their_age() -> None:
    running = scripted_node(ScriptedBackend())
    node = running.node
    node.memory = lambda: Memory(100, 200, 3, 50)
    loop_s = asyncio.get_running_loop().time()
    node.gpus = lambda: GpuSample((Gpu("a", 30, 140, 0.4), Gpu("b", 1, 2)), loop_s - 7.5)
    status = node.status()
    assert (status.process_memory_bytes.value, status.oom_count) == (50, 3)
    assert [(one.name, one.memory_free_bytes.value, one.memory_total_bytes.value) for one in status.gpus] == [
        ("a", 30, 140),
        ("b", 1, 2),
    ]
    assert 7_400 <= status.gpus[0].memory_free_bytes.age_ms < 60_000
    assert status.gpus[0].busy_ratio.value == pytest.approx(0.4)
    assert not status.gpus[1].HasField("busy_ratio")


def test_memory_is_in_the_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(ResourceMetrics(lambda: Memory(100, 200, 3, 50), lambda: GpuSample((Gpu("a", 30, 140, 0.4),))))
    labels = {"gpu": "0", "name": "a"}
    assert registry.get_sample_value("ssop_inference_memory_free_bytes") == 100
    assert registry.get_sample_value("ssop_inference_process_memory_bytes") == 50
    assert registry.get_sample_value("ssop_inference_oom_kills_total") == 3
    assert registry.get_sample_value("ssop_inference_gpu_memory_free_bytes", labels) == 30
    assert registry.get_sample_value("ssop_inference_gpu_busy_ratio", labels) == 0.4


def test_without_a_gpu_the_metrics_name_none() -> None:
    registry = CollectorRegistry()
    registry.register(ResourceMetrics(lambda: Memory(100, 200, 3, 50), GpuSample))
    assert "gpu" not in "".join(metric.name for metric in registry.collect())

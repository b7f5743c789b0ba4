"""SIGHUP: what holds from then on, what waits, and what a bad file changes."""

import logging
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from ssop_chassis.reload import Reloader
from ssop_chassis.settings import MeshSettings, Settings, SettingsError
from unit.chassis.test_serving import Start, log_until, start

__all__ = ["start"]


class _Sample(Settings):
    rate: int = 1
    place: str = "a"


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


class _Desk:
    """A service with one setting that it can change."""

    def __init__(self) -> None:
        self.mesh = MeshSettings(secret_file=Path("x"))
        self.settings: _Sample | SettingsError = _Sample()
        self.rate = 1
        self.reloader = Reloader(self.mesh, _Sample(), self._load, [self._take])

    def _load(self) -> tuple[MeshSettings, _Sample]:
        if isinstance(self.settings, SettingsError):
            raise self.settings
        return self.mesh, self.settings

    def _take(self, settings: _Sample) -> Collection[str]:
        self.rate = settings.rate
        return {"rate"}


def _last(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    return vars(caplog.records[-1])


def test_what_can_change_holds_and_what_cannot_is_said(caplog: pytest.LogCaptureFixture) -> None:
    desk = _Desk()
    desk.settings = _Sample(rate=5, place="b")
    desk.reloader.reload()
    assert desk.rate == 5
    assert (_last(caplog)["changed"], _last(caplog)["needs_restart"]) == (["rate"], ["place"])


def test_what_waits_for_a_restart_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    desk = _Desk()
    desk.settings = _Sample(rate=5, place="b")
    desk.reloader.reload()
    desk.reloader.reload()
    assert (_last(caplog)["changed"], _last(caplog)["needs_restart"]) == ([], ["place"])


def test_a_file_that_cannot_be_used_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    desk = _Desk()
    desk.settings = SettingsError("[router] rate: no number\n[router] colour: unknown")
    desk.reloader.reload()
    assert desk.rate == 1
    assert _last(caplog)["faults"] == ["[router] rate: no number", "[router] colour: unknown"]


def test_the_log_level_changes(caplog: pytest.LogCaptureFixture) -> None:
    desk = _Desk()
    desk.mesh = MeshSettings(secret_file=Path("x"), log_level="debug", drain_ms=1)
    desk.reloader.reload()
    assert logging.getLogger().level == logging.DEBUG
    assert (_last(caplog)["changed"], _last(caplog)["needs_restart"]) == (["log_level"], ["drain_ms"])


async def test_a_process_reloads_on_sighup_and_serves_on(tmp_path: Path, start: Start) -> None:
    process = await start()
    await log_until(process, "ready")
    config = tmp_path / "ssop.toml"
    config.write_text(config.read_text().replace("[mesh]", '[mesh]\nlog_level = "debug"'))
    os.kill(process.pid, signal.SIGHUP)
    assert (await log_until(process, "the settings were reloaded"))["changed"] == ["log_level"]
    config.write_text("nonsense = 1\n")
    os.kill(process.pid, signal.SIGHUP)
    assert (await log_until(process, "the settings were not reloaded"))["faults"]
    process.terminate()
    assert await process.wait() == 0

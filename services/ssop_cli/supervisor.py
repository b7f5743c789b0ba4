"""Runs the children of a mesh: starts them in order, watches them, restarts them, stops them in reverse order.

The decisions are those of `child.step`; this module feeds it events and carries out what it says.
"""

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from ssop_chassis.settings import SettingsError
from ssop_chassis.tls import open_tls
from ssop_cli.child import (
    Action,
    Begin,
    Child,
    Event,
    Exited,
    Hung,
    Policy,
    Ready,
    State,
    Stop,
    Tick,
    step,
)
from ssop_cli.failure import EXIT_SETTINGS, CommandError
from ssop_cli.logfile import LogFile
from ssop_cli.plan import ChildPlan, reachable
from ssop_cli.probe import HealthProbe, HttpProbe, RedisProbe
from ssop_cli.report import ChildReport, start_ticks

TICK_S: Final = 0.1
READY_PROBE_S: Final = 2.0
LOG_END_S: Final = 1.0
_READ_BYTES: Final = 65_536
_LEASH: Final = Path(__file__).with_name("leash.py")
_log = logging.getLogger(__name__)


class Probe(Protocol):
    """Asks a child whether it serves."""

    async def ask(self) -> bool | None:
        """True: it serves; False: not yet; None: no answer."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


def make_probe(plan: ChildPlan) -> Probe:
    """The probe for a child: PING for Redis, /readyz for the HTTP edge, grpc.health.v1 for services."""
    if plan.is_http:
        return HttpProbe(plan.address)
    if plan.is_redis:
        return RedisProbe(plan.socket)
    try:
        tls = open_tls(plan.tls, "supervisor")
    except SettingsError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS) from error
    return HealthProbe(plan.address if not tls.is_peer_secure(plan.address) else reachable(plan.address), tls)


class Runner:
    """One child: its state, its process, its log."""

    def __init__(
        self,
        plan: ChildPlan,
        log: Path,
        *,
        policy: Policy,
        environ: Mapping[str, str],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        probe: Probe | None = None,
        ready_probe_s: float = READY_PROBE_S,
    ) -> None:
        self.plan = plan
        self.child = Child(since_s=clock())
        self.pid = 0
        self._log_path = log
        self._policy = policy
        self._environ = environ
        self._changed = changed
        self._clock = clock
        self._jitter = jitter
        self._ticks = 0
        self._since_ms = time.time_ns() // 1_000_000
        self._probe = probe or make_probe(plan)
        self._ready_probe_s = ready_probe_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._process: asyncio.subprocess.Process | None = None

    def apply(self, event: Event) -> None:
        """Feed an event to the state machine and do what it says."""
        before = self.child
        self.child, action = step(before, event, self._clock(), self._policy, self._jitter())
        if self.child.state is not before.state:
            self._since_ms = time.time_ns() // 1_000_000
            _log.info(
                "child %s: %s -> %s",
                self.plan.name,
                before.state,
                self.child.state,
                extra={"exit_code": self.child.exit_code, "restarts": self.child.restarts},
            )
            self._changed()
        if action is Action.SPAWN:
            self._start(self._run())
        elif action is Action.TERMINATE:
            self._signal(signal.SIGTERM)
        elif action is Action.KILL:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    def report(self) -> ChildReport:
        """The child, as others see it."""
        child = self.child
        detail = ""
        if child.state is State.BACKOFF:
            detail = f"next start in {max(0.0, child.retry_at_s - self._clock()):.1f} s"
        return ChildReport(
            name=self.plan.name,
            state=child.state.value,
            address=self.plan.address,
            pid=self.pid,
            start_ticks=self._ticks,
            restarts=child.restarts,
            since_ms=self._since_ms,
            exit_code=child.exit_code,
            detail=detail,
        )

    async def close(self) -> None:
        """Wait for what the runner has started."""
        await self._probe.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _run(self) -> None:
        """Start the process, watch it, and report its end."""
        self._remove_socket()
        log = LogFile(self._log_path)
        try:
            code = await self._run_process(log)
        except OSError as error:
            log.write(f"can't start: {error}\n".encode())
            code = 1
        finally:
            log.close()
        self.pid = self._ticks = 0
        self._process = None
        self.apply(Exited(code))

    def _remove_socket(self) -> None:
        # One that a killed process left behind answers nobody, and some servers refuse to bind over it.
        if self.plan.is_unix:
            Path(self.plan.socket).unlink(missing_ok=True)

    async def _run_process(self, log: LogFile) -> int:
        # A pipe of our own: with asyncio's, wait() would last until every helper of the child has closed it too.
        read_end, write_end = os.pipe()
        copier = asyncio.ensure_future(_copy_log(read_end, log))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", str(_LEASH), str(os.getpid())),
                *self.plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                env=dict(self._environ),
                cwd=self.plan.folder,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        self._process = process
        self.pid = process.pid
        self._ticks = start_ticks(self.pid)
        self._changed()
        watcher = asyncio.ensure_future(self._watch())
        try:
            return await process.wait()
        finally:
            watcher.cancel()
            await asyncio.wait({copier}, timeout=LOG_END_S)
            copier.cancel()

    async def _watch(self) -> None:
        """Ask the child, often until it serves and now and then after that."""
        heard_s = self._clock()
        while True:
            answer = await self._probe.ask()
            if answer is not None:
                heard_s = self._clock()
            if answer:
                self.apply(Ready())
            elif self.child.state is State.READY and self._clock() - heard_s > self._policy.hung_after_s:
                _log.error("child %s does not answer and is killed", self.plan.name)
                self.apply(Hung())
            await asyncio.sleep(self._ready_probe_s if self.child.state is State.READY else TICK_S)


async def _copy_log(read_end: int, log: LogFile) -> None:
    """Copy what a child writes until it has closed its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    file = os.fdopen(read_end, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while data := await reader.read(_READ_BYTES):
            log.write(data)
    finally:
        transport.close()


class Supervisor:
    """The children of one mesh."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = tuple(runners)
        self._by_name = {runner.plan.name: runner for runner in runners}

    @property
    def is_ready(self) -> bool:
        """Every child serves."""
        return all(runner.child.state is State.READY for runner in self.runners)

    @property
    def failed(self) -> Runner | None:
        """A child that could not be started at all."""
        return next((r for r in self.runners if r.child.state is State.FAILED), None)

    async def run(self, stop: asyncio.Event) -> None:
        """Start the children and keep them running until `stop` is set, or one can't be started at all."""
        while not stop.is_set() and self.failed is None:
            for runner in self.runners:
                if runner.child.state is State.WAITING and self._may_begin(runner):
                    runner.apply(Begin())
                runner.apply(Tick())
            try:
                async with asyncio.timeout(TICK_S):
                    await stop.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """Stop the children in reverse order, each after those that depend on it have ended."""
        for runner in reversed(self.runners):
            runner.apply(Stop())
            while not runner.child.is_over:
                runner.apply(Tick())
                await asyncio.sleep(TICK_S)
        for runner in self.runners:
            await runner.close()

    def kill(self) -> None:
        """End every process at once."""
        for runner in self.runners:
            runner.kill()

    def _may_begin(self, runner: Runner) -> bool:
        return all(self._by_name[name].child.was_ready for name in runner.plan.after)

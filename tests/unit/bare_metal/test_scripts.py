"""What the scripts of the deployment ask of Python: which nodes are fit, and whether settings can be used."""

import runpy
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from ssop_chassis.settings import SECTIONS

LIB: Final = Path(__file__).parents[3] / "k8s-free-deploy" / "lib"
FIT: Final = """\
# TYPE ssop_router_node_ejected gauge
ssop_router_node_ejected{address="10.0.0.1:7310"} 0.0
ssop_router_node_status_age_seconds{address="10.0.0.1:7310"} 0.4
"""


def load(name: str, function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = runpy.run_path(str(LIB / name))[function]
    return found


@pytest.fixture
def metrics() -> Iterator[tuple[str, list[str]]]:
    """Where a router's metrics are served, and their texts, one after the other; the last one stays."""
    texts = [FIT]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (texts.pop(0) if len(texts) > 1 else texts[0]).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", texts
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("old", "new"),
    [('ejected{address="10.0.0.1:7310"} 0', 'ejected{address="10.0.0.1:7310"} 1'), ("0.4", "4.0"), ("0.4", "-1.0")],
)
def test_node_that_is_out_late_or_never_heard_of_is_unfit(old: str, new: str) -> None:
    unfit = load("wait_nodes.py", "unfit")
    assert unfit(FIT) == set()
    assert unfit(FIT.replace(old, new)) == {"10.0.0.1:7310"}


def test_wait_ends_when_the_node_is_fit_again(metrics: tuple[str, list[str]]) -> None:
    address, texts = metrics
    texts[:] = [FIT.replace("0.4", "9.0"), FIT.replace("0.4", "9.0"), FIT]
    assert load("wait_nodes.py", "main")(60.0, [""], [address]) == 0
    assert texts == [FIT]


def test_wait_names_who_is_not_fit_in_time(metrics: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    address, texts = metrics
    texts[:] = [FIT.replace("0.4", "9.0")]
    assert load("wait_nodes.py", "main")(0.0, [""], [address]) == 1
    assert capsys.readouterr().out == "10.0.0.1:7310\n"


def test_wait_spares_those_that_were_unfit_before(metrics: tuple[str, list[str]]) -> None:
    address, texts = metrics
    texts[:] = [FIT.replace("0.4", "9.0")]
    assert load("wait_nodes.py", "main")(0.0, ["10.0.0.1:7310"], [address]) == 0


def test_router_that_does_not_answer_is_not_taken_for_fit() -> None:
    assert load("wait_nodes.py", "main")(0.0, [""], ["127.0.0.1:1"]) == 1


def check(tmp_path: Path, text: str) -> int:
    path = tmp_path / "ssop.toml"
    path.write_text(text)
    code: int = load("check_settings.py", "main")(path, "/c")
    return code


def test_settings_of_every_section_are_checked() -> None:
    kinds = runpy.run_path(str(LIB / "check_settings.py"))["KINDS"]
    assert {"mesh", *kinds} == set(SECTIONS)


def test_good_settings_pass(tmp_path: Path) -> None:
    assert check(tmp_path, '[mesh]\nsecret_file = "credential:mesh_secret"\n[inference]\n[gateway]\n') == 0


@pytest.mark.parametrize(
    "text", ["[mesh]\nx = 1", "[nothing]", "no toml", '[mesh]\nsecret_file = "s"\n[gateway]\nlisten = 1']
)
def test_settings_with_a_fault_do_not(tmp_path: Path, text: str) -> None:
    assert check(tmp_path, text) == 1

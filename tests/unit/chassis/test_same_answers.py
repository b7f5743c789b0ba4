"""What a server answers to calls that no library sends, or not all of them, is the same on every transport."""

import pytest

from helpers.raw_grpc import raw_connection
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import Kind, server_starter
from unit.chassis.transports import SECRET, echo

pytestmark = pytest.mark.needs("native_transport")

HEADERS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/test.T/M",
    ":authority": "mesh.test",
    "te": "trailers",
    "content-type": "application/grpc",
}


async def refuse(_: Call) -> None:
    """Fail with a text that the wire has to escape."""
    raise MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "slow down \u263a 100%\n", retry_after_ms=5)


async def break_down(_: Call) -> None:
    """Fail as no handler should."""
    raise ValueError("a secret")


KINDS = {"M": echo, "Refuse": refuse, "Break": break_down}
SERVICE = Service("test.T", [Method(f"/test.T/{name}", Arity.UNARY, run, False) for name, run in KINDS.items()])


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({}, "0", id="plain"),
        pytest.param({"content-type": "application/grpc+proto"}, "0", id="a content type that says more"),
        pytest.param({":scheme": "https"}, "0", id="TLS ended before us"),
        pytest.param({"grpc-encoding": "gzip"}, "0", id="an encoding that is not used"),
        pytest.param({"grpc-timeout": "99999999H"}, "0", id="eleven thousand years"),
        pytest.param({"grpc-timeout": "0S"}, "4", id="a deadline that is over"),
        pytest.param({"x-bin": "aGVsbG8"}, "0", id="base64 without padding"),
        pytest.param({"x-padded-bin": "aGVsbG8="}, "0", id="base64 with it"),
        pytest.param({"x-long": "a" * 6_000}, "0", id="much metadata"),
        pytest.param({":path": "/test.T/Other"}, "12", id="no such method"),
        pytest.param({":path": "/test.T/M?x=1"}, "12", id="a query"),
        pytest.param({":path": "/"}, "12", id="no path"),
        pytest.param({":path": "/test.T/Refuse"}, "8", id="refused"),
        pytest.param({":path": "/test.T/Break"}, "13", id="a fault"),
    ],
)
async def test_call_ends_with_the_same_status(changes: dict[str, str], status: str) -> None:
    found = {}
    kinds: tuple[Kind, ...] = ("grpc", "native")
    for kind in kinds:
        server = await server_starter(kind, "test")([SERVICE], ["127.0.0.1:0"], authenticate=inner_authenticate(SECRET))
        async with raw_connection(server.addresses[0]) as connection:
            stream = await connection.until_ended(connection.open({**HEADERS, **changes}, b"hello"))
        await server.stop(0)
        said = {**stream.headers, **stream.trailers}
        found[kind] = (said["grpc-status"], stream.messages())
    assert found["grpc"] == found["native"] == (status, [b"hello"] if status == "0" else [])


@pytest.mark.parametrize("method", ["Refuse", "Break"])
async def test_error_of_a_handler_is_the_same_to_the_byte(method: str) -> None:
    found = []
    kinds: tuple[Kind, ...] = ("grpc", "native")
    for kind in kinds:
        server = await server_starter(kind, "test")([SERVICE], ["127.0.0.1:0"], authenticate=inner_authenticate(SECRET))
        async with raw_connection(server.addresses[0]) as connection:
            stream = await connection.until_ended(connection.open({**HEADERS, ":path": f"/test.T/{method}"}, b""))
        await server.stop(0)
        found.append({name: value for name, value in stream.headers.items() if name.startswith("grpc-")})
    assert found[0] == found[1]
    assert "grpc-status-details-bin" in found[0]

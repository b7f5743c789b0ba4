"""Which transport carries the application's calls to a router."""

import grpc.aio
import pytest

from ssop_opinion.mesh_channel import channel_opener
from ssop_sdk.target import parse_target


def test_grpc_is_the_way_of_the_sdk() -> None:
    assert channel_opener("grpc") is None


@pytest.mark.needs("native_transport")
@pytest.mark.parametrize("kind", ["inner", "native"])
@pytest.mark.parametrize("target", ["127.0.0.1:7300", "ssop://router:7300", "unix:/run/ssop/router.sock"])
async def test_plain_addresses_are_called_on_the_native_transport(kind: str, target: str) -> None:
    open_channel = channel_opener(kind)  # type: ignore[arg-type]
    assert open_channel is not None
    channel = open_channel(parse_target(target))
    assert type(channel).__name__ == "NativeChannel"
    await channel.close()


@pytest.mark.needs("native_transport")
@pytest.mark.parametrize("target", ["ssops://router:7300", "dns:///router:7300", "ipv4:10.0.0.1:7300,10.0.0.2:7300"])
async def test_tls_and_resolvers_stay_with_grpc_and_that_is_said(target: str, caplog: pytest.LogCaptureFixture) -> None:
    open_channel = channel_opener("native")
    assert open_channel is not None
    channel = open_channel(parse_target(target))
    assert isinstance(channel, grpc.aio.Channel)
    assert "gRPC's own transport" in caplog.text
    await channel.close()

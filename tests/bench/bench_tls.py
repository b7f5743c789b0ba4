"""What TLS costs a call between services: `python tests/bench/bench_tls.py [--calls N]`.

An echo over loopback in one process, in plain text and with certificates on both sides: microseconds of a unary call,
of a connection with its first call, and megabytes a second of a stream.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop

from helpers.certificates import make_authority, make_certificate
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.grpc_peer import connect
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Principal
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import NO_TLS, Tls, open_tls

_CHUNK = bytes(4_096)
_CHUNKS = 2_000
_ROUNDS = 5


async def _echo(call: Call) -> None:
    await call.write(call.request)


async def _pour(call: Call) -> None:
    for _ in range(_CHUNKS):
        await call.write(_CHUNK)


async def bench(tls: Tls, calls: int) -> dict[str, float]:
    """Medians of five rounds."""
    methods = [Method("/bench/Echo", Arity.UNARY, _echo), Method("/bench/Pour", Arity.SERVER_STREAM, _pour)]
    server = await start_server(
        [Service("bench", methods)], ["127.0.0.1:0"], authenticate=lambda _: Principal("bench", "k"), tls=tls
    )
    address = server.addresses[0]
    peer = connect(address, tls=tls)
    await peer.unary("/bench/Echo", b"x", timeout_s=30)
    unary, fresh, rates = [], [], []
    for _ in range(_ROUNDS):
        started_s = time.perf_counter()
        for _ in range(calls):
            await peer.unary("/bench/Echo", b"x", timeout_s=30)
        unary.append((time.perf_counter() - started_s) / calls * 1e6)
        started_s = time.perf_counter()
        await peer.stream("/bench/Pour", b"", lambda _: None, timeout_s=60)
        rates.append(_CHUNKS * len(_CHUNK) / (time.perf_counter() - started_s) / 1e6)
        started_s = time.perf_counter()
        for _ in range(calls // 20 or 1):
            other = connect(address, tls=tls)
            await other.unary("/bench/Echo", b"x", timeout_s=30)
            await other.close()
        fresh.append((time.perf_counter() - started_s) / (calls // 20 or 1) * 1e6)
    await peer.close()
    await server.stop(0)
    return {
        "unary_us": round(statistics.median(unary), 1),
        "connection_us": round(statistics.median(fresh), 1),
        "stream_mb_per_s": round(statistics.median(rates), 1),
    }


async def main(calls: int) -> dict[str, Any]:
    """Both, and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = make_authority(folder)
        own = make_certificate(folder, authority)
        table = TlsSettings(
            certificate_file=own.certificate, key_file=own.key, ca_file=authority.certificate, mutual=["cache"]
        )
        plain = await bench(NO_TLS, calls)
        secure = await bench(open_tls(table, "cache"), calls)
    ratios = {key: round(secure[key] / plain[key], 2) for key in plain}
    return {"plain": plain, "mutual_tls": secure, "ratio": ratios}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    found = uvloop.run(main(parser.parse_args().calls))
    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), **found}))

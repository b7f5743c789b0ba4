"""What both ends of the reference transport, grpc.aio, have in common. Messages are bytes.

The defaults of gRPC buffer megabytes for a reader that has stopped and notice a dead peer after a minute, so the
windows are small, the bandwidth probe is off, and pings have a time-out of their own.
"""

from typing import Final, Literal

import grpc

STATUS_DETAILS: Final = "grpc-status-details-bin"
_MAX_METADATA_BYTES: Final = 8192
_LOOKAHEAD_BYTES: Final = 16384
COMPRESSIONS: Final = {"none": None, "gzip": grpc.Compression.Gzip}

Compression = Literal["none", "gzip"]
"""As MeshSettings.compression."""
Options = list[tuple[str, int]]
WINDOWS: Final[Options] = [
    ("grpc.http2.lookahead_bytes", _LOOKAHEAD_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
]
# Pings every 5 s and a dead peer known after 7: keepalive_timeout alone does not bound it, ping_timeout does.
KEEPALIVE: Final[Options] = [
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
]

"""Batches of requests and commands of Redis as bytes: by compiled code, or by its slow twin where that is not built."""

from ssop_cache._messages_py import read_admit, read_commit, read_settle

try:
    from ssop_cache._messages import pack, read_batch, write_admitted, write_batch, write_concluded
except ImportError:
    from ssop_cache._messages_py import pack, read_batch, write_admitted, write_batch, write_concluded

__all__ = [
    "pack",
    "read_admit",
    "read_batch",
    "read_commit",
    "read_settle",
    "write_admitted",
    "write_batch",
    "write_concluded",
]

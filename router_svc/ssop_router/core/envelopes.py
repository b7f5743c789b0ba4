"""What requests ask of the cache service and hear from it, as bytes: compiled where the extension is built.

Admissions, settlements and commits are each written once, and put into a batch as they are; of a reply only what is
needed is read.
"""

try:
    from ssop_router.core._envelopes import (
        read_admitted,
        read_outcomes,
        write_admission,
        write_batch,
        write_commit,
        write_settlement,
    )
except ImportError:
    from ssop_router.core._envelopes_py import (
        read_admitted,
        read_outcomes,
        write_admission,
        write_batch,
        write_commit,
        write_settlement,
    )

__all__ = ["read_admitted", "read_outcomes", "write_admission", "write_batch", "write_commit", "write_settlement"]

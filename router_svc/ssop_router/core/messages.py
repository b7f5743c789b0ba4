"""What a router says to nodes and clients with each request, as bytes: compiled where the extension is built."""

try:
    from ssop_router.core._messages import write_accounting, write_decision, write_request
except ImportError:
    from ssop_router.core._messages_py import write_accounting, write_decision, write_request

__all__ = ["write_accounting", "write_decision", "write_request"]

"""What reflection tells clients of services: the descriptors of this process."""

from typing import Any

from google.protobuf import descriptor_pool


class MethodPool:
    """The descriptors of this process, methods among them: some clients of reflection ask for these by name."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - the pool's name
        """The file of a message, service or method. Raises KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            return found.file

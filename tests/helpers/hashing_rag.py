"""The process `ssop-rag` with the hashing embedder, for tests that make thousands of changes."""

from collections.abc import Callable, Mapping
from typing import Any

from helpers.rag import HashingEmbedder
from ssop_rag import main


class _Hashing(Mapping[str, Callable[..., HashingEmbedder]]):
    """The hashing embedder under every name."""

    def __getitem__(self, name: str) -> Callable[..., HashingEmbedder]:
        return lambda *_: HashingEmbedder()

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


if __name__ == "__main__":
    vars(main)["EMBEDDERS"] = _Hashing()
    main.run()

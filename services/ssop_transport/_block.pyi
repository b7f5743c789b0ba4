from typing import Any

class Block:
    meaning: Any
    @property
    def pairs(self) -> list[tuple[bytes, bytes]]: ...

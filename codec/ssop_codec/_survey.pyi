from typing import final

@final
class Survey:
    """What a chunk holds. `kinds` has a bit for each kind, with bit 63 for all from 63 on. `values`: VALUE frames.

    `is_clean`: frames, and nothing of a later version beside them. `is_plain`: fields, parts and closes of documents
    and nothing else. `is_row`: the numbers of its document frames, from `first_seq` to `last_seq`, rise by one.
    `heads` is for `read_heads`.
    """

    @property
    def kinds(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def documents(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def is_clean(self) -> bool: ...
    @property
    def is_plain(self) -> bool: ...
    @property
    def is_row(self) -> bool: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def heads(self) -> bytes: ...

def survey(chunk: bytes, /) -> Survey: ...
def select(chunk: bytes, kinds: int, /) -> bytes: ...
def bodies(chunk: bytes, kind: int, /) -> list[bytes]: ...
def read_heads(heads: bytes) -> list[tuple[int, int, int]]: ...

class Course:
    """The document of one request on its way: where it stands, and its chunks up to `limit_bytes` in all."""

    last_seq: int
    """Sequence number of the last frame; 0 before the first."""
    def __init__(self, limit_bytes: int) -> None: ...
    @property
    def is_kept(self) -> bool:
        """Nothing is missing from `chunk`."""
    @property
    def chunk(self) -> bytes:
        """All frames; none where they were too many."""
    def add(self, chunk: bytes, frames: int) -> None:
        """The next `frames` document frames, and nothing else."""
    def follow(self, chunk: bytes) -> Survey | None:
        """Add a chunk that is the next fields and nothing else; None: it is to be looked at. Raises FrameError."""

def mesh_chunk(kind: int, payload: bytes, /) -> bytes:
    """A chunk with one mesh frame around a serialized Decision, DeliveryStatus, Accounting, Receipt,
    FieldLogprobs or Confidence message. Raises ValueError when `kind` is no mesh kind.
    """

"""Which passages stored answers drew on: what a replay cites must be told with it."""

from collections import OrderedDict
from typing import Final

from ssop.v1.inference_pb2 import Passage
from ssop_router.job import Job
from ssop_router.retrieval import Collections, Retrieval

_MAX_ANSWERS: Final = 4_096


class Citations:
    """Passages without their texts by the key of the answer, for recent answers of this router.

    A key names tenant, collections and their versions, so passages never cross tenants nor outlive a change.
    """

    def __init__(self, retrieval: Retrieval, max_answers: int = _MAX_ANSWERS) -> None:
        self._retrieval = retrieval
        self._max_answers = max_answers
        self._known: OrderedDict[bytes, list[Passage]] = OrderedDict()

    def remember(self, job: Job, key: bytes) -> None:
        """The answer of this key draws on the job's passages; nothing for an answer that has no key."""
        if not key:
            return
        self._known[key] = [Passage(ref=passage.ref) for passage in job.passages]
        self._known.move_to_end(key)
        if len(self._known) > self._max_answers:
            self._known.popitem(last=False)

    def known(self, key: bytes) -> list[Passage] | None:
        """The passages of an answer, where this router knows them."""
        known = self._known.get(key)
        return list(known) if known is not None else None

    async def recall(self, job: Job, key: bytes, collections: Collections) -> None:
        """Put the passages of an answer that was made before, or elsewhere, into the job. Raises Unavailable.

        Where they are not known here they are searched for again: at the same versions that finds the same.
        """
        known = self._known.get(key)
        if known is not None:
            job.passages = list(known)
            return
        if not collections.names:
            return
        found = await self._retrieval.retrieve(job)
        if found.index_version == collections.index_version and not found.is_lossy:
            job.passages = list(found.passages)
            self.remember(job, key)

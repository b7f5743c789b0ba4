"""A second look at the best passages by a model that reads query and passage together. Off unless a URL is set.

The order of the ranker stands when the reranker is late, fails, or is busy; the answer says so.
"""

import asyncio
import json
import logging
import math
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ssop_chassis.settings import SettingsError
from ssop_rag.core.model import FoundPassage
from ssop_rag.observations import RagMetrics

_log = logging.getLogger(__name__)
_MAX_RESPONSE_BYTES: Final = 1_048_576
_CHUNK_BYTES: Final = 65_536


class RerankError(Exception):
    """The reranker gave no usable scores. `why` is `failed`, `malformed` or `late`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the reranker gave no scores: {why}")
        self.why = why


class Reranker(Protocol):
    """Scores passages for a query. `score` blocks, and ends by the deadline."""

    @property
    def tag(self) -> str:
        """Name and model: answers of different tags are different answers."""
        ...

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """One finite number for each text, larger is better. Raises RerankError."""
        ...


class HttpReranker:
    """`POST url` with `{model, query, documents, top_n}`, as Cohere, Jina, vLLM and llama-server take it.

    Raises SettingsError for a URL that is not http or https. Redirects are not followed.
    """

    def __init__(self, url: str, model: str, key: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise SettingsError("[rag] rerank_url: must begin with http:// or https://")
        self.tag: Final = f"http/{model}"
        self._url = url
        self._model = model
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._opener = urllib.request.build_opener(_NoRedirect())

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """See Reranker."""
        deadline_s = time.monotonic() + timeout_s
        body = {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url, json.dumps(body).encode(), self._headers, method="POST"
        )
        data = bytearray()
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                while chunk := response.read1(_CHUNK_BYTES):
                    data += chunk
                    if time.monotonic() > deadline_s:
                        raise RerankError("late")
                    if len(data) > _MAX_RESPONSE_BYTES:
                        raise RerankError("malformed")
        except urllib.error.HTTPError as error:
            error.close()
            raise RerankError("failed") from error
        except TimeoutError as error:
            raise RerankError("late") from error
        except (OSError, ValueError) as error:  # URLError among them
            is_late = isinstance(getattr(error, "reason", None), TimeoutError)
            raise RerankError("late" if is_late else "failed") from error
        return _read_scores(bytes(data), len(texts))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: the redirect becomes an error."""


def _read_scores(data: bytes, count: int) -> list[float]:
    scores: dict[int, float] = {}
    try:
        for result in json.loads(data)["results"]:
            scores[int(result["index"])] = float(result["relevance_score"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise RerankError("malformed") from error
    if sorted(scores) != list(range(count)) or not all(map(math.isfinite, scores.values())):
        raise RerankError("malformed")
    return [scores[index] for index in range(count)]


@dataclass(frozen=True, slots=True)
class RerankLimits:
    """`depth` passages are scored, by `timeout_s`, at most `concurrent` at a time."""

    depth: int
    timeout_s: float
    concurrent: int


class Reranking:
    """The step after ranking, on threads of its own. Used from one event loop."""

    def __init__(self, reranker: Reranker | None, limits: RerankLimits, metrics: RagMetrics) -> None:
        self._reranker = reranker
        self._limits = limits
        self._metrics = metrics
        self._running = 0
        self._executor = ThreadPoolExecutor(limits.concurrent, thread_name_prefix="rag-rerank")

    @property
    def tag(self) -> str:
        """The reranker's; "" without one."""
        return self._reranker.tag if self._reranker is not None else ""

    def depth(self, top_k: int) -> int:
        """How many passages to find, so that `top_k` can be chosen from them."""
        return top_k if self._reranker is None else max(top_k, self._limits.depth)

    def close(self) -> None:
        """End the threads; what runs ends by its deadline."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def apply(
        self, query: str, passages: Sequence[FoundPassage], top_k: int
    ) -> tuple[Sequence[FoundPassage], bool]:
        """The best `top_k`, and whether the reranker was skipped."""
        if self._reranker is None or not passages:
            return passages[:top_k], False
        if self._running >= self._limits.concurrent:
            self._metrics.rerank("busy")
            return passages[:top_k], True
        try:
            scores = await self._score(self._reranker, query, [passage.text for passage in passages])
        except (RerankError, TimeoutError) as error:
            why = error.why if isinstance(error, RerankError) else "late"
            self._metrics.rerank(why)
            _log.warning("passages were not reranked", extra={"cause": why})
            return passages[:top_k], True
        self._metrics.rerank("done")
        scored = [
            FoundPassage(replace(passage.hit, score=score), passage.text)
            for passage, score in zip(passages, scores, strict=True)
        ]
        return sorted(scored, key=lambda passage: -passage.hit.score)[:top_k], False

    async def _score(self, reranker: Reranker, query: str, texts: list[str]) -> list[float]:
        timeout_s = self._limits.timeout_s
        loop = asyncio.get_running_loop()
        self._running += 1
        future = self._executor.submit(reranker.score, query, texts, timeout_s)
        # Its thread is free when it has ended, not when its caller has gone.
        future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._release))
        # Not wait_for: on Python 3.11 it can lose a cancel that comes together with the scores.
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future, loop=loop)

    def _release(self) -> None:
        self._running -= 1

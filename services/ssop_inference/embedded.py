"""A model in this process, run by llama.cpp through xllamacpp.

Threads: the engine has its own; each generation blocks one thread, so there are at most as many as slots; tokenising
and loading run in a small pool. Requests wait in our own bounded queue, so the engine never holds more than its
slots can run, and a request that is cancelled while it waits costs the engine nothing.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_inference.backend import Capabilities, GenerateRequest, Load, Outcome, Stop, Token
from ssop_inference.core.beginning import refuse_continuing
from ssop_inference.core.budget import Budget, fit_budget
from ssop_inference.core.constraint import Constraint, Mode, choose_constraint
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.prompt import TOOLS, ChatMessage, ControlTokens, render_plain
from ssop_inference.core.throughput import ThroughputMeter
from ssop_inference.engine_client import EngineClient, EngineError
from ssop_inference.gate import SchemaGate
from ssop_inference.gguf import GgufError, GgufHead, read_head
from ssop_inference.mask import TokenScorer
from ssop_inference.slots import Slot, SlotQueue
from ssop_inference.token_stream import TokenStream

_HELPER_THREADS: Final = 2
_HTTP_THREADS: Final = 2
_QUIET: Final = -1
_RANDOM_SEED: Final = 0xFFFF_FFFF
# Enough for the mask: what a grammar allows is seldom below the rank of so many.
_CANDIDATES: Final = 128
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the engine runs. `context_tokens` is for one slot."""

    path: Path
    context_tokens: int = 2048
    slots: int = 4
    threads: int = 1
    max_waiting: int = 64
    max_output_tokens: int = 512
    prefill_batch_tokens: int = 16
    prompt_cache_mib: int = 128
    limits: EngineLimits = field(default_factory=EngineLimits)


class _Engine:
    """The native server and what must go with it. Freed by `close`, or at the latest when the process exits."""

    def __init__(self, options: EmbeddedOptions) -> None:
        # Spinning OpenMP threads starve the rest of a small machine; the library reads this when it is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import xllamacpp  # noqa: PLC0415 - must come after the line above

        folder = Path(tempfile.mkdtemp(prefix="ssop-engine-"))  # mode 0700: the endpoint in it is ours alone
        api_key = secrets.token_urlsafe(32)
        params = xllamacpp.CommonParams()
        params.model.path = str(options.path)
        params.n_parallel = options.slots
        params.n_ctx = options.context_tokens * options.slots
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
        params.n_threads_http = _HTTP_THREADS
        # The engine looks for cancelled requests between two batches of a prompt.
        params.n_batch = params.n_ubatch = options.prefill_batch_tokens
        params.cache_ram_mib = options.prompt_cache_mib
        params.swa_full = True
        params.fit_params = False
        params.offline = True
        params.ui = False
        params.endpoint_slots = True
        params.verbosity = _QUIET
        params.api_keys = [api_key]
        params.hostnames = [str(folder / "engine.sock")]
        try:
            server = xllamacpp.Server(params)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._held: list[Any] = [server]
        self.client = EngineClient(folder / "engine.sock", api_key)
        self._finalizer = weakref.finalize(self, _free, self._held, folder)

    def complete(self, body: Mapping[str, Any], on_chunk: Any) -> Any:
        """Generate; blocks. `on_chunk` gets each piece in this thread and returns True to stop."""
        return self._held[0].handle_completions(dict(body), on_chunk)

    def close(self) -> None:
        """Free the engine; blocks until its threads have ended. Idempotent."""
        self._finalizer()


def _free(held: list[Any], folder: Path) -> None:
    held.clear()
    shutil.rmtree(folder, ignore_errors=True)


class EmbeddedGeneration:
    """See `backend.Generation`. `on_chunk` and `run` are called in a worker thread."""

    def __init__(
        self,
        stream: TokenStream,
        budget: Budget,
        slot: Slot,
        meter: ThroughputMeter,
        *,
        mask_grammar: str | None = None,
    ) -> None:
        """`mask_grammar`: give log-probabilities after the mask of this grammar."""
        self._stream = stream
        self._mask_grammar = mask_grammar
        self._score = TokenScorer(None)
        self._budget = budget
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._error: BaseException | None = None
        self._stop = Stop.CANCELLED
        self._output_tokens = 0
        self._cached_tokens = 0
        self._is_metered = False
        self.queue_s = slot.queue_s

    @property
    def outcome(self) -> Outcome:
        """See `backend.Generation`."""
        return Outcome(self._stop, self._budget.input_tokens, self._output_tokens, self._cached_tokens)

    @property
    def is_over(self) -> bool:
        """See `backend.Generation`."""
        return self._stream.is_closed

    async def read(self) -> Sequence[Token]:
        """See `backend.Generation`."""
        tokens = await self._stream.read()
        if tokens:
            if not self._is_metered:
                # Reading the prompt is not generating.
                self._is_metered = True
                self._meter.start(self._loop.time())
            self._meter.add(len(tokens), self._loop.time())
        return tokens

    def settle(self) -> None:
        """The engine has let go: stop counting its time."""
        if self._is_metered:
            self._is_metered = False
            self._meter.stop(self._loop.time())

    def cancel(self) -> None:
        """See `backend.Generation`."""
        self._stream.cancel()

    def run(self, engine: _Engine, body: Mapping[str, Any]) -> None:
        """Generate to the end; never raises."""
        try:
            self._score = TokenScorer(self._mask_grammar)
            engine.complete(body, self.on_chunk)
        except (RuntimeError, ValueError, TypeError) as error:  # what the binding raises for a refused request
            self._error = self._error or error
        if self._stop is Stop.CANCELLED and not self._stream.should_stop():
            self._error = self._error or EngineError("the engine ended without a reason")
        failure = None
        if self._error is not None:
            _log.error("the engine failed", extra={"cause": describe(self._error)})
            failure = MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model engine failed")
            failure.__cause__ = self._error
        self._stream.finish(failure)

    def on_chunk(self, chunk: Mapping[str, Any]) -> bool:
        """Take one piece; True stops the engine."""
        try:
            return not self._take(chunk)
        except Exception as error:  # noqa: BLE001 - the engine swallows it, so it is kept and raised by `read`
            self._error = error
            return True

    def _take(self, chunk: Mapping[str, Any]) -> bool:
        if "error" in chunk:
            raise EngineError(str(chunk["error"].get("type", "unknown")))
        if timings := chunk.get("timings"):
            self._output_tokens = int(timings["predicted_n"])
            self._cached_tokens = int(timings["cache_n"])
        choice = chunk["choices"][0]
        if text := choice.get("text"):
            if not self._stream.push(Token(text.encode(), self._score(text.encode(), choice))):
                return False
        elif self._stream.should_stop():
            return False
        reason = choice.get("finish_reason")
        if reason == "length":
            self._stop = Stop.CONTEXT_FULL if self._budget.is_context_bound else Stop.OUTPUT_LIMIT
        elif reason is not None:
            self._stop = Stop.END
        return True


class EmbeddedBackend:
    """See `backend.Backend`. Belongs to one event loop."""

    def __init__(self, name: str, options: EmbeddedOptions, *, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when `load_now` changes."""
        self.name = name
        self._options = options
        self._engine: _Engine | None = None
        self._head: GgufHead | None = None
        self._sha256 = ""
        self._longest_token_chars = 1
        self._gate = SchemaGate()
        self.control = ControlTokens()
        self._helpers = ThreadPoolExecutor(_HELPER_THREADS, thread_name_prefix=f"tokenize-{name}")
        loop = asyncio.get_running_loop()
        self._queue = SlotQueue(options.slots, max_waiting=options.max_waiting, clock=loop.time, on_change=on_change)
        self._meter = ThroughputMeter()
        self._running: dict[EmbeddedGeneration, threading.Thread] = {}
        self._changed = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        """See `backend.Backend`."""
        return Capabilities(
            self._options.context_tokens,
            self._options.slots,
            has_logprobs=True,
            strictest_mode=Mode.FULL,
            weights_sha256=self._sha256,
            kind="embedded",
            has_prefill=True,
            features=(TOOLS,),
            has_marked_calls=True,
        )

    def load_now(self) -> Load:
        """See `backend.Backend`."""
        queue = self._queue
        return Load(queue.busy, queue.waiting, queue.queue_s, self._meter.tokens_per_s)

    async def load(self) -> None:
        """See `backend.Backend`."""
        try:
            head, self._sha256, self._engine = await self._in_helper(self._open)
        except (OSError, GgufError, RuntimeError) as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_FAILED, f"model {self.name} can't be loaded: {error}"
            ) from error
        self._head = head
        self._longest_token_chars = head.longest_token_chars
        self.control = ControlTokens(head.control_tokens)
        trained = head.context_tokens
        if trained and trained < self._options.context_tokens:
            _log.warning(
                "the model was trained for less context than is set",
                extra={"model": self.name, "trained_tokens": trained, "set_tokens": self._options.context_tokens},
            )

    def _open(self) -> tuple[GgufHead, str, _Engine]:
        head = read_head(self._options.path)
        with self._options.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return head, digest, _Engine(self._options)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `backend.Backend`."""
        return choose_constraint(schema, self._gate, self._options.limits, format_assertion=format_assertion)

    def check_grammar(self, grammar: str) -> str:
        """See `backend.Backend`."""
        return self._gate.try_grammar(grammar)

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """See `backend.Backend`."""
        tokens, _ = await self._tokenize(messages)
        return len(tokens)

    async def _tokenize(self, messages: Sequence[ChatMessage], beginning: str = "") -> tuple[list[int], int]:
        """The tokens of a prompt with the beginning of its answer, and how many of them are the beginning's."""
        engine, head = self._loaded()

        def tokenize() -> tuple[list[int], int]:
            if head.has_chat_template:
                tokens = engine.client.tokenize(engine.client.render(messages), parse_special=True)
            else:
                tokens = engine.client.tokenize(render_plain(messages), parse_special=False)
            begun = engine.client.tokenize(beginning, parse_special=False, is_begun=True) if beginning else []
            return tokens + begun, len(begun)

        try:
            return await self._in_helper(tokenize)
        except EngineError as error:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model engine does not tokenise") from error

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[EmbeddedGeneration]:
        """See `backend.Backend`."""
        # What is hopelessly long is refused by its least possible count, before megabytes are tokenised.
        chars = sum(len(message.content) for message in request.messages) + len(request.beginning)
        self._fit(chars // self._longest_token_chars, request)
        grammar = request.constraint.grammar
        # The engine would go on without a word, and without the grammar.
        if request.beginning and grammar is not None and (refusal := self._gate.try_grammar(grammar)):
            raise refuse_continuing(f"the engine can't compile the rest of the schema: {refusal}"[:500])
        tokens, begun_tokens = await self._tokenize(request.messages, request.beginning)
        budget = self._fit(len(tokens), request, begun_tokens)
        slot = await self._queue.take(priority=request.priority, deadline_s=request.deadline_s)
        loop = asyncio.get_running_loop()
        stream = TokenStream(loop)
        generation = EmbeddedGeneration(
            stream, budget, slot, self._meter, mask_grammar=request.constraint.grammar if request.confidence else None
        )
        try:
            engine, _ = self._loaded()
            body = _body(request, tokens, budget)
            # A plain thread and not one of an executor: at exit, executors are joined before threads can notice it.
            thread = threading.Thread(
                target=self._run, args=(generation, engine, body, loop, slot), name=f"generate-{self.name}"
            )
            thread.start()
        except BaseException:
            slot.release()
            raise
        self._running[generation] = thread
        try:
            yield generation
        finally:
            generation.cancel()

    def _fit(self, input_tokens: int, request: GenerateRequest, begun_tokens: int = 0) -> Budget:
        asked_tokens = request.sampling.max_output_tokens
        return fit_budget(
            input_tokens,
            context_tokens=self._options.context_tokens,
            asked_tokens=asked_tokens and max(1, asked_tokens - begun_tokens),
            default_tokens=max(1, self._options.max_output_tokens - begun_tokens),
        )

    def _run(
        self,
        generation: EmbeddedGeneration,
        engine: _Engine,
        body: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        slot: Slot,
    ) -> None:
        generation.run(engine, body)
        # The slot is free when the engine has let go of it, which may be after the caller has gone. When the loop
        # is closed nobody counts slots any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._finish, generation, slot)

    def _finish(self, generation: EmbeddedGeneration, slot: Slot) -> None:
        del self._running[generation]
        generation.settle()
        slot.release()
        self._changed.set()

    async def busy_engine_slots(self) -> int:
        """Slots that the engine itself counts as busy."""
        engine, _ = self._loaded()
        return await self._in_helper(engine.client.busy_slots)

    async def close(self) -> None:
        """See `backend.Backend`."""
        # Taken away first, so that nothing that waits can start.
        engine, self._engine = self._engine, None
        threads = list(self._running.values())
        for generation in self._running:
            generation.cancel()
        while self._running:
            self._changed.clear()
            await self._changed.wait()
        for thread in threads:
            thread.join()
        if engine is not None:
            await self._in_helper(engine.close)
        self._helpers.shutdown(wait=False)

    def _loaded(self) -> tuple[_Engine, GgufHead]:
        if self._engine is None or self._head is None:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_NOT_READY, f"model {self.name} is not loaded")
        return self._engine, self._head

    async def _in_helper(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._helpers, function)


def _body(request: GenerateRequest, tokens: Sequence[int], budget: Budget) -> dict[str, Any]:
    sampling = request.sampling
    body: dict[str, Any] = {
        "prompt": tokens,
        "max_tokens": budget.max_output_tokens,
        "stream": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": _RANDOM_SEED if sampling.seed is None else sampling.seed % _RANDOM_SEED,
        "cache_prompt": True,
        "timings_per_token": True,
        # A sign of life after each batch of the prompt, so that cancelling need not wait for the first token.
        "return_progress": True,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if request.constraint.grammar is not None:
        body["grammar"] = request.constraint.grammar
    if request.confidence:
        body["logprobs"] = _CANDIDATES if request.constraint.grammar is not None else 1
        body["post_sampling_probs"] = False
    elif request.logprobs:
        body["logprobs"] = 1
        # After the mask and the sampler where tokens are drawn; the greedy sampler leaves one candidate of
        # probability 1, so at temperature 0 it is the model's own probability.
        body["post_sampling_probs"] = sampling.temperature > 0
    return body

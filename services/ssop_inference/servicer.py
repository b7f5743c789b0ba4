"""InferenceService: from requests to the model, and from tokens to chunks."""

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from ssop.v1 import content_pb2, inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError
from ssop_chassis.tracing import AttributeValue, generation_span, is_traced
from ssop_codec import FrameKind, Schema, compile_schema, mesh_chunk, text_schema
from ssop_inference.backend import GenerateRequest, Outcome
from ssop_inference.core.beginning import Beginning, read_beginning, refuse_continuing
from ssop_inference.core.buffer import BufferEstimate
from ssop_inference.core.confidence import ConfidenceWriter, find_choices
from ssop_inference.core.constraint import LOST, TEXT, Constraint, Mode
from ssop_inference.core.prompt import TOOLS, ChatMessage, ControlTokens, build_messages, write_instruction
from ssop_inference.core.remainder import UnfinishableError, write_remainder
from ssop_inference.core.request import check_buffer, check_request, read_sampling
from ssop_inference.core.tools import Choice, parameters_text, read_tools, write_call
from ssop_inference.delivery import Delivery
from ssop_inference.metrics import NodeMetrics
from ssop_inference.node import Model, Node
from ssop_inference.tool_plan import ToolPlan, plan_tools

# Compiling takes milliseconds for schemas of this size, more for larger ones.
_INLINE_SCHEMA_CHARS: Final = 4096
# Reading takes 10 to 20 microseconds a frame.
_INLINE_BEGINNING_BYTES: Final = 4096
_log = logging.getLogger(__name__)
_Reader = tuple[str, str, ControlTokens]
"""For whom a plan is: another server may come in place of one, and a model's own tokens are known once it is loaded."""
_PlanKey = tuple[_Reader, str, bool]


@dataclass(frozen=True)
class Plan:
    """A schema as the codec and the model's engine see it."""

    schema: Schema
    constraint: Constraint
    instruction: str = ""
    """What a model is told of the schema, without its control tokens."""
    buffer: BufferEstimate | None = None

    @cached_property
    def status(self) -> bytes:
        """What an answer without passages begins with."""
        return _status_chunk(self.constraint, ())


_TEXT_PLAN: Final = Plan(text_schema(), TEXT)


class InferenceServicer:
    """See inference.proto."""

    def __init__(
        self, node: Node, metrics: NodeMetrics, *, max_schemas: int, warm_up_timeout_s: float, linger_ms: int = 0
    ) -> None:
        """`linger_ms`: of requests that name none; see `Outbox`."""
        self._node = node
        self._max_schemas = max_schemas
        self._warm_up_timeout_s = warm_up_timeout_s
        self._linger_ms = linger_ms
        self._metrics = {model.name: metrics.of(model.name) for model in node.models}
        for model in node.models:
            metrics.track_load(model.name, model.backend.load_now)
        self._plans: OrderedDict[_PlanKey, Plan] = OrderedDict()
        self._tool_plans: OrderedDict[tuple[_Reader, bytes], ToolPlan] = OrderedDict()

    async def generate(self, call: Call) -> None:
        """See inference.proto."""
        request = inference_pb2.InferenceServiceGenerateRequest.FromString(call.request)
        check_request(request)
        model = self._node.find_ready(request.model)
        prompt = request.prompt
        sampling = read_sampling(prompt)
        source = prompt.output_schema if prompt.HasField("output_schema") else None
        plan = _TEXT_PLAN if source is None else await self._plan(model, source)
        if prompt.logprobs and not model.backend.capabilities.has_logprobs:
            raise MeshError(
                ErrorReason.ERROR_REASON_LOGPROBS_UNSUPPORTED, f"model {model.name} gives no log-probabilities"
            )
        tools = await self._plan_tools(model, prompt, plan) if prompt.tools else None
        is_scored = bool(request.confidence_tokens) and model.backend.capabilities.has_logprobs
        confidence = None
        if request.confidence_tokens and tools is None:
            confidence = ConfidenceWriter(find_choices(plan.schema), request.confidence_tokens)
        beginning, rest = None, plan.constraint
        if request.HasField("continue_from"):
            if len(request.continue_from.chunk) <= _INLINE_BEGINNING_BYTES:
                beginning, rest = _read_rest(model, plan, request)
            else:
                beginning, rest = await asyncio.to_thread(_read_rest, model, plan, request)
        loop = running_loop()
        passages = request.passages
        announced = plan.constraint if tools is None else tools.announced
        is_plain = tools is None and not passages
        delivery = Delivery(
            call,
            loop=loop,
            request_id=request.request_id,
            schema=plan.schema,
            constraint=plan.constraint,
            buffer=plan.buffer,
            prompt=prompt,
            metrics=self._metrics[model.name],
            deadline_s=loop.time() + call.remaining_s(),
            linger_s=(prompt.linger_ms if prompt.HasField("linger_ms") else self._linger_ms) / 1000,
            status=plan.status if is_plain else _status_chunk(announced, passages),
            confidence=confidence,
            beginning=beginning,
            open_calls=None if tools is None else tools.writer(prompt),
        )
        backend_request = GenerateRequest(
            messages=_messages(model, plan, prompt, passages, tools),
            deadline_s=delivery.deadline_s,
            sampling=sampling,
            constraint=rest if tools is None else tools.constraint,
            logprobs=prompt.logprobs,
            confidence=is_scored,
            priority=request.priority,
            beginning=beginning.text if beginning is not None else "",
            tools=None if tools is None or tools.is_marked else tools.use,
        )
        if beginning is not None and delivery.is_whole:
            await delivery.end_whole()
            return
        if is_traced():
            await self._generate_traced(model, backend_request, delivery)
        else:
            async with model.backend.generate(backend_request) as generation:
                await delivery.run(generation)
        if source is not None and tools is None and delivery.has_lost_constraint:
            self._downgrade(model, source, plan)

    async def _generate_traced(self, model: Model, request: GenerateRequest, delivery: Delivery) -> None:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.request.temperature": request.sampling.temperature,
            "gen_ai.output.type": "text" if delivery.mode is Mode.TEXT else "json",
        }
        with generation_span(model.name, attributes) as annotate:
            async with model.backend.generate(request) as generation:
                await delivery.run(generation)
                annotate(_usage_attributes(generation.outcome))

    async def watch_status(self, call: Call) -> None:
        """See inference.proto."""
        watch = self._node.watch()
        try:
            while True:
                message = await watch.read()
                is_last = self._node.is_draining
                await call.write(message)
                if is_last:
                    return
        finally:
            watch.close()

    async def warm_up(self, call: Call) -> None:
        """See inference.proto."""
        request = inference_pb2.WarmUpRequest.FromString(call.request)
        models = [self._node.find_ready(request.model)] if request.model else self._node.models
        response = inference_pb2.WarmUpResponse()
        for model in models:
            timeout_s = min(self._warm_up_timeout_s, call.remaining_s())
            response.generation_ms[model.name] = await self._node.warm_up(model, timeout_s=timeout_s)
        await call.write(response.SerializeToString())

    async def count_tokens(self, call: Call) -> None:
        """See inference.proto."""
        request = inference_pb2.CountTokensRequest.FromString(call.request)
        model = self._node.find(request.model)
        prompt = request.prompt
        check_buffer(prompt.stream_buffer_size)
        plan = await self._plan(model, prompt.output_schema) if prompt.HasField("output_schema") else _TEXT_PLAN
        tools = await self._plan_tools(model, prompt, plan) if prompt.tools else None
        count = await model.backend.count_tokens(_messages(model, plan, prompt, (), tools))
        response = inference_pb2.CountTokensResponse(
            input_tokens=count, context_tokens=model.backend.capabilities.context_tokens, model=model.name
        )
        await call.write(response.SerializeToString())

    async def check_constraint(self, call: Call) -> None:
        """See inference.proto."""
        request = inference_pb2.CheckConstraintRequest.FromString(call.request)
        model = self._node.find(request.model)
        constraint = (await self._plan(model, request.output_schema)).constraint
        response = inference_pb2.CheckConstraintResponse(
            constraint_mode=_mode(constraint.mode),
            detail=constraint.detail,
            engine_limits=constraint.engine_limits,
            model=model.name,
        )
        await call.write(response.SerializeToString())

    async def _plan(self, model: Model, output_schema: content_pb2.OutputSchema) -> Plan:
        """The compiled schema. Raises SchemaError."""
        key = _plan_key(model, output_schema)
        text, asserts = key[1:]
        if (plan := self._plans.get(key)) is not None:
            self._plans.move_to_end(key)
            return plan
        if len(text) <= _INLINE_SCHEMA_CHARS:
            plan = _compile(model, text, format_assertion=asserts)
        else:
            plan = await asyncio.to_thread(_compile, model, text, format_assertion=asserts)
        self._plans[key] = plan
        while len(self._plans) > self._max_schemas:
            self._plans.popitem(last=False)
        return plan

    async def _plan_tools(self, model: Model, prompt: content_pb2.Prompt, plan: Plan) -> ToolPlan | None:
        """How the tools of a prompt are offered; None to a model that calls none. Raises SchemaError and
        CONTENT_UNSUPPORTED."""
        if TOOLS not in model.backend.capabilities.features:
            return None
        key = _reader(model), _tools_key(prompt)
        if (known := self._tool_plans.get(key)) is not None:
            self._tool_plans.move_to_end(key)
            return known
        plans = {
            tool.name: await self._plan(model, content_pb2.OutputSchema(json_schema=parameters_text(tool)))
            for tool in prompt.tools
        }
        use = read_tools(prompt)
        if use is None:
            return None
        schemas = {name: found.schema for name, found in plans.items()}
        held = {name: found.constraint for name, found in plans.items()}
        # One grammar for all of them is compiled, which takes as long as one schema of their size.
        arguments = (model.backend, use, schemas, held, plan.constraint)
        is_large = use.size_bytes > _INLINE_SCHEMA_CHARS
        found = await asyncio.to_thread(plan_tools, *arguments) if is_large else plan_tools(*arguments)
        self._tool_plans[key] = found
        while len(self._tool_plans) > self._max_schemas:
            self._tool_plans.popitem(last=False)
        return found

    def _downgrade(self, model: Model, output_schema: content_pb2.OutputSchema, plan: Plan) -> None:
        """Announce no more what the engine does not keep. It goes on without a word when a grammar gets too large."""
        _log.error(
            "the engine let go of a grammar",
            extra={"model": model.name, "mode": plan.constraint.mode.name, "schema": plan.schema.hash.hex()},
        )
        self._plans[_plan_key(model, output_schema)] = replace(plan, constraint=LOST)


def _read_rest(
    model: Model, plan: Plan, request: inference_pb2.InferenceServiceGenerateRequest
) -> tuple[Beginning, Constraint]:
    """What is final already, and what the model is held to from there. Raises REQUEST_INVALID and UNSUPPORTED."""
    beginning = read_beginning(request.continue_from.chunk, request.continue_from.next_seq)
    constraint = plan.constraint
    if beginning.is_whole:
        return beginning, constraint
    if request.prompt.tools or not model.backend.capabilities.has_prefill:
        raise refuse_continuing(f"model {model.name} can't go on from a text")
    if constraint.grammar is None:
        if constraint.mode in (Mode.FULL, Mode.RELAXED):
            # It would be held to a whole document, and begin anew.
            raise refuse_continuing(f"model {model.name} is held to the schema without a grammar of ours")
        return beginning, constraint
    try:
        grammar = write_remainder(constraint.schema, beginning)
    except UnfinishableError as error:
        raise refuse_continuing(str(error)) from error
    return beginning, replace(constraint, grammar=grammar)


def _plan_key(model: Model, output_schema: content_pb2.OutputSchema) -> _PlanKey:
    asserts = output_schema.format_assertion if output_schema.HasField("format_assertion") else True
    return _reader(model), output_schema.json_schema, asserts


def _reader(model: Model) -> _Reader:
    return model.name, model.backend.capabilities.kind, model.backend.control


def _tools_key(prompt: content_pb2.Prompt) -> bytes:
    """What the plan of a prompt's tools depends on."""
    part = content_pb2.Prompt(tools=prompt.tools, tool_choice=prompt.tool_choice)
    if prompt.HasField("output_schema"):
        part.output_schema.CopyFrom(prompt.output_schema)
    return hashlib.sha256(part.SerializeToString(deterministic=True)).digest()


def _compile(model: Model, text: str, *, format_assertion: bool) -> Plan:
    schema = compile_schema(text, format_assertion=format_assertion)
    tree = json.loads(text)
    constraint = model.backend.constrain(tree, format_assertion=format_assertion)
    instruction = model.backend.control.break_up(write_instruction(tree))
    return Plan(schema, constraint, instruction, BufferEstimate(schema.auto_buffer_bytes))


def _messages(
    model: Model, plan: Plan, prompt: content_pb2.Prompt, passages: Any, tools: ToolPlan | None
) -> tuple[ChatMessage, ...]:
    is_shown = plan.constraint.mode is Mode.ENVELOPE or (
        model.has_schema_in_prompt and plan.constraint.mode is not Mode.TEXT
    )
    instruction = plan.instruction if is_shown else ""
    if tools is not None:
        told = [tools.hint] if tools.use.choice is Choice.REQUIRED else [instruction, tools.hint]
        instruction = "\n\n".join(filter(None, told))
    capabilities = model.backend.capabilities
    return build_messages(
        prompt,
        passages,
        model.backend.control,
        instruction=instruction,
        features=capabilities.features,
        write_call=write_call if capabilities.has_marked_calls else None,
    )


def _usage_attributes(outcome: Outcome) -> dict[str, AttributeValue]:
    return {"gen_ai.usage.input_tokens": outcome.input_tokens, "gen_ai.usage.output_tokens": outcome.output_tokens}


def _status_chunk(constraint: Constraint, passages: Iterable[inference_pb2.Passage]) -> bytes:
    status = mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_OK,
        constraint_mode=_mode(constraint.mode),
        engine_limits=constraint.engine_limits,
        passages=[passage.ref for passage in passages],
    )
    return mesh_chunk(FrameKind.STATUS, status.SerializeToString())


def _mode(mode: Mode) -> mesh_pb2.ConstraintMode.ValueType:
    return mesh_pb2.ConstraintMode.ValueType(int(mode))

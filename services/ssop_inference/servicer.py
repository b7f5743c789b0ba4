# cython: annotation_typing=False
"""InferenceService: from requests to the model, and from tokens to chunks."""

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ssop.v1 import content_pb2, inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError
from ssop_chassis.tracing import AttributeValue, generation_span, is_traced
from ssop_codec import compile_schema
from ssop_inference.backend import GenerateRequest, Outcome
from ssop_inference.core.asking import read_request
from ssop_inference.core.beginning import Beginning, read_beginning, refuse_continuing
from ssop_inference.core.buffer import BufferEstimate
from ssop_inference.core.confidence import ConfidenceWriter, find_choices
from ssop_inference.core.constraint import LOST, Constraint, Mode
from ssop_inference.core.prompt import TOOLS, ChatMessage, ControlTokens, build_messages, read_turns, write_instruction
from ssop_inference.core.remainder import UnfinishableError, write_remainder
from ssop_inference.core.request import Asked, check_buffer
from ssop_inference.core.tools import Choice, parameters_text, read_tools, write_call
from ssop_inference.delivery import Delivery, Terms
from ssop_inference.metrics import NodeMetrics
from ssop_inference.node import Model, Node
from ssop_inference.plan import TEXT_PLAN, Manner, Plan, mode_number, status_chunk
from ssop_inference.tool_plan import ToolPlan, plan_tools

# Compiling takes milliseconds for schemas of this size, more for larger ones.
_INLINE_SCHEMA_CHARS: Final = 4096
# Reading takes 10 to 20 microseconds a frame.
_INLINE_BEGINNING_BYTES: Final = 4096
_log = logging.getLogger(__name__)
_Reader = tuple[str, str, ControlTokens]
"""For whom a plan is: another server may come in place of one, and a model's own tokens are known once it is loaded."""
_PlanKey = tuple[_Reader, str, bool]


class InferenceServicer:
    """See inference.proto."""

    def __init__(
        self, node: Node, metrics: NodeMetrics, *, max_schemas: int, warm_up_timeout_s: float, linger_ms: int = 0
    ) -> None:
        """`linger_ms`: of requests that name none; see `Outbox`."""
        self._node = node
        self._max_schemas = max_schemas
        self._warm_up_timeout_s = warm_up_timeout_s
        self._terms = {model.name: Terms(metrics.of(model.name), linger_ms) for model in node.models}
        for model in node.models:
            metrics.track_load(model.name, model.backend.load_now)
        self._plans: OrderedDict[_PlanKey, Plan] = OrderedDict()
        self._tool_plans: OrderedDict[tuple[_Reader, bytes], ToolPlan] = OrderedDict()

    async def generate(self, call: Call) -> None:
        """See inference.proto."""
        asked = read_request(call.request)
        model = self._node.find_ready(asked.model)
        backend = model.backend
        capabilities = backend.capabilities
        plan = TEXT_PLAN
        if asked.schema_text is not None:
            key = (_reader(model), asked.schema_text, asked.asserts_format)
            plan = self._known_plan(key) or await self._make_plan(model, key)
        if asked.logprobs and not capabilities.has_logprobs:
            raise MeshError(
                ErrorReason.ERROR_REASON_LOGPROBS_UNSUPPORTED, f"model {model.name} gives no log-probabilities"
            )
        manner, rest, tools, constraint = plan.manner, asked.rest, None, plan.constraint
        if rest is not None or asked.confidence_tokens:
            if rest is not None and rest.prompt.tools:
                tools = await self._plan_tools(model, rest.prompt, plan)
            beginning = None
            if rest is not None and rest.HasField("continue_from"):
                beginning, constraint = await _read_rest(model, plan, rest)
            manner = _vary(asked, plan, tools, beginning)
        delivery = Delivery(call, running_loop(), self._terms[backend.name], asked, manner)
        if manner.beginning is not None and delivery.is_whole:
            await delivery.end_whole()
            return
        request = GenerateRequest(
            _messages(model, plan, asked, tools),
            delivery.deadline_s,
            asked.sampling,
            constraint if tools is None else tools.constraint,
            asked.logprobs,
            asked.confidence_tokens > 0 and capabilities.has_logprobs,
            asked.priority,
            "" if manner.beginning is None else manner.beginning.text,
            None if tools is None or tools.is_marked else tools.use,
        )
        if is_traced():
            await self._generate_traced(model, request, delivery)
        else:
            async with backend.generate(request) as generation:
                await delivery.run(generation)
        if delivery.has_lost_constraint and asked.schema_text is not None and tools is None:
            self._downgrade(model, asked, plan)

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
        plan = await self._plan_schema(model, prompt.output_schema) if prompt.HasField("output_schema") else TEXT_PLAN
        tools = await self._plan_tools(model, prompt, plan) if prompt.tools else None
        count = await model.backend.count_tokens(_messages_of(model, plan, prompt, (), tools))
        response = inference_pb2.CountTokensResponse(
            input_tokens=count, context_tokens=model.backend.capabilities.context_tokens, model=model.name
        )
        await call.write(response.SerializeToString())

    async def check_constraint(self, call: Call) -> None:
        """See inference.proto."""
        request = inference_pb2.CheckConstraintRequest.FromString(call.request)
        model = self._node.find(request.model)
        constraint = (await self._plan_schema(model, request.output_schema)).constraint
        response = inference_pb2.CheckConstraintResponse(
            constraint_mode=mode_number(constraint.mode),
            detail=constraint.detail,
            engine_limits=constraint.engine_limits,
            model=model.name,
        )
        await call.write(response.SerializeToString())

    def _known_plan(self, key: _PlanKey) -> Plan | None:
        plan = self._plans.get(key)
        if plan is not None:
            self._plans.move_to_end(key)
        return plan

    async def _make_plan(self, model: Model, key: _PlanKey) -> Plan:
        """Compile a schema. Raises SchemaError."""
        _, text, asserts_format = key
        if len(text) <= _INLINE_SCHEMA_CHARS:
            plan = _compile(model, text, format_assertion=asserts_format)
        else:
            plan = await asyncio.to_thread(_compile, model, text, format_assertion=asserts_format)
        self._plans[key] = plan
        while len(self._plans) > self._max_schemas:
            self._plans.popitem(last=False)
        return plan

    async def _plan(self, model: Model, text: str, *, asserts_format: bool) -> Plan:
        """The compiled schema. Raises SchemaError."""
        key = (_reader(model), text, asserts_format)
        return self._known_plan(key) or await self._make_plan(model, key)

    async def _plan_schema(self, model: Model, schema: content_pb2.OutputSchema) -> Plan:
        """The same for a message. Raises SchemaError."""
        asserts_format = schema.format_assertion if schema.HasField("format_assertion") else True
        return await self._plan(model, schema.json_schema, asserts_format=asserts_format)

    async def _plan_tools(self, model: Model, prompt: content_pb2.Prompt, plan: Plan) -> ToolPlan | None:
        """How a prompt's tools, of which there are some, are offered; None to a model that calls none.

        Raises SchemaError and CONTENT_UNSUPPORTED.
        """
        if TOOLS not in model.backend.capabilities.features:
            return None
        key = _reader(model), _tools_key(prompt)
        if (known := self._tool_plans.get(key)) is not None:
            self._tool_plans.move_to_end(key)
            return known
        plans = {
            tool.name: await self._plan(model, parameters_text(tool), asserts_format=True) for tool in prompt.tools
        }
        use = read_tools(prompt)
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

    def _downgrade(self, model: Model, asked: Asked, plan: Plan) -> None:
        """Announce no more what the engine does not keep. It goes on without a word when a grammar gets too large."""
        _log.error(
            "the engine let go of a grammar",
            extra={"model": model.name, "mode": plan.constraint.mode.name, "schema": plan.schema.hash.hex()},
        )
        self._plans[_reader(model), asked.schema_text or "", asked.asserts_format] = replace(plan, constraint=LOST)


def _vary(asked: Asked, plan: Plan, tools: ToolPlan | None, beginning: Beginning | None) -> Manner:
    """How an answer is written that is not as all others."""
    passages = () if asked.rest is None else asked.rest.passages
    announced = plan.constraint if tools is None else tools.announced
    confidence = None
    if asked.confidence_tokens and tools is None:
        confidence = ConfidenceWriter(find_choices(plan.schema), asked.confidence_tokens)
    return Manner(
        plan,
        plan.status if tools is None and not passages else status_chunk(announced, passages),
        confidence,
        beginning,
        None if tools is None else tools.writer(asked),
    )


async def _read_rest(
    model: Model, plan: Plan, request: inference_pb2.InferenceServiceGenerateRequest
) -> tuple[Beginning, Constraint]:
    """What is final already, and what the model is held to from there. Raises REQUEST_INVALID and UNSUPPORTED."""
    if len(request.continue_from.chunk) <= _INLINE_BEGINNING_BYTES:
        return _go_on(model, plan, request)
    return await asyncio.to_thread(_go_on, model, plan, request)


def _go_on(
    model: Model, plan: Plan, request: inference_pb2.InferenceServiceGenerateRequest
) -> tuple[Beginning, Constraint]:
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


def _reader(model: Model) -> _Reader:
    backend = model.backend
    return backend.name, backend.capabilities.kind, backend.control


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


def _messages(model: Model, plan: Plan, asked: Asked, tools: ToolPlan | None) -> tuple[ChatMessage, ...]:
    if asked.rest is None:
        return build_messages(asked.turns, (), model.backend.control, _instruction(model, plan, None))
    return _messages_of(model, plan, asked.rest.prompt, asked.rest.passages, tools)


def _messages_of(
    model: Model,
    plan: Plan,
    prompt: content_pb2.Prompt,
    passages: Sequence[inference_pb2.Passage],
    tools: ToolPlan | None,
) -> tuple[ChatMessage, ...]:
    capabilities = model.backend.capabilities
    return build_messages(
        read_turns(prompt, capabilities.features),
        passages,
        model.backend.control,
        _instruction(model, plan, tools),
        write_call if capabilities.has_marked_calls else None,
    )


def _instruction(model: Model, plan: Plan, tools: ToolPlan | None) -> str:
    """What the model is told besides of the schema and the tools."""
    mode = plan.constraint.mode
    is_shown = mode is Mode.ENVELOPE or (model.has_schema_in_prompt and mode is not Mode.TEXT)
    instruction = plan.instruction if is_shown else ""
    if tools is None:
        return instruction
    told = [tools.hint] if tools.use.choice is Choice.REQUIRED else [instruction, tools.hint]
    return "\n\n".join(filter(None, told))


def _usage_attributes(outcome: Outcome) -> dict[str, AttributeValue]:
    return {"gen_ai.usage.input_tokens": outcome.input_tokens, "gen_ai.usage.output_tokens": outcome.output_tokens}

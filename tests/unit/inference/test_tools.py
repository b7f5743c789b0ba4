"""Tools: their grammar, the marked form, and what a request's choice means."""

import json
from typing import Any

import llguidance
import pytest

from ssop.v1 import content_pb2
from ssop_inference.core.constraint import TEXT, Mode, choose_constraint
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.tokens import Token
from ssop_inference.core.tools import CallSplitter, Choice, ToolSpec, ToolUse, hold_to_calls, read_tools
from ssop_inference.gate import SchemaGate

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
SPECS = (ToolSpec("weather", "The weather.", CITY), ToolSpec("now", "", {"type": "object"}))


def grammar(use: ToolUse, answer: Any = None) -> str:
    """The grammar of an answer; `answer` is the schema of one without a call."""
    gate = SchemaGate()
    held = {spec.name: choose_constraint(spec.parameters, gate, EngineLimits()) for spec in use.specs}
    found = hold_to_calls(use, held, TEXT if answer is None else choose_constraint(answer, gate, EngineLimits()))
    assert found.grammar is not None
    assert gate.try_grammar(found.grammar) == ""
    return found.grammar


def accepts(text: str, written: str) -> bool:
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), text, log_level=0)
    data = written.encode()
    return bool(matcher.try_consume_tokens(list(data)) == len(data) and matcher.is_accepting())


CALL = '@tool weather\n{"city": "Oslo"}'


@pytest.mark.parametrize(
    ("use", "written", "is_taken"),
    [
        (ToolUse(SPECS, Choice.REQUIRED), CALL, True),
        (ToolUse(SPECS, Choice.REQUIRED), "@tool now\n{}", True),
        (ToolUse(SPECS, Choice.REQUIRED, "now"), CALL, False),
        (ToolUse(SPECS, Choice.REQUIRED), "It rains.", False),
        (ToolUse(SPECS, Choice.REQUIRED), '@tool weather\n{"city": "Bonn"}', False),
        (ToolUse(SPECS), "It rains.", True),
        (ToolUse(SPECS), "@home it rains.\nAlways.", True),
        (ToolUse(SPECS), CALL, True),
        (ToolUse(SPECS), "@tool unheard_of\n{}", False),
    ],
)
def test_a_grammar_lets_through_calls_and_what_else_may_be_said(use: ToolUse, written: str, is_taken: bool) -> None:
    assert accepts(grammar(use), written) == is_taken


def test_a_schema_of_the_answer_is_kept_beside_calls() -> None:
    text = grammar(ToolUse(SPECS), {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]})
    assert accepts(text, '{"a": 1}')
    assert accepts(text, CALL)
    assert not accepts(text, "It rains.")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_call_is_found_however_it_is_cut(size: int) -> None:
    splitter = CallSplitter()
    data = CALL.encode()
    found = splitter.split([Token(data[at : at + size]) for at in range(0, len(data), size)]) + splitter.end()
    assert {token.call for token in found} == {1}
    assert {token.name for token in found} == {"weather"}
    assert json.loads(b"".join(token.text for token in found)) == {"city": "Oslo"}


@pytest.mark.parametrize("text", ["", "@", "@too", "@tools", "It rains, says @tool weather\n{}"])
@pytest.mark.parametrize("size", [1, 4])
def test_a_text_stays_as_it_is(text: str, size: int) -> None:
    splitter = CallSplitter()
    found = splitter.split([Token(text[at : at + size].encode()) for at in range(0, len(text), size)]) + splitter.end()
    assert b"".join(token.text for token in found).decode() == text
    assert not any(token.call for token in found)


def test_the_only_tool_is_named_where_a_call_is_required() -> None:
    prompt = content_pb2.Prompt(tools=[content_pb2.Tool(name="now")])
    prompt.tool_choice.mode = content_pb2.TOOL_MODE_REQUIRED
    use = read_tools(prompt)
    assert (use.choice, use.name, use.specs[0].parameters) == (Choice.REQUIRED, "now", {"type": "object"})


def test_the_weakest_mode_of_what_may_be_written_is_announced() -> None:
    held = {"weather": choose_constraint(CITY, SchemaGate(), EngineLimits()), "now": TEXT}
    use = ToolUse(SPECS[:1], Choice.REQUIRED)
    assert hold_to_calls(use, held, TEXT).mode is Mode.FULL

"""One program of a user, with the official `openai` SDK: python one_client.py URL KEY. Prints what it got as JSON.

It knows nothing of the model behind the mesh: whatever that is, the same program gets answers of the same form.
"""

import json
import sys
from typing import Any, Final

import openai
import pydantic

MESSAGES: Final[Any] = [{"role": "user", "content": "The X200 is hot. Give a number and a word."}]
NO_CACHE: Final[Any] = {"ssop": {"policy": "no_cache"}}
TOOLS: Final[Any] = [
    {
        "type": "function",
        "function": {
            "name": "note",
            "description": "Keeps a note.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 20}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    }
]


class Note(pydantic.BaseModel):
    """What is asked for."""

    model_config = pydantic.ConfigDict(extra="forbid")

    a: int
    b: str = pydantic.Field(max_length=20)


def run(url: str, key: str) -> dict[str, Any]:
    """Everything that the program does."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)
    asked: dict[str, Any] = {"model": "auto", "messages": MESSAGES, "max_tokens": 60, "extra_body": NO_CACHE}
    whole = client.chat.completions.create(**asked)
    typed = client.chat.completions.parse(**asked, response_format=Note)
    assert typed.choices[0].message.parsed is not None
    choice: Any = {"type": "function", "function": {"name": "note"}}
    called = client.chat.completions.create(**asked, tools=TOOLS, tool_choice=choice)
    [call] = called.choices[0].message.tool_calls or []
    with client.chat.completions.stream(**asked, tools=TOOLS, tool_choice=choice) as stream:
        streamed = stream.get_final_completion().choices[0]
    [streamed_call] = streamed.message.tool_calls or []
    answered = client.chat.completions.create(
        **{**asked, "messages": [*MESSAGES, called.choices[0].message, result_of(call.id)]},
        tools=TOOLS,
        tool_choice="none",
    )
    return {
        "text": whole.choices[0].message.content,
        "note": typed.choices[0].message.parsed.model_dump(),
        "call": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
        "finish": called.choices[0].finish_reason,
        "streamed": {"name": streamed_call.function.name, "arguments": json.loads(streamed_call.function.arguments)},
        "streamed_finish": streamed.finish_reason,
        "answered": answered.choices[0].message.content,
        "tokens": whole.usage.total_tokens if whole.usage is not None else 0,
    }


def result_of(call_id: str) -> Any:
    """The message with a call's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": "It was noted."}


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:3])))

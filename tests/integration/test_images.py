"""Images in messages: to servers that are said to take them, and to nobody else."""

import base64
from typing import Any

import pytest

from helpers.inference import user_prompt
from helpers.upstream_node import upstream_node
from helpers.vendors import VENDORS
from ssop.v1 import content_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

R = ErrorReason
PICTURE = b"\x89PNG\r\n\x1a\nnot much of a picture"
DATA = base64.b64encode(PICTURE).decode()


def pictured(mime_type: str = "image/png", role: int = content_pb2.ROLE_USER) -> content_pb2.Prompt:
    """A prompt of a text, an image and a text."""
    prompt = user_prompt("What is this?")
    prompt.messages[0].role = content_pb2.Role.ValueType(role)
    prompt.messages[0].parts.add(image=content_pb2.Media(mime_type=mime_type, data=PICTURE))
    prompt.messages[0].parts.add(text="Be brief.")
    return prompt


async def test_an_image_reaches_openai_where_it_stood() -> None:
    vendor = VENDORS["openai"]
    async with upstream_node(vendor, vendor.stream(("A ", "cat.")), has_images=True) as under:
        assert "image" in (await under.running.client.status()).models[0].capabilities
        assert (await under.running.client.generate(pictured())).decoder.text == "A cat."
        content = under.upstream.of(vendor.path)[-1].body["messages"][0]["content"]
    assert content == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "text", "text": "Be brief."},
    ]


async def test_an_image_reaches_anthropic_where_it_stood() -> None:
    vendor = VENDORS["anthropic"]
    async with upstream_node(vendor, vendor.stream(("A ", "cat.")), has_images=True) as under:
        assert (await under.running.client.generate(pictured())).decoder.text == "A cat."
        content = under.upstream.of(vendor.path)[-1].body["messages"][0]["content"]
    assert content[1] == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, pictured()),
        ({"has_images": True}, pictured("image/tiff")),
        ({"has_images": True}, pictured(role=content_pb2.ROLE_SYSTEM)),
    ],
    ids=["not said to", "no such type", "not the user's"],
)
async def test_other_images_are_refused_by_name(fields: dict[str, Any], prompt: content_pb2.Prompt) -> None:
    vendor = VENDORS["openai"]
    async with upstream_node(vendor, vendor.stream(), **fields) as under:
        before = len(under.upstream.of(vendor.path))
        with pytest.raises(MeshError) as caught:
            await under.running.client.generate(prompt)
        assert len(under.upstream.of(vendor.path)) == before
    assert caught.value.reason == R.ERROR_REASON_CONTENT_UNSUPPORTED

"""A client process that counts frames and goes on where others give up: `counting_client.py TARGET KEY PROMPTS TIMES`.

Asks each of so many prompts so many times, sends receipts, and prints what it has received as JSON. Its last line says
whether the SDK reports a gap where one comes.
"""

import json
import sys
import uuid

import grpc

from ssop.v1 import content_pb2, mesh_pb2, router_pb2
from ssop_codec import Decoder
from ssop_codec.probes import stream_number
from ssop_sdk import FrameLoss, SsopClient

ITEMS = 20
SCHEMA = {
    "type": "array",
    "items": {"enum": ["good", "bad"]},
    "minItems": ITEMS,
    "maxItems": ITEMS,
}


def count(target: str, key: str, prompts: int, times: int) -> dict[str, int]:
    """Frames received, lost as the decoder knows, and answers, over all requests."""
    found = {"received": 0, "missing": 0, "answers": 0}
    receipts: list[mesh_pb2.Receipt] = []
    with grpc.insecure_channel(target) as channel:
        generate = channel.unary_stream(
            "/ssop.v1.RouterService/Generate",
            request_serializer=router_pb2.GenerateRequest.SerializeToString,
            response_deserializer=bytes,
        )
        # The last one is only asked to carry the receipt of the one before.
        for number in [*range(prompts * times), 0]:
            name = uuid.uuid4().hex
            request = router_pb2.GenerateRequest(request_id=name, receipts=receipts)
            message = request.prompt.messages.add(role=content_pb2.ROLE_USER)
            message.parts.add(text=f"Judge the parts of post {number % prompts}.")
            request.prompt.output_schema.json_schema = json.dumps(SCHEMA)
            decoder = Decoder(stream_id=stream_number(name))
            for chunk in generate(request, timeout=120, metadata=(("authorization", f"Bearer {key}"),)):
                decoder.feed(chunk)
            found["received"] += decoder.frames_received
            found["missing"] += decoder.missing
            found["answers"] += 1
            receipts = [
                mesh_pb2.Receipt(
                    request_id=name,
                    frames_received=decoder.frames_received,
                    frames_verified=decoder.frames_verified,
                    is_complete=True,
                )
            ]
    return found


def sees_gap(target: str, key: str) -> bool:
    """Whether the SDK raises FrameLoss within as many answers as a loss of 1 % takes."""
    with SsopClient(key, target, timeout_s=120) as client:
        for _ in range(2 * 100 // ITEMS):
            try:
                client.generate("Judge the parts of post 0.", output_schema=SCHEMA).result()
            except FrameLoss:
                return True
    return False


if __name__ == "__main__":
    target, key, prompts, times = sys.argv[1:]
    print(json.dumps(count(target, key, int(prompts), int(times))), flush=True)
    # What is counted so far is read by who started this, before there is more.
    sys.stdin.readline()
    print(json.dumps(sees_gap(target, key)), flush=True)

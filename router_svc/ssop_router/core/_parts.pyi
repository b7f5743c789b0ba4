from ssop.v1.content_pb2 import Prompt
from ssop_router.core.prompt import PromptParts

def read_parts(prompt: Prompt, wire: bytes) -> PromptParts: ...

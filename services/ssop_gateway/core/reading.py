"""What a request says: its JSON, its key, its id, what it accepts."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ssop_gateway.core.faults import EdgeError, invalid

SSOP_TYPE: Final = "application/x-ssop+json"
JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream"
NDJSON_TYPE: Final = "application/x-ndjson"
MAX_KEY_CHARS: Final = 512
MAX_POLICY_CHARS: Final = 256
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_FAULTS: Final = 8

Headers = Mapping[str, str]
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as the edge knows: nothing of it is judged here. The repr shows no key."""

    key: str
    request_id: str
    policy: str = ""
    traceparent: str = ""

    def __repr__(self) -> str:
        return f"Caller(request_id={self.request_id!r})"

    def metadata(self) -> dict[str, str | bytes]:
        """Metadata of a call into the mesh."""
        pairs = {
            "authorization": f"Bearer {self.key}",
            "x-ssop-request-id": self.request_id,
            "x-router-policy": self.policy,
            "traceparent": self.traceparent,
        }
        return {name: value for name, value in pairs.items() if value}


def is_request_id(text: str) -> bool:
    """Whether a text can name a request: 1 to 64 characters of `[A-Za-z0-9._:-]`."""
    return _REQUEST_ID.fullmatch(text) is not None


def read_caller(headers: Headers, request_id: str) -> Caller:
    """The key of `Authorization: Bearer` or `x-api-key`, the policy and the trace. Raises KEY_MISSING, KEY_INVALID."""
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    keys = {credentials.strip()} if scheme.lower() == "bearer" else set()
    if scheme and not keys:
        raise EdgeError("KEY_INVALID", "the header authorization is not `Bearer KEY`")
    if "x-api-key" in headers:
        keys.add(headers["x-api-key"].strip())
    keys.discard("")
    if not keys:
        raise EdgeError("KEY_MISSING", "there is no API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`")
    if len(keys) > 1:
        raise EdgeError("KEY_INVALID", "authorization and x-api-key hold different keys")
    key = keys.pop()
    if len(key) > MAX_KEY_CHARS or not _is_plain(key) or " " in key:
        raise EdgeError("KEY_INVALID", "the API key is malformed")
    policy = headers.get("x-router-policy", "").strip()
    if len(policy) > MAX_POLICY_CHARS or not _is_plain(policy):
        raise EdgeError("POLICY_INVALID", "the header x-router-policy is malformed")
    trace = headers.get("traceparent", "")
    return Caller(key, request_id, policy, trace if _TRACEPARENT.fullmatch(trace) else "")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def media_type(value: str) -> str:
    """The type of a Content-Type, in lower case, without its parameters."""
    return value.partition(";")[0].strip().lower()


def choose_type(accept: str, offered: tuple[str, ...]) -> str:
    """The offered type that an Accept header prefers (RFC 9110, 12.5.1); the first one where it does not care.

    Raises NOT_ACCEPTABLE.
    """
    if not accept.strip():
        return offered[0]
    best, best_rank = "", (0.0, 0)
    for part in accept.split(",")[:32]:
        name, _, parameters = part.strip().lower().partition(";")
        weight = _weight(parameters)
        for place, kind in enumerate(offered):
            family = f"{kind.partition('/')[0]}/*"
            exactness = 2 if name.strip() == kind else 1 if name.strip() in (family, "*/*") else 0
            rank = (weight, exactness * len(offered) + len(offered) - 1 - place)
            if exactness and weight > 0 and rank > best_rank:
                best, best_rank = kind, rank
    if not best:
        raise EdgeError("NOT_ACCEPTABLE", f"this resource comes as {', '.join(offered)}")
    return best


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises REQUEST_INVALID without quoting any of it."""
    if not body.strip():
        raise invalid("body", "is empty; a JSON object is expected")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        if _SURROGATE.search(body):
            # Halves of a pair that stand alone are no text, and protobuf takes none.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise invalid("body", "is not UTF-8 text") from None
    except RecursionError:
        raise invalid("body", "is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise invalid("body", f"is no JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise invalid("body", "has a number that can't be read") from None
    if not isinstance(value, dict):
        raise invalid("body", "must be a JSON object")
    return value


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def read_model(kind: type[M], value: Mapping[str, Any]) -> M:
    """A body as a model. Raises REQUEST_INVALID with every fault, none of which quotes a value."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        pairs = tuple((_path(fault["loc"]), fault["msg"]) for fault in faults[:_MAX_FAULTS])
        text = "; ".join(f"{path}: {message}" for path, message in pairs)
        raise EdgeError("REQUEST_INVALID", text, fields=pairs) from None


def _path(where: tuple[int | str, ...]) -> str:
    # Names of members come from the client and may be anything.
    text = ".".join(str(part) for part in where) or "body"
    return text if len(text) <= 128 and text.isprintable() else f"{text[:64].encode('ascii', 'replace').decode()!r}"

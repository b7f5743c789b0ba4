"""The OpenAPI document of the edge, made from the models that read its bodies."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ssop_gateway.core.chat_body import ChatBody
from ssop_gateway.core.generate_body import GenerateBody
from ssop_gateway.core.reading import JSON_TYPE, NDJSON_TYPE, SSE_TYPE, SSOP_TYPE

_REF: Final = "#/components/schemas/{model}"
_TEXTS: Final[dict[str, str]] = {
    "400": "Malformed, or something that the mesh has no place for; the error names it.",
    "401": "No key, or a wrong one.",
    "403": "The key lacks a scope.",
    "404": "No such path, model or stored answer.",
    "405": "The path takes other methods.",
    "406": "The resource does not come as what is accepted.",
    "408": "The body did not arrive in time.",
    "409": "A request with this id runs.",
    "413": "The body or the prompt is too large.",
    "415": "Not JSON, or output_schema without its content type.",
    "422": "The schema was refused, or the output does not conform.",
    "429": "A limit, a quota or a full queue.",
    "431": "The head of the request is too large.",
    "501": "This mesh does not serve that.",
    "502": "The answer was cut.",
    "503": "Nothing is left to serve.",
    "504": "The deadline passed.",
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code", "status", "reason"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
                "status": {"type": "integer"},
                "reason": {"type": "string"},
                "fields": {"type": "array", "items": {"type": "object"}},
                "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
                "retry_after_ms": {"type": "integer"},
                "request_id": {"type": "string"},
            },
        }
    },
}
_CHECK: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["output_schema"],
    "additionalProperties": False,
    "properties": {
        "output_schema": {"type": ["object", "boolean", "string"]},
        "stream_buffer_size": {"type": "integer", "minimum": 0, "maximum": 16384},
    },
}
_EMBEDDINGS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["input"],
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string", "maxLength": 256},
        "input": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 256},
            ]
        },
        "encoding_format": {"enum": ["float", "base64"]},
        "dimensions": {"type": ["integer", "null"]},
        "user": {"type": ["string", "null"]},
    },
}
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_ANY: Final[dict[str, Any]] = {}


def make_document(version: str) -> dict[str, Any]:
    """The document (OpenAPI 3.1)."""
    models: list[tuple[type[BaseModel], Any]] = [(GenerateBody, "validation"), (ChatBody, "validation")]
    _, schemas = models_json_schema(models, ref_template=_REF)
    forms = {SSE_TYPE: _ANY, NDJSON_TYPE: _ANY, SSOP_TYPE: _OBJECT}
    generate = _ref("GenerateBody")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SSOP Mesh",
            "version": version,
            "description": "Typed, checked, streaming answers of language models. docs/http.md has the whole story.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"apiKey": []}],
        "paths": {
            "/v1/generate": _post("Generate an answer.", {SSOP_TYPE: generate, JSON_TYPE: generate}, forms),
            "/v1/generate/{request_id}": _get(
                "Go on with an answer whose connection was lost.", parameter="request_id"
            ),
            "/v1/chat/completions": _post(
                "Generate an answer, for OpenAI's SDKs.",
                {JSON_TYPE: _ref("ChatBody")},
                {JSON_TYPE: _OBJECT, SSE_TYPE: _ANY},
            ),
            "/v1/embeddings": _post(
                "Embed texts; needs the scope rag.", {JSON_TYPE: _EMBEDDINGS}, {JSON_TYPE: _OBJECT}
            ),
            "/v1/explain": _post("Say where a request would go, and why.", {SSOP_TYPE: generate}, {JSON_TYPE: _OBJECT}),
            "/v1/schema/check": _post(
                "Say what the mesh makes of a schema.", {SSOP_TYPE: _CHECK}, {JSON_TYPE: _OBJECT}
            ),
            "/v1/models": _get("List the models."),
            "/v1/models/{model}": _get("Show a model.", parameter="model"),
            "/v1/mesh/status": _get("Say how the mesh is; needs the scope admin."),
            "/healthz": _get("The process lives.", is_open=True),
            "/readyz": _readiness(),
        },
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _readiness() -> dict[str, Any]:
    operation = _get("Requests should come.", is_open=True)
    operation["get"]["responses"]["503"] = {"description": "Not now.", "content": _content({JSON_TYPE: _OBJECT})}
    return operation


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=name)}


def _content(forms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in forms.items()}


def _responses(forms: dict[str, Any]) -> dict[str, Any]:
    errors = {
        status: {"description": text, "content": {JSON_TYPE: {"schema": _ref("Error")}}}
        for status, text in _TEXTS.items()
    }
    return {"200": {"description": "Done.", "content": _content(forms)}, **errors}


def _post(summary: str, bodies: dict[str, Any], forms: dict[str, Any]) -> dict[str, Any]:
    headers = {
        "x-request-id": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,64}$"},
        "x-router-policy": {"type": "string", "maxLength": 256},
        "x-request-timeout-ms": {"type": "integer", "minimum": 1, "maximum": 999999999},
    }
    return {
        "post": {
            "summary": summary,
            "parameters": [{"name": name, "in": "header", "schema": schema} for name, schema in headers.items()],
            "requestBody": {"required": True, "content": _content(bodies)},
            "responses": _responses(forms),
        }
    }


def _get(summary: str, *, parameter: str = "", is_open: bool = False) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": summary, "responses": _responses({JSON_TYPE: _OBJECT})}
    if parameter:
        operation["parameters"] = [{"name": parameter, "in": "path", "required": True, "schema": {"type": "string"}}]
    if is_open:
        operation["security"] = []
    return {"get": operation}

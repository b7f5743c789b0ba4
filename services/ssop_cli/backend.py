"""What `ssop backend probe` does and says."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ssop_chassis.errors import MeshError
from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_inference.assembly import build_upstream
from ssop_inference.models import ModelError
from ssop_inference.probing import Freed, Probe, probe_backend
from ssop_inference.settings import InferenceSettings, ModelSettings

_FREED_AT_ONCE_MS: Final = 100


def find_out(url: str, *, kind: str, model: str, key_file: Path | None, dialect: str, timeout_s: float) -> Probe:
    """Probe a server. Raises CommandError."""
    try:
        settings = ModelSettings.model_validate(
            {
                "name": "probe",
                "backend": kind,
                "url": url,
                "upstream_model": model,
                "api_key_file": key_file,
                "dialect": dialect,
            }
        )
    except ValidationError as error:
        text = "; ".join(
            str(fault["msg"]).removeprefix("Value error, ")
            for fault in error.errors(include_input=False, include_url=False)
        )
        raise CommandError(text, exit_code=EXIT_USAGE) from error
    try:
        return asyncio.run(_probe(settings, timeout_s))
    except ModelError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from error
    except TimeoutError as error:
        raise CommandError(f"the server was not done within {timeout_s:g} s", exit_code=EXIT_FAILED) from error
    except MeshError as error:
        raise CommandError(error.message, exit_code=EXIT_FAILED, reason=error.reason_name) from error


async def _probe(settings: ModelSettings, timeout_s: float) -> Probe:
    backend = build_upstream(InferenceSettings(), settings)
    try:
        return await probe_backend(backend, timeout_s=timeout_s)
    finally:
        await backend.close()


def probe_json(found: Probe) -> dict[str, Any]:
    """All of it as JSON."""
    return asdict(found)


def probe_lines(found: Probe) -> Iterator[tuple[str, str]]:
    """All of it for people: what, and how it is."""
    yield "dialect", found.dialect
    yield "model", found.model
    yield "context", f"{found.context_tokens} tokens" if found.context_tokens else "not said; set context_tokens"
    yield "slots", str(found.slots) if found.slots else "not said; set slots"
    detail = f" ({found.mode_detail})" if found.mode_detail else ""
    yield "schema", f"{found.mode}{detail}; a document of a small schema was {found.verdict}"
    yield "logprobs", "given" if found.has_logprobs else "not given"
    yield "counts", "the server's own" if found.has_usage else "estimated: the server does not say them"
    yield "load", f"{found.load_page}: {found.load}" if found.load_page else "not said"
    yield "first token", f"{found.first_token_ms} ms; then {found.tokens_per_s:.0f} tokens/s"
    yield "cancel", f"in the middle: {_freed(found.cancel_in_the_middle)}"
    yield "", f"before the first token: {_freed(found.cancel_before_the_first_token)}"


def _freed(freed: Freed) -> str:
    if freed.after_ms is None:
        return freed.why
    late = "" if freed.after_ms <= _FREED_AT_ONCE_MS else ", late"
    return f"the slot was free {freed.after_ms} ms later{late}"

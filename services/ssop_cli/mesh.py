"""Finding the mesh that a command talks to, and its errors in words."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from ssop.v1 import mesh_pb2
from ssop_cli.failure import EXIT_FAILED, EXIT_NO_MESH, EXIT_REFUSED, CommandError
from ssop_cli.places import Places
from ssop_cli.report import read_report
from ssop_cli.words import word
from ssop_sdk import (
    AuthenticationError,
    ConfigurationError,
    DeadlineExceeded,
    RetryPolicy,
    SchemaRefused,
    SsopClient,
    SsopError,
    Unavailable,
)

_ADVICE: Final[Mapping[str, str]] = {
    "KEY_MISSING": "set SSOP_API_KEY",
    "SCOPE_MISSING": "use a key that has the scope",
    "RATE_LIMITED": "wait, or raise max_rps in [cache]",
    "QUOTA_EXHAUSTED": "wait for the next window, or raise budget_tokens in [cache]",
    "CONTEXT_EXCEEDED": "shorten the text, or serve a model with a larger context",
    "NO_BACKEND": "'ssop status' shows the nodes",
    "BACKEND_FAILED": "'ssop status' shows the nodes",
    "DEADLINE_EXCEEDED": "give more time with --timeout",
    "MODEL_UNKNOWN": "leave --model out, or use a name of [router] models in ssop.toml",
}

_NEW_KEY: Final = "where that file is damaged, remove it and start the mesh again: it gets a new one"
_TLS_ADVICE: Final = "is it up, and is its authority known here (SSOP_TLS_CA=FILE, or ?ca=FILE in the target)?"
_QUOTA_ADVICE: Final[Mapping[str, str]] = {
    "passages": "delete documents with 'ssop index delete', or raise max_tenant_passages in [rag]",
    "snapshots": "delete one with 'ssop index snapshot delete', or raise max_snapshots in [rag]",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where the mesh is, and the key for it."""

    target: str
    api_key: str
    key_source: str = ""
    """What to do about a key that the mesh refuses, with where it was read."""

    @property
    def place(self) -> str:
        """The target without the files that it names."""
        return self.target.partition("?")[0]

    @property
    def is_tls(self) -> bool:
        """Whether it is reached over TLS."""
        return self.target.lower().startswith(("ssops://", "https://", "grpcs://"))


def find_access(places: Places, target: str | None, environ: Mapping[str, str] | None = None) -> Access:
    """Target and key: as given, from the environment, else those of the mesh of the state directory.

    Raises CommandError where there is neither.
    """
    environ = os.environ if environ is None else environ
    report = read_report(places.report)
    where = target or environ.get("SSOP_TARGET") or (report.target if report is not None else "")
    if not where:
        raise CommandError(
            f"no mesh is known: {places.state} has none and SSOP_TARGET is not set",
            advice="start one with: ssop up",
            exit_code=EXIT_NO_MESH,
            reason="NO_MESH",
        )
    if key := environ.get("SSOP_API_KEY", ""):
        return Access(where, key, "it is what SSOP_API_KEY says; without it the key of the state directory is taken")
    return Access(where, _read_key(places.client_key), f"it is what {places.client_key} holds; {_NEW_KEY}")


def _read_key(path: Path) -> str:
    """The key of a state directory. Raises CommandError where there is none."""
    try:
        key = path.read_text(encoding="ascii").strip()
        fault = "is empty"
    except FileNotFoundError:
        key, fault = "", "is not there"
    except UnicodeDecodeError:
        key, fault = "", "holds no key"
    except OSError as error:
        key, fault = "", f"can't be read ({error.strerror})"
    if not key:
        raise CommandError(
            f"there is no API key: SSOP_API_KEY is not set, and {path} {fault}",
            advice=f"set SSOP_API_KEY to a key of this mesh; {_NEW_KEY}",
            exit_code=EXIT_REFUSED,
            reason="KEY_MISSING",
        )
    return key


@contextmanager
def mesh_errors(access: Access) -> Iterator[None]:
    """Turn the SDK's errors into this program's."""
    try:
        yield
    except SsopError as error:
        raise explain(error, access) from error


@contextmanager
def open_client(access: Access, timeout_s: float, *, retry: RetryPolicy | None = None) -> Iterator[SsopClient]:
    """A client for one command; `timeout_s` is for each call. Its errors are CommandError."""
    with (
        mesh_errors(access),
        SsopClient(api_key=access.api_key, target=access.target, timeout_s=timeout_s, retry=retry) as client,
    ):
        yield client


def explain(error: SsopError, access: Access) -> CommandError:
    """An error of the SDK as one line with advice."""
    is_away = isinstance(error, Unavailable) and not error.from_mesh
    if is_away or (isinstance(error, DeadlineExceeded) and error.code is grpc.StatusCode.UNAVAILABLE):
        return CommandError(
            f"no mesh answers at {access.place}",
            advice=_TLS_ADVICE if access.is_tls else "start one with 'ssop up', or look at 'ssop status'",
            exit_code=EXIT_NO_MESH,
            reason="NO_MESH",
        )
    advice = access.key_source if error.reason == "KEY_INVALID" else _ADVICE.get(error.reason, "")
    if error.reason == "QUOTA_EXHAUSTED" and error.fields:
        advice = _QUOTA_ADVICE.get(error.fields[0][0], advice)
    if isinstance(error, SchemaRefused) and error.pointer:
        advice = f"the keyword at {error.pointer} is the cause"
    is_refusal = isinstance(error, AuthenticationError | ConfigurationError) or error.from_mesh
    return CommandError(
        f"{error.reason}: {error.message}" if error.message else error.reason,
        advice=advice,
        exit_code=EXIT_REFUSED if is_refusal else EXIT_FAILED,
        reason=error.reason,
    )


def tier_name(decision: mesh_pb2.Decision | None) -> str:
    """The tier of a decision."""
    return word(mesh_pb2.Tier, decision.tier, "TIER_") if decision is not None else ""


def cache_name(decision: mesh_pb2.Decision | None) -> str:
    """What a decision says about the cache."""
    return word(mesh_pb2.CacheReason, decision.cache_reason, "CACHE_REASON_") if decision is not None else ""


def decision_json(decision: mesh_pb2.Decision | None) -> dict[str, Any]:
    """A decision as JSON with words for enums."""
    if decision is None:
        return {}
    return {
        "request_id": decision.request_id,
        "tier": tier_name(decision),
        "tier_reason": word(mesh_pb2.TierReason, decision.tier_reason, "TIER_REASON_"),
        "node": decision.node,
        "node_reason": word(mesh_pb2.NodeReason, decision.node_reason, "NODE_REASON_"),
        "model": decision.model,
        "cache": cache_name(decision),
        "retrieval": word(mesh_pb2.RetrievalReason, decision.retrieval_reason, "RETRIEVAL_REASON_"),
        "policy": decision.policy,
        "complexity": decision.complexity if decision.HasField("complexity") else None,
        "score": decision.score if decision.HasField("score") else None,
        "rule": decision.rule,
        "abstention": decision.abstention,
        "weak_signals": list(decision.weak_signals),
        "is_cache_first": decision.is_cache_first,
        "cascade": word(mesh_pb2.CascadeReason, decision.cascade_reason, "CASCADE_REASON_"),
        "cascade_confidence": decision.cascade_confidence if decision.HasField("cascade_confidence") else None,
        "decision_us": decision.decision_us,
        "is_shared_model": decision.is_shared_model,
    }


def accounting_json(accounting: mesh_pb2.Accounting | None) -> dict[str, Any]:
    """Accounting as JSON; names are those of the API, zeros included."""
    if accounting is None:
        return {}
    numbers = {
        field.name: getattr(accounting, field.name)
        for field in accounting.DESCRIPTOR.fields
        if field.message_type is None
    }
    usage, discarded = accounting.usage, accounting.discarded_usage
    return {
        **numbers,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "discarded_input_tokens": discarded.input_tokens,
        "discarded_output_tokens": discarded.output_tokens,
    }

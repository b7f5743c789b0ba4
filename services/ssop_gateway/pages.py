"""The console page: fixed files of this package, under a policy that lets the page load nothing else."""

from importlib.resources import files
from typing import Final

from ssop_gateway.exchange import Exchange, Handle

_TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "frames.js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A page of an older mesh would speak to a newer one.
    "cache-control": "no-cache",
}


def console_handles() -> dict[str, dict[str, Handle]]:
    """The handlers of the page and of its files, by path."""
    folder = files("ssop_gateway") / "console"
    handles = {f"/console/{name}": {"GET": _fixed(name, (folder / name).read_bytes())} for name in _TYPES}
    handles["/console"] = handles.pop("/console/index.html")
    return handles


def _fixed(name: str, data: bytes) -> Handle:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, _TYPES[name], data, _HEADERS)

    return answer

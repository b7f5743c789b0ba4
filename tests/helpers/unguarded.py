"""A service with one of its guards switched off, for tests of the checkers: SSOP_TEST_WITHOUT names the guard.

`python -m helpers.unguarded --config PATH` runs the cache service where the file has its section listening there, else
the router.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import ssop_cache.main
import ssop_router.main
from ssop_cache import store
from ssop_cache.settings import CacheSettings
from ssop_chassis.serving import run_service
from ssop_router import outcomes
from ssop_router.core.success import Outcome
from ssop_router.settings import RouterSettings

_LEASES: Final = [
    ("lease and lease.fence == fence and lease.state == 'open' and now_ms < lease.expires_ms", "true"),
    ("if not record then return nil end", "record = record or '0 open 0 0 0 0 -'"),
    ("return false, false, 0 end", "return true, true, now_ms end"),
    ("return now_ms < expires_ms, sub(", "return true, sub("),
]
EDITS: Final = {
    "fencing": {
        **dict.fromkeys(("seal_leases", "conclude_requests", "append_chunk", "renew_leases"), _LEASES),
        "put_answers": [("was and tonumber(was) > tonumber(fence)", "false")],
    },
    "dedupe": {
        "conclude_requests": [
            ("state == SETTLED or seen[key]", "seen[key]"),
            ("if state == OPEN then used = number(ARGV[at]) end", "used = number(ARGV[at])"),
            ("sub(record, 5, 22), sub(record, 23)", "match(record, '^%l+( %x+ )(%d+)$')"),
        ],
    },
}
"""By guard and script: what to put in the place of what."""


def edit_scripts(scripts: dict[str, str], guard: str) -> dict[str, str]:
    """The scripts without a guard. Raises LookupError where a script does not hold what is to be replaced."""
    edited = dict(scripts)
    for name, edits in EDITS.get(guard, {}).items():
        for old, new in edits:
            if old not in edited[name]:
                raise LookupError(f"{name} does not hold {old!r}")
            edited[name] = edited[name].replace(old, new)
    return edited


def main() -> None:
    """Run the service."""
    guard = os.environ["SSOP_TEST_WITHOUT"]
    config = Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
    if guard == "neutral cancels":
        names = {outcome.name: outcome for outcome in Outcome}
        vars(outcomes)["Outcome"] = SimpleNamespace(**names | {"NEUTRAL": Outcome.FAILURE})
    scripts = edit_scripts(store.load_scripts(), guard)
    store.load_scripts = lambda: scripts
    if "[cache]" in config:
        run_service("cache", CacheSettings, ssop_cache.main.build)
    run_service("router", RouterSettings, ssop_router.main.build)


if __name__ == "__main__":
    main()

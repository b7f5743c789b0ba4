"""Guards that tests switch off are there to be switched off."""

import pytest

from helpers.unguarded import EDITS, edit_scripts
from ssop_cache import store


@pytest.mark.parametrize("guard", EDITS)
def test_scripts_hold_what_a_guard_is_switched_off_by(guard: str) -> None:
    scripts = store.load_scripts()
    edited = edit_scripts(scripts, guard)
    assert {name for name in scripts if edited[name] != scripts[name]} == set(EDITS[guard])

"""How commands end."""

import pytest
import typer

from ssop_cli.failure import CommandError
from ssop_cli.terminal import guard


@pytest.mark.parametrize("control", ["\x1b", "\x9b", "\u202e"])
def test_an_error_that_quotes_a_stranger_does_not_move_the_cursor(
    control: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"/a{control}[2J: is unknown"
    with pytest.raises(typer.Exit), guard(is_json=False):
        raise CommandError(said, advice=said)
    shown = capsys.readouterr().err
    assert control not in shown
    assert shown.count("is unknown") == 2

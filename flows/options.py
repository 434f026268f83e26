"""What the command's groups share: common options, the settings of a call, and how an outcome ends it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dice_core.settings import Settings, apply_environment
from flows import console

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, change nothing.")]


def settings_of(context: typer.Context, **flags: Any) -> Settings:
    """Settings of this call; also prepares the environment that third-party libraries read."""
    common = context.find_root().obj
    settings = Settings.load({"home": common["home"], **flags}, config_file=common["config"])
    apply_environment(settings.home)
    return settings


def finish(outcome: Any, as_json: bool) -> None:
    """Print an outcome and exit with its code (0, or 5 when items were quarantined or failed)."""
    if as_json:
        console.print_json(outcome.as_dict())
    else:
        for line in outcome.lines():
            console.out.print(line, markup=False)
    raise typer.Exit(outcome.exit_code)

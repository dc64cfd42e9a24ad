"""`penstock config show`: every setting, its value and the source of the value."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli import options, settings
from penstock.cli.output import print_json, print_table

app = typer.Typer()


@app.callback()
def _config() -> None:
    pass


@app.command("show")
def show(
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Also where each value comes from.")
    ] = False,
    config: options.ConfigFile = None,
    json_: options.Json = False,
) -> None:
    """Print the settings that `penstock up` would use here."""
    found = settings.resolve(file=config, environ=os.environ, flags={})
    rows = dict(settings.walk(found.config))
    if json_:
        print_json(
            {
                path: {"value": _plain(value), "from": found.origins[path]}
                for path, value in rows.items()
            }
            if resolved
            else {path: _plain(value) for path, value in rows.items()}
        )
    elif resolved:
        print_table(
            "", ("setting", "value", "from"), [(k, v, found.origins[k]) for k, v in rows.items()]
        )
    else:
        print_table("", ("setting", "value"), rows.items())


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

"""The `penstock` command: one file per noun; each imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    config,
    delete,
    deploy,
    explain,
    invoke,
    keys,
    logs,
    output,
    serve,
    status,
    up,
)
from penstock.errors import CallerError, PenstockError

app = typer.Typer(
    name="penstock",
    help="Self-hosted inference behind the APIs that teams already call.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


app.command("up")(up.up)
app.command("serve")(serve.serve)
app.command("deploy")(deploy.deploy)
app.command("status")(status.status)
app.command("invoke")(invoke.invoke)
app.command("logs")(logs.logs)
app.command("delete")(delete.delete)
app.command("explain")(explain.explain)
app.add_typer(keys.app, name="keys", help="Access keys of this server.")
app.add_typer(config.app, name="config", help="Settings, and where they come from.")


def main() -> None:
    """Entry point: every error a person can cause ends in `error[code]` and a hint."""
    try:
        app()
    except PenstockError as error:
        output.fail(error)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        output.fail(CallerError("interrupted", "interrupted", hint=""))

"""The `penstock` command: all commands by name; each imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli import cost, options, output, settings
from penstock.cli.artifacts import compile as compile_command
from penstock.cli.artifacts import package, tune
from penstock.cli.endpoints import (
    apply,
    deploy,
    describe,
    explain,
    init,
    invoke,
    models,
    replay,
    rollout,
    status,
)
from penstock.cli.jobs import jobs, schedule
from penstock.cli.server import keys, logs, orchestrator, traffic, up
from penstock.errors import CallerError, PenstockError

#: Base of usage errors. Typer exports only its subclasses, and may bring its own click.
USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
INTERRUPTED = 130  #: what a shell reports for a command that Ctrl-C ended

app = typer.Typer(
    name="penstock",
    help="Self-hosted inference behind the APIs that teams already call.",
    add_completion=True,
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


options.command(app, "up")(up.up)
options.command(app, "serve")(up.serve)
options.command(app, "orchestrator")(orchestrator.orchestrator)
options.command(app, "compile")(compile_command.compile_)
options.command(app, "tune")(tune.tune)
options.command(app, "deploy")(deploy.deploy)
options.command(app, "init")(init.init)
options.command(app, "package")(package.package)
options.command(app, "apply")(apply.apply)
options.command(app, "status")(status.status)
options.command(app, "describe")(describe.describe)
options.command(app, "invoke")(invoke.invoke)
options.command(app, "logs")(logs.logs)
options.command(app, "delete")(deploy.delete)
app.add_typer(models.app, name="models", help="Models, and target models of endpoints.")
options.command(app, "warm")(models.warm)
options.command(app, "transform")(jobs.transform)
app.add_typer(jobs.app, name="jobs", help="Transform jobs: which there are, how they go on.")
app.add_typer(schedule.app, name="schedule", help="Transform jobs that begin by themselves.")
app.add_typer(explain.app, name="explain", help="Why a request, or a target model, is as it is.")
options.command(app, "cost")(cost.cost)
app.add_typer(explain.scaling_app, name="scaling", help="Auto scaling: what was decided, and why.")
app.add_typer(rollout.app, name="rollout", help="How a new generation takes over; orders to it.")
options.command(app, "replay")(replay.replay)
app.add_typer(traffic.app, name="traffic", help="Traffic between regions: who gets how much.")
app.add_typer(keys.app, name="keys", help="Access keys of this server.")
app.add_typer(settings.app, name="config", help="Settings, and where they come from.")


def main() -> None:
    """Entry point: every error that a person can cause ends in `error[code]` and a hint."""
    try:
        words = sys.argv[1:] or ["--help"]
        status = app(args=words, prog_name="penstock", standalone_mode=False)
    except PenstockError as error:
        output.fail(error)
    except USAGE_ERROR as error:
        output.fail(usage_error(error), status=error.exit_code)
    except OSError as error:
        if not isinstance(error.filename, str):
            raise
        output.fail(file_error(error))
    except typer.Abort:
        raise SystemExit(INTERRUPTED) from None
    raise SystemExit(status or 0)


def file_error(error: OSError) -> CallerError:
    """An operating system's error about a file that the command line named, or one beside it."""
    return CallerError(
        "file-unusable",
        f"{error.filename}: {error.strerror}",
        hint="Check the path, its permissions and the disk.",
    )


def usage_error(error: Any) -> CallerError:
    """A wrong command line in the form of every other error."""
    command = error.ctx.command_path if error.ctx is not None else "penstock"
    return CallerError("usage", error.format_message(), hint=f"See '{command} --help'.")

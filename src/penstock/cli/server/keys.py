"""`penstock keys`: who may call a server that runs with --auth.

It works on the state directory itself, whether the server runs or not; a running server sees a
change within seconds. A secret is shown once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options, settings
from penstock.cli.output import note, print_found, print_json, seconds
from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.request.grants import Grant
from penstock.errors import CallerError

if TYPE_CHECKING:
    from penstock.control.access.keys import AccessKeys

app = typer.Typer()


@app.command("create")
def create(
    bearer: Annotated[
        bool, typer.Option("--bearer", help="A bearer key instead of a SigV4 access key.")
    ] = False,
    label: Annotated[str, typer.Option("--label", help="Whose key it is, for people.")] = "",
    scope: Annotated[
        str,
        typer.Option(
            "--scope", help="What it may do: invoke models, operate (reading, too), or admin."
        ),
    ] = "admin",
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="Only for this endpoint; may be given several times."),
    ] = None,
    state_dir: options.StateDir = None,
    config: options.ConfigFile = None,
    json_: options.Json = False,
) -> None:
    """Make a key and show its secret, this once."""
    grant = Grant(scope, frozenset(_name(one) for one in endpoint or ()))
    with _opened(state_dir, config) as (keys, directory):
        note(f"the key is for the server with its state in {directory}")
        make = keys.create_bearer_key if bearer else keys.create_access_key
        key = make(label, now=time.time(), grant=grant)
    if json_:
        print_json(
            {
                "key_id": key.key_id,
                "kind": key.kind,
                "secret": key.secret,
                "scope": key.grant.scope,
                "endpoints": sorted(key.grant.endpoints),
            }
        )
    elif bearer:
        print(f"PENSTOCK_KEY={key.secret}")
        note("use it as: curl -H 'Authorization: Bearer ...'; it is not shown again")
    else:
        print(f"AWS_ACCESS_KEY_ID={key.key_id}")
        print(f"AWS_SECRET_ACCESS_KEY={key.secret}")
        note("any AWS SDK reads these variables; the secret is not shown again")


@app.command("list")
def list_(
    state_dir: options.StateDir = None,
    config: options.ConfigFile = None,
    json_: options.Json = False,
) -> None:
    """List keys, without secrets."""
    with _opened(state_dir, config) as (keys, _):
        rows = [
            (
                one.key_id,
                one.kind,
                one.grant.scope,
                " ".join(sorted(one.grant.endpoints)) or "all",
                one.label,
                seconds(one.created),
            )
            for one in keys.list()
        ]
    columns = ("key_id", "kind", "scope", "endpoints", "label", "created")
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    print_found(found, "", columns, rows, json_=json_)


@app.command("delete")
def delete(
    key_id: Annotated[str, typer.Argument(help="As 'penstock keys list' shows it.")],
    state_dir: options.StateDir = None,
    config: options.ConfigFile = None,
    json_: options.Json = False,
) -> None:
    """Delete a key; a running server refuses it within seconds."""
    with _opened(state_dir, config) as (keys, _):
        keys.delete(key_id)
    if json_:
        print_json({"deleted": key_id})
    else:
        note(f"key {key_id} is deleted")


def _name(text: str) -> str:
    """An endpoint's name, which is not case-sensitive. It need not exist yet."""
    if not ENDPOINT_NAME.fullmatch(text):
        raise CallerError(
            "invalid-endpoint-name",
            f"{text!r} is no name of an endpoint",
            hint="Letters, digits and hyphens, 63 at most.",
        )
    return text.lower()


@contextmanager
def _opened(state_dir: Path | None, config: Path | None) -> Iterator[tuple[AccessKeys, Path]]:
    """The keys, and the state directory that they are in."""
    from penstock.control.access.keys import AccessKeys  # noqa: PLC0415 - opens the database
    from penstock.control.store.store import Store  # noqa: PLC0415

    resolved = settings.resolve(file=config, environ=os.environ, flags={"state_dir": state_dir})
    directory = resolved.config.state_dir
    store = Store(directory, resolved.config.control.database)
    try:
        yield AccessKeys(store, directory, resolved.config.control.key_file), directory.absolute()
    finally:
        store.close()

"""`penstock models list`: all models. `penstock models ENDPOINT`: the target models of a
multi-model endpoint, and changes to them.

`penstock warm ENDPOINT`: loads target models before they are called.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from typer.core import TyperGroup

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.endpoints import listing
from penstock.cli.output import note, print_found, print_json, print_table, seconds
from penstock.cli.waiting import while_running
from penstock.errors import ModelError, PenstockError

#: s. A load may include a download; the server limits it.
CHANGE_S_MAX: Final = 3700.0
_PAGE: Final = 1000
_MODELS = list[str] | None


class EndpointOrCommand(TyperGroup):
    """`penstock models ENDPOINT` is short for `penstock models show ENDPOINT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=EndpointOrCommand, no_args_is_help=True, rich_markup_mode=None)


@options.command(app, "list")
def list_(server: options.ReportOptions = options.REPORT) -> None:
    """List the models that were created, and the endpoints that serve them."""
    client = server.client()
    found = listing.listed(client)
    columns = ("model", "created", "endpoints", "artifact", "image")
    rows = map(_model_row, found)
    print_found(found, f"models at {client.url}", columns, rows, json_=server.json_)


def _model_row(one: dict[str, Any]) -> list[object]:
    containers = listing.containers_of(one)
    return [
        one["ModelName"],
        seconds(one.get("CreationTime")),
        ", ".join(one["Endpoints"]) or None,
        *(
            ", ".join(str(each[member]) for each in containers if each.get(member)) or None
            for member in ("ModelDataUrl", "Image")
        ),
    ]


@options.command(app, "show")
def show(
    endpoint: Annotated[
        str,
        typer.Argument(
            help="Name of a multi-model endpoint.", autocompletion=options.endpoint_names
        ),
    ],
    load: Annotated[_MODELS, typer.Option("--load", help="Load this one, and wait.")] = None,
    unload: Annotated[
        _MODELS, typer.Option("--unload", help="Unload it once it has answered all.")
    ] = None,
    pin: Annotated[_MODELS, typer.Option("--pin", help="Do not evict it once loaded.")] = None,
    unpin: Annotated[_MODELS, typer.Option("--unpin", help="Evict it like any other.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to show at most.")] = 1000,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Show the target models of an endpoint: where they are loaded, what they take, why.

    Options change them first. 'penstock models ENDPOINT' is short for it.
    """
    client = server.client(timeout_s=CHANGE_S_MAX)
    wishes = (("unpin", unpin), ("unload", unload), ("pin", pin), ("load", load))
    for action, names in wishes:
        for name in names or ():
            if action == "load":
                _loaded(server, client, endpoint, name, "")
            else:
                change(client, endpoint, name, action)
            note(f"{_DONE[action]} {name}")
    rows, more, prefix_error = list_models(client, endpoint, limit)
    if server.json_:
        print_json({"endpoint": endpoint, "models": rows, "more": more} | prefix_error)
        return
    columns = ("model", "state", "where", "memory MiB", "calls", "last call s ago", "pinned", "why")
    print_table(f"target models of {endpoint}", columns, [_row(one) for one in rows])
    if more:
        note(f"there are more than {limit}: raise --limit")
    if prefix_error:
        note(f"its prefix can't be listed: {prefix_error['prefix_error']['message']}")


_DONE: Final = {"load": "loaded", "unload": "unloaded", "pin": "pinned", "unpin": "unpinned"}


def change(
    client: Client, endpoint: str, model: str, action: str, query: str = ""
) -> dict[str, Any]:
    """Does `load`, `unload`, `pin` or `unpin`; raises its error."""
    path = f"{_path(endpoint)}/{quote(model, safe='')}/{action}{query}"
    return client.admin(path, method="POST")


def list_models(
    client: Client, endpoint: str, limit: int
) -> tuple[list[dict[str, Any]], bool, dict[str, Any]]:
    """Rows, read page by page; whether there are more; `prefix_error`, if there is one."""
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        size = min(_PAGE, limit - len(rows))
        page = client.admin(f"{_path(endpoint)}?after={quote(after, safe='')}&limit={size}")
        rows += page["models"]
        after = page["next_after"] or ""
        if not after or len(rows) >= limit:
            error = page["prefix_error"]
            return rows, bool(after), {"prefix_error": error} if error else {}


def _path(endpoint: str) -> str:
    return f"/endpoints/{quote(endpoint, safe='')}/models"


def _row(one: dict[str, Any]) -> list[object]:
    last, error = one["last_call_s"], one["error"]
    return [
        one["model"],
        one["state"],
        ", ".join(one["instances"]),
        f"{one['memory_bytes'] / 2**20:.1f}" if one["instances"] else None,
        one["calls"],
        None if last is None else f"{last:.0f}",
        "yes" if one["pinned"] else None,
        f"answered by {one['answered_by']}"
        if one["answered_by"]
        else (error["message"] if error else one["why"]),
    ]


#: More models than any memory holds.
_MODELS_MAX: Final = 100_000


def warm(
    endpoint: Annotated[
        str,
        typer.Argument(
            help="Name of a multi-model endpoint.", autocompletion=options.endpoint_names
        ),
    ],
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Target models; left out: all that fit, the most called first."),
    ] = None,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Load target models and wait until they are loaded.

    Named models are loaded even if others must be evicted; without names none is evicted.
    """
    client = server.client(timeout_s=CHANGE_S_MAX)
    named = list(dict.fromkeys(models or ()))
    wanted = named or _by_calls(list_models(client, endpoint, _MODELS_MAX)[0])
    loaded: list[str] = []
    refused: dict[str, dict[str, Any]] = {}
    full = False
    for at, model in enumerate(wanted):
        try:
            told = _loaded(server, client, endpoint, model, "" if named else "?if_room=true")
        except PenstockError as error:
            refused[model] = error.to_dict()
            note(f"{model}: {error.code}: {error.message}")
            continue
        full = any(host["state"] == "no-room" for host in told["hosts"])
        if full:
            note(f"no room for {model} and {len(wanted) - at - 1} more")
            break
        loaded.append(model)
        note(f"{model} is loaded")
    if server.json_:
        print_json({"endpoint": endpoint, "loaded": loaded, "refused": refused, "full": full})
    if refused:
        raise ModelError(
            "not-warm",
            f"{len(refused)} of {len(wanted)} target models of {endpoint} could not be loaded",
            hint=f"See 'penstock explain model {endpoint} MODEL'.",
        )


def _loaded(
    server: options.WaitOptions, client: Client, endpoint: str, model: str, query: str
) -> dict[str, Any]:
    """Loads a target model, and shows that it is being loaded."""
    with server.waiting(None) as waiting:
        return while_running(
            lambda: change(client, endpoint, model, "load", query),
            lambda: waiting.look(model, doing="loading the model"),
        )


def _by_calls(rows: list[dict[str, Any]]) -> list[str]:
    rows = sorted(rows, key=lambda one: (-one["calls"], one["model"]))
    return [one["model"] for one in rows if one["artifact_bytes"] is not None]

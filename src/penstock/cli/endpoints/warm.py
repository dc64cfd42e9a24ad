"""`penstock warm ENDPOINT`: loads target models ahead of their calls."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.endpoints.models import CHANGE_S_MAX, change, list_models
from penstock.cli.output import note, print_json
from penstock.errors import ModelError, PenstockError

#: Beyond what any memory holds.
_MODELS_MAX: Final = 100_000


def warm(
    endpoint: Annotated[str, typer.Argument(help="Name of a multi-model endpoint.")],
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Target models; left out: all that fit, the most called first."),
    ] = None,
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Load target models and wait until they are loaded.

    Named ones are loaded whatever has to go for them; without names nobody is evicted.
    """
    client = Client(url, key=key, timeout_s=CHANGE_S_MAX)
    named = list(dict.fromkeys(models or ()))
    wanted = named or _by_calls(list_models(client, endpoint, _MODELS_MAX)[0])
    loaded: list[str] = []
    refused: dict[str, dict[str, Any]] = {}
    full = False
    for at, model in enumerate(wanted):
        try:
            told = change(client, endpoint, model, "load", "" if named else "?if_room=true")
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
    if json_:
        print_json({"endpoint": endpoint, "loaded": loaded, "refused": refused, "full": full})
    if refused:
        raise ModelError(
            "not-warm",
            f"{len(refused)} of {len(wanted)} target models of {endpoint} could not be loaded",
            hint=f"See 'penstock explain model {endpoint} MODEL'.",
        )


def _by_calls(rows: list[dict[str, Any]]) -> list[str]:
    rows = sorted(rows, key=lambda one: (-one["calls"], one["model"]))
    return [one["model"] for one in rows if one["artifact_bytes"] is not None]

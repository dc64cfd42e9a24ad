"""`penstock delete`: an endpoint with its configuration and model."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.deploy import describe, wait_gone
from penstock.cli.output import note, print_json
from penstock.errors import CallerError


def delete(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    wait: Annotated[bool, typer.Option(help="Wait until it is gone.")] = True,
    url: options.Url = "",
    key: options.Key = "",
    json_: options.Json = False,
) -> None:
    """Delete an endpoint, and the configuration and models that only it used."""
    client = Client(url, key=key)
    config_name = str(describe(client, name)["EndpointConfigName"])
    client.sagemaker("DeleteEndpoint", EndpointName=name)
    if wait:
        wait_gone(client, name)
    removed = _delete_unused(client, name, config_name)
    if json_:
        print_json({"EndpointName": name, "Deleted": [name, *removed]})
    else:
        note(f"endpoint {name} is {'deleted' if wait else 'being deleted'}")


def _delete_unused(client: Client, name: str, config_name: str) -> list[str]:
    """Only what `penstock deploy` made, named after the endpoint and its content."""
    if not config_name.startswith(f"{name[:52]}-"):
        return []
    removed = []
    try:
        client.sagemaker("DeleteEndpointConfig", EndpointConfigName=config_name)
        removed.append(f"endpoint-config/{config_name}")
        client.sagemaker("DeleteModel", ModelName=config_name)
        removed.append(f"model/{config_name}")
    except CallerError as error:
        if "Could not find" not in error.message:
            raise
    return removed

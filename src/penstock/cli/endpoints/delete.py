"""`penstock delete`: an endpoint with its configuration and model."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.client import Client, if_there
from penstock.cli.endpoints.deploy import describe, wait_gone
from penstock.cli.output import note, print_json
from penstock.core.apply.versioned_names import is_version_of
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
    config_name = _config_name(client, name)
    client.sagemaker("DeleteEndpoint", EndpointName=name)
    if wait:
        wait_gone(client, name)
    removed = _delete_unused(client, name, config_name)
    if json_:
        print_json({"EndpointName": name, "Deleted": [name, *removed]})
    else:
        note(f"endpoint {name} is {'deleted' if wait else 'being deleted'}")


def _config_name(client: Client, name: str) -> str:
    """Empty where the endpoint can't be described: an endpoint with a damaged record can be
    deleted, and the deletion reports any other error."""
    try:
        return str(describe(client, name)["EndpointConfigName"])
    except CallerError:
        return ""


def _delete_unused(client: Client, name: str, config_name: str) -> list[str]:
    """Deletes only what `penstock deploy` and `apply` made, named after the endpoint and
    content."""
    if not is_version_of(config_name, name):
        return []
    config = if_there(client, "DescribeEndpointConfig", EndpointConfigName=config_name)
    if config is None:
        return []
    if_there(client, "DeleteEndpointConfig", EndpointConfigName=config_name)
    models = {str(variant["ModelName"]) for variant in config["ProductionVariants"]}
    unused = sorted(each for each in models if is_version_of(each, name))
    for model in unused:
        if_there(client, "DeleteModel", ModelName=model)
    return [f"endpoint-config/{config_name}", *(f"model/{model}" for model in unused)]

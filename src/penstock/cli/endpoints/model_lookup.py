"""Finds the model for a name of a model or of an endpoint, and the endpoints that serve a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.client import SageMaker, if_there
from penstock.cli.endpoints.deploy import describe, heading
from penstock.cli.endpoints.status import described, list_all, list_components, list_endpoints
from penstock.errors import CallerError

_LIST_HINT: Final = "See 'penstock models list'."


def named(client: SageMaker, name: str) -> str:
    """The model called `name`, or else the one that the endpoint of that name serves.

    Raises CallerError: `model-not-found` if neither exists, `model-ambiguous` if the
    endpoint serves several.
    """
    if if_there(client, "DescribeModel", ModelName=name) is not None:
        return name
    endpoint = describe(client, name, missing_ok=True)
    if not endpoint:
        raise CallerError(
            "model-not-found",
            f"there is no model and no endpoint {name!r}",
            hint=f"{_LIST_HINT} Or give a folder, a model.tar.gz, or an s3:// or https:// URI.",
        )
    found = sorted(set(served_by(client, endpoint)))
    if len(found) != 1:
        what = f"serves {len(found)} models: {', '.join(found)}" if found else "names no model"
        raise CallerError(
            "model-ambiguous",
            f"{name!r} is no model, and the endpoint of that name {what}",
            hint=f"Give one of them: {' or '.join(found)}." if found else _LIST_HINT,
        )
    return found[0]


def served_by(client: SageMaker, endpoint: dict[str, Any]) -> Iterator[str]:
    """Names of the models of a described endpoint's variants and inference components."""
    # An endpoint may outlive its configuration.
    configs = [{"EndpointConfigName": heading(endpoint)}]
    for config in described(client, "DescribeEndpointConfig", "EndpointConfigName", configs):
        for variant in config.get("ProductionVariants", ()):
            if "ModelName" in variant:
                yield variant["ModelName"]
    for component in list_components(client, endpoint["EndpointName"]):
        if "ModelName" in component.get("Specification", ()):
            yield component["Specification"]["ModelName"]


def listed(client: SageMaker) -> list[dict[str, Any]]:
    """All models as Describe shows them, oldest first, with `Endpoints`: the names of those that
    serve each."""
    served: dict[str, list[str]] = {}
    for endpoint in list_endpoints(client):
        if not endpoint.get("EndpointConfigName"):
            continue  # an endpoint that can't be read
        for model in dict.fromkeys(served_by(client, endpoint)):
            served.setdefault(model, []).append(endpoint["EndpointName"])
    models = list_all(client, "ListModels", "Models")
    found = described(client, "DescribeModel", "ModelName", models)
    return [one | {"Endpoints": served.get(one["ModelName"], [])} for one in found]

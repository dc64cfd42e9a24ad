"""Tags of endpoints, and the names under which they say an endpoint is served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cli.client import SageMaker, if_there
from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.deployment import served_names
from penstock.errors import CallerError


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags in SageMaker's form."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def endpoint_for(
    client: SageMaker, name: str, served: Iterable[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """(the endpoint's name, names under which it is to be served besides) for a model's name.

    A name that SageMaker does not allow becomes the nearest one that it does. Raises CallerError if
    that endpoint is there and is somebody else's: two models' names may have the same nearest one.
    """
    if ENDPOINT_NAME.fullmatch(name):
        return name, tuple(served)
    endpoint = served_names.legal_endpoint_name(name)
    if not endpoint:
        raise CallerError(
            "endpoint-name-invalid",
            f"no endpoint's name can be made of {name!r}",
            hint="Use letters and digits, with hyphens between them, and give other names with"
            " --served-name.",
        )
    existing = if_there(client, "DescribeEndpoint", EndpointName=endpoint)
    if existing and name not in served_names.of_tags(_tags_of(client, existing)):
        raise CallerError(
            "endpoint-name-taken",
            f"{name!r} would be the endpoint {endpoint}, which exists and is not served as {name}",
            hint=f"To deploy to it: penstock deploy {endpoint} ARTIFACT --served-name {name}; else"
            " give another endpoint's name.",
        )
    return endpoint, (name, *served)


def serve_as(client: SageMaker, endpoint: str, names: Iterable[str]) -> dict[str, str]:
    """Tags with `names` and those that the endpoint has; adds them, if there is an endpoint."""
    existing = if_there(client, "DescribeEndpoint", EndpointName=endpoint)
    tags = _tags_of(client, existing) if existing else {}
    kept = {key: value for key, value in tags.items() if served_names.is_tag(key)}
    added = served_names.tags_for(names, kept)
    served_names.check(kept | added)
    if existing and added:
        client.sagemaker("AddTags", ResourceArn=existing["EndpointArn"], Tags=tag_list(added))
    return kept | added


def _tags_of(client: SageMaker, endpoint: Mapping[str, Any]) -> dict[str, str]:
    listed = client.sagemaker("ListTags", ResourceArn=endpoint["EndpointArn"], MaxResults=50)
    return {tag["Key"]: tag["Value"] for tag in listed["Tags"]}

"""What a server has: its resources with all they say, who serves a model, who reads an artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from penstock.cli.client import SageMaker, if_there
from penstock.cli.endpoints.deploy import describe, heading
from penstock.core.deployment import shadow_tag
from penstock.errors import CallerError


def list_endpoints(client: SageMaker) -> list[dict[str, Any]]:
    """All endpoints, as `described` has them."""
    listed = list_all(client, "ListEndpoints", "Endpoints")
    return described(client, "DescribeEndpoint", "EndpointName", listed)


def list_components(client: SageMaker, endpoint: str = "") -> list[dict[str, Any]]:
    """Inference components of one endpoint or of all, as `described` has them."""
    filters = {"EndpointNameEquals": endpoint} if endpoint else {}
    listed = list_all(client, "ListInferenceComponents", "InferenceComponents", **filters)
    return described(client, "DescribeInferenceComponent", "InferenceComponentName", listed)


def shadows_among(client: SageMaker, components: list[dict[str, Any]]) -> dict[str, str]:
    """Component that is a shadow -> whose, and of which share, as its tag says."""
    found = {}
    for one in components:
        arn = one["InferenceComponentArn"]
        answer = if_there(client, "ListTags", ResourceArn=arn, MaxResults=100) or {"Tags": []}
        for tag in answer["Tags"]:
            if tag["Key"] == shadow_tag.TAG:
                found[one["InferenceComponentName"]] = tag["Value"]
    return found


def described(
    client: SageMaker, operation: str, key: str, listed: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Each item of a list as Describe shows it, without those that are gone. An item that can't be
    described stays as it was listed, with the reason, so that a damaged record hides no other."""
    found = []
    for each in listed:
        try:
            one = if_there(client, operation, **{key: each[key]})
        except CallerError as error:
            one = each | {"FailureReason": error.message}
        if one is not None:
            found.append(one)
    return found


def list_all(
    client: SageMaker, operation: str, member: str, **filters: Any
) -> list[dict[str, Any]]:
    """The entries under `member` in all pages of a List operation, oldest first."""
    found: list[dict[str, Any]] = []
    members: dict[str, Any] = {"MaxResults": 100, "SortOrder": "Ascending"} | filters
    while True:
        page = client.sagemaker(operation, **members)
        found += page[member]
        if not page.get("NextToken"):
            return found
        members["NextToken"] = page["NextToken"]


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


#: Concurrent Describe calls: a server may have thousands of models.
_THREADS: Final = 8
#: Members of models and inference components that name artifacts, at any depth.
_URIS: Final = frozenset({"ModelDataUrl", "S3Uri", "ArtifactUrl", "SAGEMAKER_SUBMIT_DIRECTORY"})
_READERS: Final = (
    ("ListModels", "Models", "ModelName", "DescribeModel"),
    ("ListInferenceComponents", "InferenceComponents", "InferenceComponentName",
     "DescribeInferenceComponent"),
)  # fmt: skip


def reading(client: SageMaker) -> Mapping[str, tuple[str, ...]]:
    """Model of this server, or another resource with artifacts -> their URIs.

    A resource that is deleted meanwhile uses nothing. Raises the errors of the calls, because a
    resource that can't be described may use any artifact.
    """
    found: dict[str, tuple[str, ...]] = {}
    for listing, member, key, describing in _READERS:
        names = [str(each[key]) for each in list_all(client, listing, member)]
        with ThreadPoolExecutor(_THREADS) as pool:
            described = pool.map(
                lambda name: if_there(client, describing, **{key: name}),  # noqa: B023
                names,
            )
            for name, fields in zip(names, described, strict=True):
                found[name] = found.get(name, ()) + tuple(_uris(fields))
    return found


def _uris(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name in _URIS and isinstance(member, str):
                yield member
            else:
                yield from _uris(member)
    elif isinstance(value, list):
        for member in value:
            yield from _uris(member)


def containers_of(model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """At least one; it is empty where the model says nothing."""
    primary = model.get("PrimaryContainer")
    return [primary] if primary else list(model.get("Containers") or [{}])

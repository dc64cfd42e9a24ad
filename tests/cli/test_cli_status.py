"""What `penstock status` and `penstock models list` show where one record can't be read."""

from __future__ import annotations

from typing import Any

from penstock.cli.endpoints import listing, status
from penstock.cli.endpoints.listing import list_components, list_endpoints
from penstock.errors import CallerError

LISTS = {
    "ListEndpoints": ("Endpoints", "EndpointName"),
    "ListModels": ("Models", "ModelName"),
    "ListInferenceComponents": ("InferenceComponents", "InferenceComponentName"),
}
DAMAGED = CallerError("ValidationException", 'The stored record of ... "a-bad" can\'t be read')


class StatusSite:
    """Of each kind there are three: one is damaged, one gone by the time it is described."""

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        if operation in LISTS:
            member, key = LISTS[operation]
            return {member: [{key: name} for name in ("a-bad", "gone", "witness")]}
        (name,) = members.values()
        if name == "a-bad":
            raise DAMAGED
        if name == "gone":
            raise CallerError("ValidationException", "Could not find it")
        if operation == "DescribeEndpointConfig":
            return {"ProductionVariants": [{"ModelName": "witness"}]}
        return {"EndpointConfigName": "witness"} | {
            f"{operation.removeprefix('Describe')}Name": name
        }


def test_one_that_is_damaged_is_shown_with_the_reason() -> None:
    for found in (list_endpoints(StatusSite()), list_components(StatusSite())):
        bad, witness = found
        assert "a-bad" in bad.values()
        assert bad["FailureReason"] == DAMAGED.message
        assert "witness" in witness.values()


def test_a_shadow_variant_has_a_row_that_says_so() -> None:
    def variant(name: str, count: int) -> dict[str, Any]:
        return {
            "VariantName": name,
            "CurrentWeight": 1.0,
            "CurrentInstanceCount": count,
            "DesiredInstanceCount": 1,
        }

    endpoint = {
        "EndpointName": "shop",
        "EndpointStatus": "InService",
        "ProductionVariants": [variant("old", 1)],
        "ShadowProductionVariants": [variant("new", 0)],
    }
    assert status._rows(endpoint) == [
        ["shop", "InService", "old", 1.0, "1/1", ""],
        ["shop", "InService", "new (shadow)", 1.0, "0/1", ""],
    ]


def test_models_are_listed_with_who_serves_them() -> None:
    found = [(one["ModelName"], one["Endpoints"]) for one in listing.listed(StatusSite())]
    assert found == [("a-bad", []), ("witness", ["witness"])]


class ShadowSite(StatusSite):
    """Component `next` is the shadow of `chat`; `gone` has gone meanwhile."""

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        assert operation == "ListTags"
        name = members["ResourceArn"].rpartition("/")[2]
        if name == "gone":
            raise CallerError("ValidationException", "Could not find it")
        shadow = {"Key": "penstock:shadow-of", "Value": "chat share=0.5"}
        return {"Tags": [{"Key": "team", "Value": "a"}, *([shadow] if name == "next" else [])]}


def test_a_component_that_is_a_shadow_says_so_in_its_row() -> None:
    components = [
        {
            "InferenceComponentName": name,
            "InferenceComponentArn": f"arn:aws:sagemaker:us-east-1:1:inference-component/{name}",
            "EndpointName": "shop",
            "VariantName": "all",
            "InferenceComponentStatus": "InService",
        }
        for name in ("chat", "gone", "next")
    ]
    shadows = listing.shadows_among(ShadowSite(), components)
    assert shadows == {"next": "chat share=0.5"}
    assert [status._component_row(one, shadows)[0] for one in components] == [
        "chat", "gone", "next (shadow of chat share=0.5)",
    ]  # fmt: skip

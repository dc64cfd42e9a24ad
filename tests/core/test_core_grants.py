"""`core/request/grants.py`: the table of scopes, row by row."""

from __future__ import annotations

import pytest

from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.core.request.grants import (
    ADMIN,
    INVOKE,
    NEEDS,
    OPERATE,
    SCOPES,
    TRUST_VARIABLE,
    Grant,
    allowed,
    check_trust,
    needed,
    trusts,
)
from penstock.errors import CallerError


@pytest.mark.parametrize(
    ("operation", "scopes"),
    [
        ("InvokeEndpoint", (INVOKE, OPERATE, ADMIN)),
        ("ServerMetadata", (INVOKE, OPERATE, ADMIN)),
        ("ModelMetadata", (INVOKE, OPERATE, ADMIN)),
        ("ListServedModels", (INVOKE, OPERATE, ADMIN)),
        ("LoadTargetModel", (OPERATE, ADMIN)),
        ("ChangeRollout", (OPERATE, ADMIN)),
        ("ReadMetrics", (OPERATE, ADMIN)),
        ("ReadStatus", (OPERATE, ADMIN)),
        ("PutMetricData", (OPERATE, ADMIN)),
        ("DescribeEndpoint", (OPERATE, ADMIN)),
        ("ListEndpoints", (OPERATE, ADMIN)),
        ("UpdateEndpointWeightsAndCapacities", (OPERATE, ADMIN)),
        ("CreateModel", (ADMIN,)),
        ("TrustArtifact", (ADMIN,)),
        ("DeleteEndpoint", (ADMIN,)),
        ("UpdateEndpoint", (ADMIN,)),
        ("AddTags", (ADMIN,)),
        ("Unknown", (ADMIN,)),
        ("AnOperationOfTomorrow", (ADMIN,)),
    ],
)
def test_each_operation_needs_its_scope_or_a_wider_one(
    operation: str, scopes: tuple[str, ...]
) -> None:
    assert tuple(scope for scope in SCOPES if allowed(Grant(scope), operation)) == scopes


def test_every_served_operation_has_a_row() -> None:
    """Without one it needs `admin`, which is safe; but somebody should have decided it."""
    assert {*SAGEMAKER_OPERATIONS, *CLOUDWATCH_OPERATIONS} <= set(NEEDS)
    assert {needed(name) for name in NEEDS} == set(SCOPES)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_for_some_endpoints_does_only_what_is_about_one_of_them(scope: str) -> None:
    grant = Grant(scope, frozenset({"shop", "search"}))
    assert allowed(grant, "InvokeEndpoint", "Shop")
    assert allowed(grant, "InvokeEndpoint", "search")
    assert not allowed(grant, "InvokeEndpoint", "shop-2")
    assert not allowed(grant, "InvokeEndpoint", None)
    assert not allowed(grant, "ListServedModels", None)
    assert not allowed(grant, "CreateModel", None)
    assert allowed(grant, "ServerMetadata", None)


def test_what_a_key_makes_for_others_is_never_more_than_the_key() -> None:
    shop = frozenset({"shop"})
    assert Grant(ADMIN, shop).only(INVOKE) == Grant(INVOKE, shop)
    assert Grant(INVOKE).only(ADMIN) == Grant(INVOKE)


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(CallerError) as raised:
        Grant("root")
    assert raised.value.code == "scope-unknown"


@pytest.mark.parametrize(
    "operation",
    ["CreateModel", "CreateInferenceComponent", "UpdateInferenceComponent", "CreateTransformJob"],
)
def test_whoever_may_vouch_for_an_artifact_is_an_administrator(operation: str) -> None:
    """Their containers have an Environment, which may vouch for an artifact's pickles."""
    assert needed(operation) == needed("TrustArtifact") == ADMIN


def test_an_artifact_is_vouched_for_in_words() -> None:
    assert trusts({TRUST_VARIABLE: "true"})
    assert not trusts({TRUST_VARIABLE: "false"})
    assert not trusts({})
    check_trust({TRUST_VARIABLE: "true"})
    check_trust({}, multi_model=True, strangers=True)
    with pytest.raises(CallerError) as caught:
        check_trust({TRUST_VARIABLE: "yes"})
    assert caught.value.code == "environment-invalid"


@pytest.mark.parametrize(("case", "why"), [("multi_model", "prefix"), ("strangers", "--insecure")])
def test_trust_that_nobody_can_give_is_refused(case: str, why: str) -> None:
    with pytest.raises(CallerError, match=why) as caught:
        check_trust({TRUST_VARIABLE: "true"}, **{case: True})
    assert caught.value.code == "trust-refused"
    assert "control.trusted_artifacts" in caught.value.hint

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
    Grant,
    allowed,
    needed,
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
        ("ReadMetrics", (OPERATE, ADMIN)),
        ("ReadStatus", (OPERATE, ADMIN)),
        ("PutMetricData", (OPERATE, ADMIN)),
        ("DescribeEndpoint", (OPERATE, ADMIN)),
        ("ListEndpoints", (OPERATE, ADMIN)),
        ("UpdateEndpointWeightsAndCapacities", (OPERATE, ADMIN)),
        ("CreateModel", (ADMIN,)),
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

"""What a gateway knows of an endpoint follows from its routes, and from the newest only."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.core.deployment.deployment import RANDOM, CopyRoute, EndpointRoutes, VariantRoutes
from penstock.gateway.dispatch.endpoint_table import Endpoint, EndpointTable

TEXT, PLAIN = {"task": "text-generation"}, {"task": "text-classification"}


class NoRecorders:
    """Nothing is recorded here."""

    def recorder(self, endpoint: str, variant: str, component: str = "", config: str = "") -> Any:
        return f"{endpoint}/{variant}{f'/{component}' if component else ''}"


def routes(*models: dict[str, Any], copies: int = 1) -> EndpointRoutes:
    """A variant for each model, with so many copies each on one instance."""
    variants = []
    for at, model in enumerate(models):
        numbers = range(at * copies + 1, (at + 1) * copies + 1)
        here = tuple(CopyRoute(copy=one, instance_id="i-1", outstanding_max=1) for one in numbers)
        variants.append(
            VariantRoutes(name=f"v{at}", weight=1.0, strategy=RANDOM, copies=here, model=model)
        )
    return EndpointRoutes(endpoint="shop", variants=tuple(variants))


def endpoint(*models: dict[str, Any], copies: int = 1) -> Endpoint:
    return Endpoint(routes(*models, copies=copies), random.Random(0), cast(Any, NoRecorders()))


@pytest.mark.parametrize(
    ("models", "generates"),
    [([TEXT], True), ([PLAIN], False), ([PLAIN, TEXT], True), ([], False)],
)
def test_an_endpoint_generates_if_any_of_its_variants_does(
    models: list[dict[str, Any]], generates: bool
) -> None:
    assert endpoint(*models).generates is generates


@pytest.mark.parametrize(
    ("lanes", "counted"), [(1, 1), (2, 2), (7, 7), (0, 1), (-3, 1), ("2", 1), (None, 1)]
)
def test_a_copy_has_the_lanes_that_it_tells_of_and_one_at_least(lanes: Any, counted: int) -> None:
    assert endpoint({"lanes": lanes}, copies=3).lanes == 3 * counted


def test_for_a_variant_that_is_not_known_the_first_is_recorded() -> None:
    shop = endpoint(PLAIN, TEXT)
    told = [shop.recorder_of(name) for name in (None, "v0", "v1", "v2")]
    assert told == ["shop/v0", "shop/v0", "shop/v1", "shop/v0"]


def test_new_routes_are_taken_as_a_whole() -> None:
    table = EndpointTable(random.Random(0), cast(Any, NoRecorders()))
    assert table.publish(routes(TEXT, copies=2)) == ()
    shop = table.endpoints["shop"]
    assert (shop.generates, shop.lanes) == (True, 2)
    gone = table.publish(routes(PLAIN, copies=1))
    assert [state.copy for state in gone] == [2]
    assert table.endpoints["shop"] is shop
    assert (shop.generates, shop.lanes) == (False, 1)
    assert list(table._copies) == [1], "of a copy that is gone nothing is kept"
    assert [state.copy for state in table.withdraw("shop")] == [1]
    assert table.withdraw("shop") == ()
    assert table._copies == {}


def test_two_generations_of_a_variant_are_counted_apart_and_named_as_one() -> None:
    """Each has the lanes that its own model tells of."""
    (old,), (new,) = routes(PLAIN | {"lanes": 2}).variants, routes(TEXT | {"lanes": 3}).variants
    coming = replace(
        new,
        copies=tuple(CopyRoute(copy=at, instance_id="i-2", outstanding_max=1) for at in (11, 12)),
        incoming=True,
    )
    table = EndpointTable(random.Random(0), cast(Any, NoRecorders()))
    table.publish(EndpointRoutes(endpoint="shop", variants=(old, coming)))
    shop = table.endpoints["shop"]
    assert shop.recorders == {"v0": "shop/v0", "v0 incoming": "shop/v0"}
    assert shop.lanes == 1 * 2 + 2 * 3
    assert shop.generates
    for name in (None, "v0"):
        assert shop.recorder_of(name) == "shop/v0"
        assert shop.pool_of(name, None) == old
    table.set_usable("i-1", True)
    table.set_usable("i-2", True)
    assert list(table.healthy_copies("shop")) == [1, 11, 12]
    assert [table.place_of(copy) for copy in (1, 12)] == [(shop, "i-1"), (shop, "i-2")]
    table.publish(EndpointRoutes(endpoint="shop", variants=(replace(coming, incoming=False),)))
    assert list(table.healthy_copies("shop")) == [11, 12]
    assert shop.lanes == 6


def test_generations_without_a_copy_keep_the_descriptions_of_their_own() -> None:
    old, new = (routes(model).variants[0] for model in (PLAIN, TEXT))
    coming = replace(new, copies=(replace(new.copies[0], copy=11),), incoming=True)
    table = EndpointTable(random.Random(0), cast(Any, NoRecorders()))
    table.publish(EndpointRoutes(endpoint="shop", variants=(old, coming)))
    asleep = tuple(replace(one, copies=(), model={}) for one in (old, coming))
    table.publish(EndpointRoutes(endpoint="shop", variants=asleep))
    assert [one.model for one in table.endpoints["shop"].routes.variants] == [PLAIN, TEXT]

"""Where a target model is to be loaded ahead of its calls, and what is loaded anywhere."""

from __future__ import annotations

import random

from test_core_routing_models import hosts, picked, told, went

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import EndpointRouter


def chosen(router: EndpointRouter, model: str) -> list[int]:
    return [state.copy for state in router.hosts_for(model, now=0.0)]


def test_it_is_the_host_that_a_call_would_go_to_and_later_calls_follow() -> None:
    router = hosts(4, 4)
    told(router, 1, free_gib=1)
    told(router, 2, free_gib=2)
    assert chosen(router, "a") == [2]
    told(router, 1, free_gib=9)
    assert went(picked(router, "a")) == (2, "model-loading")
    told(router, 1, loaded=["b"])
    assert chosen(router, "b") == [1]


def test_nothing_is_reserved_by_it() -> None:
    router = hosts(1)
    told(router, 1)
    for _ in range(3):
        assert chosen(router, "a") == [1]
    assert went(picked(router, "a")) == (1, "model-loading")
    assert chosen(router, "a") == []  # it is full


def test_each_variant_that_hosts_models_has_its_own_host() -> None:
    def variant(name: str, copy: int, *, multi_model: bool) -> VariantRoutes:
        route = CopyRoute(copy=copy, instance_id=f"i-{copy}", outstanding_max=4)
        return VariantRoutes(
            name=name,
            weight=0.0,
            strategy=LEAST_OUTSTANDING_REQUESTS,
            copies=(route,),
            multi_model=multi_model,
        )

    variants = (
        variant("one", 1, multi_model=True),
        variant("plain", 2, multi_model=False),
        variant("two", 3, multi_model=True),
    )
    router = EndpointRouter(EndpointRoutes(endpoint="e", variants=variants), random.Random(0))
    assert chosen(router, "a") == [1, 3]


def test_loaded_is_what_hosts_say_that_may_be_picked() -> None:
    router = hosts(4, 4, 4)
    told(router, 1, loaded=["a"])
    told(router, 2, loaded=["b"])
    assert router.loaded_models() == {"a", "b"}
    assert (router.is_loaded("a"), router.is_loaded("c")) == (True, False)
    router.set_paused(2, True)
    assert router.is_loaded("b")
    router.set_healthy(1, False)
    assert router.loaded_models() == {"b"}
    assert not router.is_loaded("a")

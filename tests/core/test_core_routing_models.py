"""Which host of a multi-model endpoint gets a request: who has the model, loads it, has room."""

from __future__ import annotations

import random

import pytest

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import EndpointRouter, ModelsObserved, NoRoute, Routed

GIB = 1 << 30


def hosts(*outstanding_max: int, multi_model: bool = True) -> EndpointRouter:
    copies = tuple(
        CopyRoute(copy=number, instance_id=f"i-{number}", outstanding_max=most)
        for number, most in enumerate(outstanding_max, start=1)
    )
    variant = VariantRoutes(
        name="v",
        weight=1.0,
        strategy=LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
        multi_model=multi_model,
    )
    return EndpointRouter(EndpointRoutes(endpoint="e", variants=(variant,)), random.Random(0))


def told(
    router: EndpointRouter,
    copy: int,
    *,
    loaded: list[str] | None = None,
    gone: list[str] | None = None,
    free_gib: int = 1,
    seen: ModelsObserved | None = None,
) -> ModelsObserved:
    seen = seen or ModelsObserved()
    seen.told(loaded=loaded or [], gone=gone or [], free_bytes=free_gib * GIB)
    router.set_models(copy, seen)
    return seen


def picked(router: EndpointRouter, model: str, *, now: float = 0.0, **more: object) -> Routed:
    answer = router.pick(model=model, now=now, **more)  # type: ignore[arg-type]
    assert isinstance(answer, Routed), answer
    return answer


def went(answer: Routed) -> tuple[int, str]:
    return answer.state.copy, answer.reason


def test_a_host_that_has_the_model_is_preferred_to_an_idle_one_that_has_not() -> None:
    router = hosts(10, 10)
    told(router, 1, loaded=["a"])
    told(router, 2, free_gib=9)
    assert [went(picked(router, "a")) for _ in range(3)] == [(1, "model-loaded")] * 3


def test_of_those_that_have_it_the_least_busy_is_taken() -> None:
    router = hosts(10, 10)
    told(router, 1, loaded=["a"])
    told(router, 2, loaded=["a"])
    assert [went(picked(router, "a"))[0] for _ in range(4)] == [1, 2, 1, 2]


def test_a_cold_model_goes_where_most_memory_is_free_and_its_next_requests_follow_it() -> None:
    router = hosts(10, 10)
    told(router, 1, free_gib=1)
    told(router, 2, free_gib=2)
    seen = [went(picked(router, "a")) for _ in range(3)]
    assert seen == [(2, "model-cold"), (2, "model-loading"), (2, "model-loading")]


def test_cold_models_spread_over_hosts_with_about_equal_room() -> None:
    router = hosts(10, 10)
    told(router, 1)
    told(router, 2, free_gib=1).free_bytes += 100 << 20
    assert [went(picked(router, name))[0] for name in "abcd"] == [1, 2, 1, 2]


def test_a_load_that_is_never_heard_of_is_not_waited_for_after_five_minutes() -> None:
    router = hosts(10, 10)
    told(router, 1, free_gib=2)
    told(router, 2, free_gib=1)
    assert went(picked(router, "a", now=0.0)) == (1, "model-cold")
    assert went(picked(router, "a", now=299.0)) == (1, "model-loading")
    told(router, 2, free_gib=9)
    assert went(picked(router, "a", now=300.0)) == (2, "model-cold")


def test_a_model_that_its_host_dropped_is_cold_again() -> None:
    router = hosts(10, 10)
    seen = told(router, 1, loaded=["a"], free_gib=1)
    told(router, 2, free_gib=2)
    assert went(picked(router, "a")) == (1, "model-loaded")
    told(router, 1, gone=["a"], free_gib=1, seen=seen)
    assert went(picked(router, "a")) == (2, "model-cold")


def test_a_full_host_is_passed_over_even_if_it_has_the_model() -> None:
    router = hosts(1, 1)
    told(router, 1, loaded=["a"])
    told(router, 2)
    assert went(picked(router, "a")) == (1, "model-loaded")
    assert went(picked(router, "a")) == (2, "model-cold")
    assert router.pick(model="a") == NoRoute("all-copies-full", 0.1)


def test_a_host_that_failed_the_request_is_taken_only_if_no_other_is_there() -> None:
    router = hosts(10, 10)
    told(router, 1, loaded=["a"])
    told(router, 2)
    assert went(picked(router, "a", exclude=(1,)))[0] == 2
    assert went(picked(router, "a", exclude=(1, 2)))[0] == 1


def test_a_hot_model_is_loaded_by_an_idle_host_too_which_is_asked_once() -> None:
    router = hosts(99, 99)
    told(router, 1, loaded=["a"])
    told(router, 2)
    helpers = [picked(router, "a", now=0.0).helper for _ in range(10)]
    assert [helper.copy if helper else None for helper in helpers] == [None] * 8 + [2, None]
    assert picked(router, "a", now=29.0).helper is None
    later = picked(router, "a", now=30.0).helper
    assert later is not None
    assert later.copy == 2


def test_no_host_is_asked_to_help_that_is_nearly_as_busy() -> None:
    router = hosts(99, 99)
    told(router, 1, loaded=["a"])
    told(router, 2, loaded=["b"])
    for _ in range(3):
        picked(router, "b")
    assert [picked(router, "a").helper for _ in range(12)] == [None] * 12
    assert picked(router, "a").helper is not None  # 12 here, 3 there


@pytest.mark.parametrize(
    ("multi_model", "model", "reason"),
    [(True, None, "target-model-required"), (False, "a", "target-model-not-allowed")],
)
def test_a_request_names_a_model_where_and_only_where_there_are_several(
    multi_model: bool, model: str | None, reason: str
) -> None:
    router = hosts(10, multi_model=multi_model)
    assert router.pick(model=model) == NoRoute(reason, None)
    router.check_invariants()


def test_what_is_known_of_a_host_outlives_new_routes() -> None:
    router = hosts(10, 10)
    told(router, 1, loaded=["a"])
    told(router, 2, free_gib=9)
    copies = tuple(CopyRoute(copy=n, instance_id=f"i-{n}", outstanding_max=10) for n in (1, 2, 3))
    variant = VariantRoutes(
        name="v", weight=1.0, strategy=LEAST_OUTSTANDING_REQUESTS, copies=copies, multi_model=True
    )
    router.replace(EndpointRoutes(endpoint="e", variants=(variant,)))
    assert went(picked(router, "a")) == (1, "model-loaded")

"""What other gateways have on a copy counts as one's own: in who is least busy, and in room."""

from __future__ import annotations

import random

from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import EndpointRouter, ModelsObserved, NoRoute, Routed


def routes(
    *copies: int, limit: int = 4, strategy: str = LEAST_OUTSTANDING_REQUESTS, **more: object
) -> EndpointRoutes:
    made = tuple(
        CopyRoute(copy=copy, instance_id=f"i-{copy}", outstanding_max=limit) for copy in copies
    )
    variant = VariantRoutes(name="all", weight=1.0, strategy=strategy, copies=made, **more)  # type: ignore[arg-type]
    return EndpointRoutes(endpoint="echo", variants=(variant,))


def router_of(*copies: int, **more: object) -> EndpointRouter:
    return EndpointRouter(routes(*copies, **more), random.Random(1))  # type: ignore[arg-type]


def picked(router: EndpointRouter, **wanted: object) -> tuple[int, str] | str:
    answer = router.pick(**wanted)  # type: ignore[arg-type]
    router.check_invariants()
    return (answer.state.copy, answer.reason) if isinstance(answer, Routed) else answer.reason


def test_the_least_busy_copy_is_the_one_with_the_fewest_requests_of_all_gateways() -> None:
    router = router_of(1, 2)
    router.set_others(1, 2)
    # 2:0, 2:1, then both have two and 1 was never picked, then 2 is behind by one.
    assert [picked(router)[0] for _ in range(4)] == [2, 2, 1, 2]
    router.set_others(1, 0)  # the other gateway's are answered
    assert picked(router)[0] == 1


def test_gateways_that_see_equal_copies_do_not_all_choose_the_same_one() -> None:
    """Else what all of them hear at one moment sends all of them to one copy."""
    told = routes(*range(1, 101))
    alone = [EndpointRouter(told, random.Random(seed)) for seed in range(20)]
    assert {picked(router)[0] for router in alone} == {1}
    several = [EndpointRouter(told, random.Random(seed), shared=True) for seed in range(20)]
    assert len({picked(router)[0] for router in several}) > 15
    for router in several:
        router.replace(told)
        assert len({picked(router)[0] for _ in range(99)}) == 99, "each copy once, all the same"


def test_a_copy_takes_no_more_than_its_limit_from_all_gateways_together() -> None:
    router = router_of(1, limit=3)
    router.set_others(1, 2)
    assert picked(router) == (1, "only-copy")
    assert picked(router) == "all-copies-full"
    router.set_others(1, 1)
    assert picked(router) == (1, "only-copy")
    assert picked(router) == "all-copies-full"


def test_more_than_the_limit_of_others_is_no_room_and_no_less() -> None:
    """Several gateways may have sent at the same moment."""
    router = router_of(1, 2, limit=3)
    router.set_others(1, 9)
    assert [picked(router) for _ in range(3)] == [(2, "least-outstanding")] * 3
    assert picked(router) == "all-copies-full"
    router.set_others(1, 0)
    assert picked(router) == (1, "least-outstanding")


def test_new_routes_keep_what_others_have_and_change_the_limit() -> None:
    router = router_of(1, limit=2)
    router.set_others(1, 2)
    assert picked(router) == "all-copies-full"
    router.replace(routes(1, limit=3))
    assert router.others() == 2
    assert picked(router) == (1, "only-copy")
    assert picked(router) == "all-copies-full"


def test_what_is_told_of_a_copy_counts_all_gateways() -> None:
    router = router_of(1, 2)
    picked(router)
    router.set_others(1, 2)
    router.set_others(2, 1)
    assert (router.outstanding_on(1), router.outstanding_on(2), router.others()) == (3, 1, 3)
    told = {one["copy"]: one for one in router.snapshot()["variants"][0]["copies"]}
    assert (told[1]["outstanding"], told[1]["others"], told[1]["outstanding_max"]) == (1, 2, 4)


def test_news_of_an_unknown_copy_are_ignored() -> None:
    router = router_of(1)
    router.set_others(7, 3)
    assert router.others() == 0


def test_a_session_waits_for_nobody_where_others_fill_its_copy() -> None:
    router = router_of(1, limit=2)
    assert isinstance(router.open_session("s", now=0.0), object)
    router.set_others(1, 2)
    answer = router.pick(session="s", now=1.0)
    assert answer == NoRoute("all-copies-full", 0.1)


def test_a_prefix_goes_elsewhere_where_others_keep_its_copy_busy() -> None:
    router = router_of(1, 2, strategy=PREFIX_AWARE, prefix_length_max=1024, concurrency_threshold=2)
    prompt = b"x" * 1024
    assert picked(router, prompt=prompt) == (1, "least-outstanding")
    router.set_others(1, 1)  # one of ours and one of another's: at the threshold
    assert picked(router, prompt=prompt) == (2, "prefix-spill")


def test_a_hot_model_is_one_that_all_gateways_together_keep_busy() -> None:
    router = router_of(1, 2, limit=100, multi_model=True)
    having = ModelsObserved()
    having.told(loaded=["m"], gone=[], free_bytes=0)
    router.set_models(1, having)
    first = router.pick(model="m", now=0.0)
    assert isinstance(first, Routed)
    assert first.helper is None
    router.set_others(1, 8)
    second = router.pick(model="m", now=0.1)
    assert isinstance(second, Routed)
    assert second.helper is not None
    assert second.helper.copy == 2


def test_adapters_of_a_base_share_its_limit_with_those_of_other_gateways() -> None:
    """Their requests stand in one queue, whichever gateway sent them."""
    base = VariantRoutes(
        name="all", weight=1.0, strategy=LEAST_OUTSTANDING_REQUESTS, component="base",
        copies=(CopyRoute(copy=1, instance_id="i", outstanding_max=3),),
    )  # fmt: skip
    adapter = VariantRoutes(
        name="all", weight=1.0, strategy=LEAST_OUTSTANDING_REQUESTS, component="a", base="base",
        copies=(CopyRoute(copy=2, instance_id="i", outstanding_max=3, base_copy=1),
                CopyRoute(copy=3, instance_id="j", outstanding_max=3, base_copy=9)),
    )  # fmt: skip
    router = EndpointRouter(
        EndpointRoutes(endpoint="e", variants=(base, adapter), takes_components=True),
        random.Random(1),
    )
    router.set_others(1, 3)
    assert picked(router, component="a") == (3, "least-outstanding")

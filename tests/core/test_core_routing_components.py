"""Requests for inference components: which must name one, and whose copies may answer it."""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.core.deployment.deployment import (
    PREFIX_AWARE,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed

REQUIRED = NoRoute("component-required", None)
NOT_ALLOWED = NoRoute("component-not-allowed", None)
UNKNOWN = NoRoute("unknown-component", None)


def component(name: str, *copies: int, variant: str = "main", **more: object) -> VariantRoutes:
    """Two requests a copy."""
    fields: dict[str, object] = {"strategy": "LEAST_OUTSTANDING_REQUESTS"} | more
    return VariantRoutes(
        name=variant,
        weight=1.0,
        copies=tuple(
            CopyRoute(copy=copy, instance_id=f"i{copy % 10}", outstanding_max=2) for copy in copies
        ),
        component=name,
        **fields,  # type: ignore[arg-type]
    )


def endpoint(*components: VariantRoutes) -> EndpointRoutes:
    return EndpointRoutes(endpoint="shared", variants=components, takes_components=True)


def router_of(*components: VariantRoutes) -> EndpointRouter:
    return EndpointRouter(endpoint(*components), random.Random(1))


def copies_of(router: EndpointRouter, count: int, **asked: object) -> list[int]:
    """Of so many requests that stay in flight."""
    found = []
    for _ in range(count):
        answer = router.pick(**asked)  # type: ignore[arg-type]
        assert isinstance(answer, Routed), answer
        found.append(answer.state.copy)
    router.check_invariants()
    return found


def test_only_copies_of_the_named_component_answer() -> None:
    """They may share their instances: copy 1 of a and copy 11 of b are both on i1."""
    router = router_of(component("a", 1, 2), component("b", 11, 12))
    assert copies_of(router, 4, component="b") == [11, 12, 11, 12]
    assert router.pick(component="b") == NoRoute("all-copies-full", 0.1), "a is idle, and not b"
    assert copies_of(router, 2, component="a") == [1, 2]
    assert router.outstanding("main") == 6


def test_an_endpoint_of_components_answers_none_that_names_no_component() -> None:
    router = router_of(component("a", 1))
    assert router.pick() == REQUIRED
    assert router.pick(variant="main") == REQUIRED
    assert router_of().pick() == REQUIRED, "even before there is one"


def test_an_endpoint_of_models_takes_no_component() -> None:
    model = EndpointRoutes(endpoint="one", variants=(component("", 1),))
    router = EndpointRouter(model, random.Random(1))
    assert router.pick(component="a") == NOT_ALLOWED
    assert router.pick(component="a", variant="main") == NOT_ALLOWED
    assert router.pick(component="a", session="s", opens=True, now=0.0) == NOT_ALLOWED
    assert copies_of(router, 1) == [1]


def test_a_component_that_is_not_there_is_unknown_and_one_without_copies_is_not() -> None:
    router = router_of(component("a", 1), component("empty"))
    assert router.pick(component="nobody") == UNKNOWN
    assert router.pick(component="empty") == NoRoute("no-copies", 1.0)
    router.set_healthy(1, False)
    assert router.pick(component="a") == NoRoute("no-healthy-copy", 1.0)


def test_a_variant_may_be_named_too_if_it_is_the_components_own() -> None:
    router = router_of(component("a", 1), component("b", 2, variant="other"))
    assert copies_of(router, 1, component="b", variant="other") == [2]
    assert router.pick(component="b", variant="main") == NoRoute("unknown-variant", None)


def test_a_session_lives_on_a_copy_of_its_component_and_answers_for_no_other() -> None:
    router = router_of(component("a", 1, 2), component("b", 11))
    opened = router.open_session("s", component="a", now=0.0)
    assert isinstance(opened, CopyState)
    assert copies_of(router, 1, session="s", component="a", now=1.0) == [opened.copy]
    assert router.pick(session="s", component="b", now=2.0) == NoRoute("session-unknown", None)
    assert router.pick(session="s", now=3.0) == REQUIRED
    assert router.open_session("t", now=4.0) == REQUIRED


def test_a_prompt_goes_to_the_copy_of_its_component_that_has_seen_its_beginning() -> None:
    prefix = {
        "strategy": PREFIX_AWARE,
        "prefix_length_max": 1024,
        "concurrency_threshold": 2,
    }
    router = router_of(component("a", 1, 2, **prefix), component("b", 11, 12, **prefix))
    prompt = b"x" * 1024

    def asked(name: str) -> tuple[int, str]:
        answer = router.pick(component=name, prompt=prompt)
        assert isinstance(answer, Routed)
        router.release(answer.state)
        return answer.state.copy, answer.reason

    assert [asked("a"), asked("a")] == [(1, "least-outstanding"), (1, "prefix-match")]
    assert asked("b") == (11, "least-outstanding"), "what a's copies have seen is not theirs"


def test_a_component_that_comes_or_goes_leaves_the_others_as_they_are() -> None:
    router = router_of(component("a", 1), component("b", 11))
    copies_of(router, 1, component="a")
    gone = router.replace(endpoint(component("a", 1, 2), component("c", 21)))
    assert [state.copy for state in gone] == [11]
    assert copies_of(router, 1, component="a") == [2], "copy 1 has kept its count"
    assert copies_of(router, 1, component="c") == [21]
    assert router.pick(component="b") == UNKNOWN


def test_a_copy_that_comes_back_under_another_component_has_lost_its_sessions() -> None:
    router = router_of(component("a", 1), component("b"))
    router.open_session("s", component="a", now=0.0)
    router.replace(endpoint(component("a"), component("b", 1)))
    assert router.pick(session="s", component="b", now=1.0) == NoRoute("session-lost", None)
    router.check_invariants()


def test_the_story_of_a_router_names_components_where_there_are_any() -> None:
    with_one = router_of(component("a", 1)).snapshot()["variants"]
    assert [(row["variant"], row["component"]) for row in with_one] == [("main", "a")]
    without = EndpointRouter(
        EndpointRoutes(endpoint="e", variants=(component("", 1),)), random.Random(1)
    ).snapshot()["variants"]
    assert "component" not in without[0]


def adapter(name: str, base: str, *copies: tuple[int, int]) -> VariantRoutes:
    """Each copy with that of the base that it is on."""
    made = component(name, *(copy for copy, _ in copies), base=base)
    on = dict(copies)
    routes = (replace(route, base_copy=on[route.copy], outstanding_max=4) for route in made.copies)
    return replace(made, copies=tuple(routes))


def base_of_four(name: str, *copies: int) -> VariantRoutes:
    made = component(name, *copies)
    return replace(made, copies=tuple(replace(route, outstanding_max=4) for route in made.copies))


def test_an_adapters_requests_weigh_on_the_copy_of_its_base_and_the_other_way_round() -> None:
    """They share its queue: what counts is all that is in it, whoever it is for."""
    router = router_of(
        base_of_four("chat", 1, 2), adapter("x", "chat", (11, 1), (12, 2)),
        adapter("y", "chat", (21, 1), (22, 2)),
    )  # fmt: skip
    assert copies_of(router, 1, component="x") == [11]
    assert copies_of(router, 1, component="chat") == [2]
    assert copies_of(router, 1, component="y") == [21], "tie: the one that was never picked first"
    assert copies_of(router, 2, component="chat") == [2, 1]
    assert copies_of(router, 3, component="x") == [12, 11, 12]
    for name in ("chat", "x", "y"):
        assert router.pick(component=name) == NoRoute("all-copies-full", 0.1), name


def test_what_an_adapter_has_left_weighs_no_more() -> None:
    """Nor does a copy that is no longer in the routes."""
    chat, x = base_of_four("chat", 1, 2), adapter("x", "chat", (11, 1), (12, 2))
    router = router_of(chat, x)
    picked = router.pick(component="x")
    assert isinstance(picked, Routed)
    router.release(picked.state)
    assert copies_of(router, 2, component="chat") == [1, 2]
    router.replace(endpoint(chat, adapter("x", "chat", (12, 2))))
    assert copies_of(router, 2, component="x") == [12, 12]
    assert copies_of(router, 2, component="chat") == [1, 1]
    router.replace(endpoint(chat))
    assert copies_of(router, 1, component="chat") == [2]


def test_a_request_may_begin_where_a_lane_of_a_copy_is_idle_that_it_may_go_to() -> None:
    """Whatever waits for another component. Of copies that are not there nothing can be said."""
    b = component("b", 11, model={"lanes": 2})
    router = router_of(component("a", 1, 2), b, component("asleep"))

    def may_begin(name: str | None) -> bool:
        return router.may_begin(None, name)

    copies_of(router, 2, component="a")
    assert (may_begin("a"), may_begin("b"), may_begin("asleep"), may_begin(None)) == (
        False, True, True, True,
    )  # fmt: skip
    router.set_others(11, 1)
    assert may_begin("b"), "one of two lanes is another gateway's"
    copies_of(router, 1, component="b")
    assert (may_begin("b"), may_begin(None)) == (False, False)
    router.set_healthy(11, False)
    assert may_begin("b"), "it waits for its copy's return, which no forecast knows"
    assert not may_begin(None)


def test_variants_have_lanes_of_their_own() -> None:
    """A slow variant's queue refuses nobody who asked for the other, drawn or not."""
    routes = EndpointRoutes(
        endpoint="e",
        variants=(
            replace(component("", 1, variant="slow"), weight=9.0),
            replace(component("", 2, variant="shadow"), weight=0.0),
        ),
    )
    router = EndpointRouter(routes, random.Random(1))
    copies_of(router, 1)
    assert not router.may_begin("slow", None)
    assert router.may_begin("shadow", None)
    assert not router.may_begin(None, None), "it is never drawn"


def test_adapters_share_the_lanes_of_their_base() -> None:
    base, adapter = component("base", 1), component("adapter", 2, base="base")
    copies = (replace(adapter.copies[0], base_copy=1),)
    router = router_of(base, replace(adapter, copies=copies))
    copies_of(router, 1, component="base")
    for name in ("base", "adapter"):
        assert not router.may_begin(None, name)


def test_a_slot_that_no_caller_waits_for_is_on_a_copy_of_the_revision_that_is_meant() -> None:
    """Whatever is idle besides."""
    both = component("a", 1, 2, 3)
    new = tuple(replace(one, incoming=one.copy == 2) for one in both.copies)
    router = router_of(replace(both, copies=new))
    group = both.group
    for wanted, copies in ((True, [2, 2]), (False, [1, 3, 1, 3])):
        found = [router.pick_in(group, incoming=wanted) for _ in copies]
        assert [one and (one.state.copy, one.reason) for one in found] == [
            (copy, "comparison") for copy in copies
        ]
        assert router.pick_in(group, incoming=wanted) is None, "all of its copies are full"
    # It has taken over, and is like any other.
    for state in [router.state_of(copy) for copy in (1, 2, 3)]:
        assert state is not None
        while state.outstanding:
            router.release(state)
    router.replace(endpoint(component("a", 2)))
    assert router.pick_in(group, incoming=True) is None
    found_now = router.pick_in(group, incoming=False)
    assert found_now is not None
    assert found_now.state.copy == 2
    router.check_invariants()

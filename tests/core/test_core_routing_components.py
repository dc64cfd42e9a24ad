"""Requests for inference components: which must name one, and whose copies may answer it."""

from __future__ import annotations

import random

from penstock.core.deployment import PREFIX_AWARE, CopyRoute, EndpointRoutes, VariantRoutes
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

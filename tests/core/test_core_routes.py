"""`core/endpoint/routes.py` as literal timelines: what gateways are told."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_reconcile import deployment, observed, routes, seen

from penstock.core.deployment.deployment import CaptureSpec, DeploymentSpec, EndpointRoutes
from penstock.core.deployment.endpoint_state import (
    DRAINING,
    LOADING,
    LOST,
    READY,
    CopyObserved,
    PublishRoutes,
    WithdrawRoutes,
)
from penstock.core.endpoint.routes import IncomingRoutes, decide, withdraw


def copy(number: int, name: str, phase: str = READY) -> CopyObserved:
    return seen(name, phase, copy=number).copies[0]


def decided(
    *copies: CopyObserved, published: EndpointRoutes | None = None
) -> tuple[PublishRoutes, ...]:
    return decide(deployment(), {"blue": copies}, published, "copies-changed")


def test_an_endpoint_is_made_known_and_follows_its_copies() -> None:
    assert decided() == (PublishRoutes(routes(), "endpoint-known"),)
    assert decided(copy(7, "a"), published=routes()) == (
        PublishRoutes(routes((7, "a")), "copies-changed"),
    )
    assert decided(copy(7, "a"), published=routes((7, "a"))) == ()


def test_other_names_are_told_with_the_routes_and_as_soon_as_they_change() -> None:
    named = replace(routes(), served_names={"densenet_onnx": ""})
    for names, published, expected in (
        ({"densenet_onnx": ""}, None, (PublishRoutes(named, "endpoint-known"),)),
        ({"densenet_onnx": ""}, routes(), (PublishRoutes(named, "served-names-changed"),)),
        ({"densenet_onnx": ""}, named, ()),
        ({}, named, (PublishRoutes(routes(), "served-names-changed"),)),
    ):
        made = decide(deployment(), {}, published, "copies-changed", served_names=names)
        assert made == expected


def test_gateways_hear_of_capture_where_there_is_something_to_capture() -> None:
    spec = CaptureSpec(destination_uri="s3://b/p", percentage=30)
    for given, told in (
        (spec, spec),
        (replace(spec, enabled=False), None),
        (replace(spec, percentage=0), None),
    ):
        made = decide(replace(deployment(), capture=given), {}, None, "copies-changed")
        assert made == (PublishRoutes(replace(routes(), capture=told), "endpoint-known"),)


def test_a_copy_that_generates_is_named_with_what_its_engine_keeps_of_prompts() -> None:
    made = replace(copy(7, "a"), model={"generation": {"engine": "paced", "cache_tokens": 4096}})
    older = replace(copy(8, "b"), model={"generation": {"engine": "paced"}})
    (publish,) = decided(made, older, copy(9, "c"), published=None)
    (variant,) = publish.routes.variants
    assert [one.cache_tokens for one in variant.copies] == [4096, 0, 0]


def test_a_first_generation_that_is_ready_says_so() -> None:
    assert decide(deployment(), {"blue": [copy(7, "a")]}, None, "generation-ready") == (
        PublishRoutes(routes((7, "a")), "generation-ready"),
    )


def test_only_what_answers_is_routed_to() -> None:
    others = [copy(1, "a", LOADING), copy(2, "b", LOST), copy(3, "c", DRAINING)]
    assert decided(*others, copy(4, "d"), published=routes((1, "a"), (4, "d"))) == (
        PublishRoutes(routes((4, "d")), "copies-changed"),
    )


def test_copies_are_named_in_the_order_of_their_numbers() -> None:
    """So the same copies seen in another order are the same routes."""
    assert decided(copy(9, "b"), copy(4, "c"), copy(7, "a"), published=None) == (
        PublishRoutes(routes((4, "c"), (7, "a"), (9, "b")), "endpoint-known"),
    )
    two = observed(seen("b", READY, copy=9), seen("a", READY, copy=7)).copies
    assert decided(*two, published=routes((7, "a"), (9, "b"))) == ()


def test_a_copy_of_another_model_is_not_what_a_variants_requests_ask_for() -> None:
    other = replace(copy(8, "a"), component="ranking")
    assert decided(copy(7, "a"), other, published=routes((7, "a"))) == ()


def test_every_variant_of_the_generation_is_named_even_one_without_a_copy() -> None:
    (blue,) = deployment().variants
    both = replace(deployment(), variants=(blue, replace(blue, name="green", weight=3.0)))
    (publish,) = decide(both, {"blue": [copy(7, "a")]}, routes(), "weights-changed")
    assert [(one.name, one.weight, len(one.copies)) for one in publish.routes.variants] == [
        ("blue", 1.0, 1),
        ("green", 3.0, 0),
    ]
    assert publish.reason == "weights-changed"


def generation(**weights: float) -> DeploymentSpec:
    (blue,) = deployment().variants
    variants = tuple(replace(blue, name=name, weight=weight) for name, weight in weights.items())
    return replace(deployment(), variants=variants)


def shared(
    old: DeploymentSpec, new: DeploymentSpec, share: float
) -> list[tuple[str, bool, float, list[int]]]:
    """(name, incoming, weight, copies) of each entry. Blue has copy 7, its new generation 17."""
    incoming = IncomingRoutes(
        deployment=new,
        copies={"blue": [copy(17, "b"), copy(18, "b", LOADING)]},
        share=share,
    )
    (publish,) = decide(old, {"blue": [copy(7, "a")]}, None, "share-raised", incoming=incoming)
    return [
        (one.name, one.incoming, round(one.weight, 9), [route.copy for route in one.copies])
        for one in publish.routes.variants
    ]


def test_a_new_generation_has_entries_of_its_own_with_its_share_of_the_weight() -> None:
    (blue,), (new,) = routes((7, "a"), weight=0.9).variants, routes((17, "b"), weight=0.1).variants
    both = replace(routes(), variants=(blue, replace(new, incoming=True)))
    incoming = IncomingRoutes(deployment=deployment(2), copies={"blue": [copy(17, "b")]}, share=0.1)
    for published, expected in (
        (routes((7, "a")), (PublishRoutes(both, "share-raised"),)),
        (both, ()),
    ):
        made = decide(
            deployment(), {"blue": [copy(7, "a")]}, published, "share-raised", incoming=incoming
        )
        assert made == expected


def test_shares_are_those_of_generations_whatever_their_weights_are() -> None:
    old, new = generation(blue=1.0, green=3.0), generation(blue=40.0, green=10.0)
    assert shared(old, new, 0.2) == [
        ("blue", False, 0.2, [7]),
        ("green", False, 0.6, []),
        ("blue", True, 0.16, [17]),
        ("green", True, 0.04, []),
    ]


def test_variants_of_one_generation_only_take_part_in_its_share() -> None:
    assert shared(generation(blue=1.0, green=1.0), generation(blue=1.0, red=3.0), 0.4) == [
        ("blue", False, 0.3, [7]),
        ("green", False, 0.3, []),
        ("blue", True, 0.1, [17]),
        ("red", True, 0.3, []),
    ]


def test_weights_of_0_stay_0() -> None:
    """Such variants get only requests that name them, and a generation of them only those."""
    assert shared(generation(blue=2.0, green=0.0), generation(blue=0.0, green=0.0), 0.5) == [
        ("blue", False, 0.5, [7]),
        ("green", False, 0.0, []),
        ("blue", True, 0.0, [17]),
        ("green", True, 0.0, []),
    ]


def test_without_a_share_the_new_generation_has_no_routes() -> None:
    assert shared(generation(blue=2.0), generation(blue=5.0), 0.0) == [("blue", False, 2.0, [7])]


def test_generations_of_inference_components_are_not_shared() -> None:
    (blue,) = deployment().variants
    taking = replace(deployment(), variants=(replace(blue, model=None),))
    assert shared(generation(blue=2.0), taking, 0.5) == [("blue", False, 2.0, [7])]
    assert shared(taking, generation(blue=2.0), 0.5) == []


def test_what_was_published_is_withdrawn_once() -> None:
    assert withdraw(routes(), "endpoint-deleted") == (WithdrawRoutes("endpoint-deleted"),)
    assert withdraw(None, "endpoint-deleted") == ()

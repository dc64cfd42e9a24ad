"""`core/endpoint/routes.py` as literal timelines: what gateways are told."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_reconcile import deployment, observed, routes, seen

from penstock.core.deployment.deployment import CaptureSpec, EndpointRoutes
from penstock.core.deployment.endpoint_state import (
    DRAINING,
    LOADING,
    LOST,
    READY,
    CopyObserved,
    PublishRoutes,
    WithdrawRoutes,
)
from penstock.core.endpoint.routes import decide, withdraw


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


def test_what_was_published_is_withdrawn_once() -> None:
    assert withdraw(routes(), "endpoint-deleted") == (WithdrawRoutes("endpoint-deleted"),)
    assert withdraw(None, "endpoint-deleted") == ()

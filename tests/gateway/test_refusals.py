"""The errors of a gateway as callers see them: whose fault, which code and status, when again."""

from __future__ import annotations

import orjson
import pytest
from tests.kit.gateway import reply

from penstock.config import LimitConfig
from penstock.core.blame.poison_requests import FRESH, died_of_it
from penstock.core.request.admission import Refusal
from penstock.core.routing import NoRoute
from penstock.errors import CallerError, InternalError, ModelError, NotNowError, PenstockError
from penstock.gateway.dispatch import refusals

LIMITS = LimitConfig(body_bytes_max=1000, head_bytes_max=2000)


def told(error: PenstockError) -> tuple[type[PenstockError], str, int, float | None]:
    return type(error), error.code, error.status, error.retry_after_s


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refusals.endpoint_not_found("e"), (CallerError, "endpoint-not-found", 404, None)),
        (refusals.deadline_passed("e"), (NotNowError, "deadline-passed", 503, None)),
        (refusals.stopping(), (NotNowError, "stopping", 503, 1.0)),
        (refusals.memory_full(), (NotNowError, "bodies-too-many", 503, 1.0)),
        (died_of_it(FRESH), (ModelError, "model-worker-died", 424, None)),
        (refusals.given_up("e", "why", 2), (NotNowError, "copies-lost", 503, 1.0)),
        (refusals.no_capacity_in_time("e", "c"), (NotNowError, "no-capacity-in-time", 503, 1.0)),
        (
            refusals.target_model_not_ready("m"),
            (NotNowError, "target-model-not-ready", 429, 1.0),
        ),
        (
            refusals.target_model_not_allowed("e"),
            (CallerError, "target-model-not-allowed", 400, None),
        ),
        (
            refusals.target_model_refused("e", named=False),
            (CallerError, "target-model-required", 400, None),
        ),
        (refusals.stream_broken("e"), (NotNowError, "stream-broken", 503, 1.0)),
        (refusals.responder_failed(), (InternalError, "internal", 500, None)),
        (
            refusals.body_too_large(1000, "limits.body_bytes_max"),
            (CallerError, "body-too-large", 413, None),
        ),
        (refusals.head_too_large(LIMITS), (CallerError, "head-too-large", 431, None)),
        (refusals.fields_too_many(9), (CallerError, "head-too-large", 431, None)),
        (refusals.too_slow("head", 9.5), (CallerError, "request-too-slow", 408, None)),
        (refusals.connections_too_many(9), (NotNowError, "too-many-connections", 503, 1.0)),
        (refusals.malformed("why"), (CallerError, "http-malformed", 400, None)),
        (refusals.connect_unserved(), (CallerError, "method-unknown", 405, None)),
        (refusals.expectation_unknown(b"e"), (CallerError, "expectation-unknown", 417, None)),
    ],
    ids=lambda each: each.code if isinstance(each, PenstockError) else "",
)
def test_each_refusal_is_of_one_family(
    error: PenstockError, expected: tuple[type[PenstockError], str, int, float | None]
) -> None:
    assert told(error) == expected
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("sessions-full", (NotNowError, "sessions-full", 503, 2.5)),
        ("no-copies", (NotNowError, "no-copies", 503, 2.5)),
        ("no-healthy-copy", (NotNowError, "no-healthy-copy", 503, 2.5)),
        ("all-copies-full", (NotNowError, "all-copies-full", 503, 2.5)),
        ("unknown-variant", (CallerError, "variant-not-found", 400, None)),
        ("session-unknown", (CallerError, "session-unknown", 400, None)),
        ("session-lost", (CallerError, "session-lost", 400, None)),
    ],
)
def test_what_finds_no_copy_may_come_again_or_is_the_callers_mistake(
    reason: str, expected: tuple[type[PenstockError], str, int, float | None]
) -> None:
    error = refusals.no_route("shop", "blue", NoRoute(reason, retry_after_s=2.5))
    assert told(error) == expected
    assert "shop" in error.message
    assert ("blue" in error.message) == (reason == "unknown-variant")


def test_who_is_not_admitted_may_come_again_unless_its_time_is_over() -> None:
    late = refusals.not_admitted("e", Refusal("deadline-passed", retry_after_s=2.5))
    assert told(late) == (NotNowError, "deadline-passed", 503, None)
    busy = refusals.not_admitted("e", Refusal("queue-too-long", retry_after_s=2.5))
    assert told(busy) == (NotNowError, "queue-too-long", 503, 2.5)


def test_an_expectation_is_told_back_cut() -> None:
    assert refusals.expectation_unknown(b"e" * 65).message == f"Expect: {'e' * 64} can't be met."


def test_the_error_of_an_instance_is_told_as_it_is() -> None:
    error = CallerError("wrong", "No.", hint="Try.", status=415)
    seen = refusals.of_instance(reply(orjson.dumps(error.to_dict())))
    assert (told(seen), seen.hint) == ((CallerError, "wrong", 415, None), "Try.")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null"])
def test_what_is_no_error_is_ours(body: bytes) -> None:
    assert told(refusals.of_instance(reply(body))) == (InternalError, "internal", 500, None)

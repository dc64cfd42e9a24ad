"""The errors that the dispatcher gives, each with what the caller can do about it."""

from __future__ import annotations

import logging

import orjson

from penstock.core.admission import Refusal
from penstock.core.routing import NoRoute
from penstock.errors import (
    CallerError,
    InternalError,
    ModelError,
    NotNowError,
    PenstockError,
    from_dict,
)
from penstock.wire.frames import Reply

log = logging.getLogger(__name__)

_NO_ROUTE = {
    "sessions-full": (
        "holds as many sessions as it may.",
        "Close sessions that are over, or wait until unused ones expire.",
    ),
    "no-copies": (
        "has no copies of its model.",
        "Wait until it is InService, or raise its instance count.",
    ),
    "no-healthy-copy": (
        "has no copy that is well right now; one is being restarted.",
        "Try again in a second.",
    ),
    "all-copies-full": (
        "has as many requests waiting as it may hold.",
        "Send fewer at once, or raise its instance count.",
    ),
}


_SESSION_GONE = {
    "session-unknown": "is not known: it was never opened, was closed, or nobody used it for long",
    "session-lost": "is lost: the copy that held it is gone, and with it what it knew",
}


def endpoint_not_found(endpoint: str) -> PenstockError:
    return CallerError(
        "endpoint-not-found",
        f"Endpoint {endpoint} not found.",
        hint="ListEndpoints names those that exist.",
        status=404,
    )


_TARGET_MODEL = {
    "target-model-required": (
        "needs a TargetModel: it is a multi-model endpoint.",
        "Name one of the models below its prefix.",
    ),
    "target-model-not-allowed": (
        "takes no TargetModel: it is not a multi-model endpoint.",
        "Leave TargetModel out.",
    ),
}


def no_route(endpoint: str, variant: str | None, route: NoRoute) -> PenstockError:
    if route.reason == "unknown-variant":
        return CallerError(
            "variant-not-found",
            f"Variant {variant} of endpoint {endpoint} not found.",
            hint="DescribeEndpoint names its variants.",
        )
    if route.reason in _SESSION_GONE:
        return CallerError(
            route.reason,
            f"The session of endpoint {endpoint} {_SESSION_GONE[route.reason]}.",
            hint="Open another with the session id NEW_SESSION.",
        )
    if route.reason in _TARGET_MODEL:
        what, hint = _TARGET_MODEL[route.reason]
        return CallerError(route.reason, f"Endpoint {endpoint} {what}", hint=hint)
    what, hint = _NO_ROUTE[route.reason]
    return NotNowError(
        route.reason,
        f"Endpoint {endpoint} {what}",
        hint=hint,
        retry_after_s=route.retry_after_s,
    )


def target_model_not_allowed(endpoint: str) -> PenstockError:
    what, hint = _TARGET_MODEL["target-model-not-allowed"]
    return CallerError("target-model-not-allowed", f"Endpoint {endpoint} {what}", hint=hint)


def target_model_not_ready(model: str) -> PenstockError:
    """As its host says it (SageMaker's ModelNotReadyException)."""
    return NotNowError(
        "target-model-not-ready",
        f"Target model {model} was not loaded within the time that the request allowed.",
        hint="Try again in a moment, or allow more time.",
        status=429,
        retry_after_s=1.0,
    )


def not_admitted(endpoint: str, refusal: Refusal) -> PenstockError:
    if refusal.reason == "deadline-passed":
        return deadline_passed(endpoint)
    return NotNowError(
        refusal.reason,
        f"Endpoint {endpoint} is too busy to answer in time.",
        hint="Send fewer requests at once, allow more time, or raise its instance count.",
        retry_after_s=refusal.retry_after_s,
    )


def deadline_passed(endpoint: str) -> PenstockError:
    return NotNowError(
        "deadline-passed",
        f"Endpoint {endpoint} did not answer within the time that the request allowed.",
        hint="Allow more time, or send fewer requests at once.",
    )


def stopping() -> PenstockError:
    return NotNowError(
        "stopping",
        "The server is stopping.",
        hint="Send the request to another one, or again in a moment.",
        retry_after_s=1.0,
    )


def memory_full() -> PenstockError:
    return NotNowError(
        "bodies-too-many",
        "The bodies of the requests in flight take all the memory set aside for them.",
        hint="Send fewer or smaller requests at once.",
        retry_after_s=1.0,
    )


def worker_died(deaths: int) -> PenstockError:
    """The caller should not try again what ended a worker each time."""
    return ModelError(
        "model-worker-died",
        f"The model's process ended on this request, {deaths} times.",
        hint="Look into the endpoint's log.",
        original_message="the model's process ended while it had this request",
    )


def given_up(endpoint: str, reason: str, attempts: int) -> PenstockError:
    """Sent `attempts` times, given back each time, the last time because of `reason`."""
    return NotNowError(
        "copies-lost",
        f"Endpoint {endpoint} gave the request back {attempts} times, the last time: {reason}.",
        hint="Try again in a second; its log tells more.",
        retry_after_s=1.0,
    )


def stream_broken(endpoint: str) -> PenstockError:
    return NotNowError(
        "stream-broken",
        f"The copy of endpoint {endpoint} that was answering is gone; part of the answer was sent.",
        hint="Send the request again.",
        retry_after_s=1.0,
    )


def responder_failed() -> PenstockError:
    return InternalError("internal", "The answer could not be passed on.")


def of_instance(reply: Reply) -> PenstockError:
    """The error that an instance answered with."""
    try:
        return from_dict(orjson.loads(reply.body))
    except (ValueError, TypeError, AttributeError):
        log.error("an instance sent an error that can't be read: %r", reply.body[:256])
        return InternalError("internal", "The instance's error could not be read.")

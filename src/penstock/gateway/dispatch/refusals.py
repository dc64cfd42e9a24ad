"""The errors of the gateway, each with what the caller can do about it."""

from __future__ import annotations

import logging
from typing import Final

import orjson

from penstock.config import LimitConfig
from penstock.core.deployment.deployment import VariantRoutes
from penstock.core.deployment.shadow_tag import TAG
from penstock.core.request.admission import Refusal
from penstock.core.request.holding import REFUSED, HoldStep
from penstock.core.routing import NoRoute, sequences
from penstock.errors import (
    CallerError,
    InternalError,
    NotNowError,
    PenstockError,
    from_dict,
)
from penstock.wire.frames import Reply

log = logging.getLogger(__name__)

#: Messages for the reasons of routing and of holding. `{who}` is the endpoint or its component.
#: Clients search for the first words of components' messages, so keep these.
_TEMPLATES: Final = {
    one.code: one
    for one in (
        CallerError(
            "variant-not-found",
            "Variant {variant} of endpoint {endpoint} not found.",
            hint="DescribeEndpoint names its variants.",
        ),
        CallerError(
            "component-not-found",
            "Inference component {component} of endpoint {endpoint} not found.",
            hint="ListInferenceComponents names those of the endpoint.",
        ),
        CallerError(
            "component-required",
            "Inference Component Name header is required for endpoints to which inference"
            " components are deployed.",
            hint="ListInferenceComponents names those of the endpoint: give one as"
            " InferenceComponentName, or name the model ENDPOINT:COMPONENT.",
        ),
        CallerError(
            "component-not-allowed",
            "Inference Component Name header is not allowed for endpoints without inference"
            " components.",
            hint="Leave InferenceComponentName out.",
        ),
        CallerError(
            "component-no-capacity",
            "Inference Component has no capacity to process this request. ApplicationAutoScaling"
            " may be in-progress (if configured) or try to increase the capacity by invoking"
            " UpdateInferenceComponentRuntimeConfig API.",
        ),
        CallerError(
            "target-model-required",
            "Endpoint {endpoint} needs a TargetModel: it is a multi-model endpoint.",
            hint="Name one of the models below its prefix.",
        ),
        CallerError(
            "target-model-not-allowed",
            "Endpoint {endpoint} takes no TargetModel: it is not a multi-model endpoint.",
            hint="Leave TargetModel out.",
        ),
        CallerError(
            "session-unknown",
            "The session of endpoint {endpoint} is not known: it was never opened, was closed, or"
            " nobody used it for long.",
            hint="Open another with the session id NEW_SESSION.",
        ),
        CallerError(
            "session-lost",
            "The session of endpoint {endpoint} is lost: the copy that held it is gone, and with it"
            " what it knew.",
            hint="Open another with the session id NEW_SESSION.",
        ),
        CallerError(
            "sequence-not-started",
            "A request for sequence {sequence} to model '{endpoint}' must specify the START flag,"
            " because no such sequence has begun, or it has ended or was idle for too long.",
            hint="Begin it: send its first request with sequence_start.",
        ),
        CallerError(
            "sequence-lost",
            "Sequence {sequence} of model '{endpoint}' is lost, and its state with it: the copy"
            " that held it is gone.",
            hint="Begin it again: send its first request with sequence_start.",
        ),
        NotNowError(
            "sessions-full",
            "Endpoint {endpoint} holds as many sessions as it may.",
            hint="Close sessions that are over, or wait until unused ones expire.",
        ),
        NotNowError(
            "no-copies",
            "Endpoint {endpoint} has no copies of its model.",
            hint="Wait until it is InService, or raise its instance count.",
        ),
        NotNowError(
            "no-healthy-copy",
            "Endpoint {endpoint} has no copy that is well right now; one is being restarted.",
            hint="Try again in a second.",
        ),
        NotNowError(
            "all-copies-full",
            "Endpoint {endpoint} has as many requests waiting as it may hold.",
            hint="Send fewer at once, or raise its instance count.",
        ),
        NotNowError(
            "held-too-many",
            "{who} has no copy that can take requests, and as many wait for one as may.",
            hint="Try again once a copy is ready, or raise limits.held_requests_max.",
        ),
        NotNowError(
            "held-bytes-too-many",
            "{who} has no copy that can take requests, and the bodies of those that wait for one"
            " take all the memory set aside for them.",
            hint="Try again once a copy is ready, or raise limits.held_bytes_max.",
        ),
        NotNowError(
            "ready-too-late",
            "{who} has no copy that can take requests, and none can be ready within the time that"
            " this one allows.",
            hint="Try again once a copy is ready, or allow more time.",
        ),
    )
}
#: Reasons whose error code has another name.
_CODES: Final = {
    "unknown-component": "component-not-found",
    "unknown-variant": "variant-not-found",
}


def _filled(
    code: str, endpoint: str = "", retry_after_s: float | None = None, **words: str | None
) -> PenstockError:
    template = _TEMPLATES[code]
    message = template.message.format(endpoint=endpoint, **words)
    if isinstance(template, CallerError):
        return CallerError(code, message, hint=template.hint)
    return NotNowError(code, message, hint=template.hint, retry_after_s=retry_after_s)


def endpoint_not_found(endpoint: str) -> PenstockError:
    return CallerError(
        "endpoint-not-found",
        f"Endpoint {endpoint} not found.",
        hint="ListEndpoints names those that exist.",
        status=404,
    )


def component_not_allowed() -> PenstockError:
    """The request names a component, but the endpoint has none."""
    return _filled("component-not-allowed")


def component_is_shadow(endpoint: str, shadow: VariantRoutes) -> PenstockError:
    """The request names a component that answers no caller."""
    return CallerError(
        "component-is-shadow",
        f"Inference component {shadow.component} of endpoint {endpoint} answers no caller: it is"
        f" the shadow of {shadow.shadow_of}, and gets copies of its requests.",
        hint=f"Call {shadow.shadow_of}, or take the tag {TAG} away from {shadow.component}.",
    )


def no_route(
    endpoint: str,
    variant: str | None,
    route: NoRoute,
    component: str | None = None,
    session: str | None = None,
) -> PenstockError:
    if session is not None and sequences.is_sequence(session):
        if route.reason in ("sequence-not-started", "session-unknown"):
            return _filled("sequence-not-started", endpoint, sequence=sequences.shown(session))
        if route.reason in ("sequence-lost", "session-lost"):
            return _filled("sequence-lost", endpoint, sequence=sequences.shown(session))
    code = _CODES.get(route.reason, route.reason)
    return _filled(code, endpoint, route.retry_after_s, variant=variant, component=component)


def not_held(endpoint: str, pool: VariantRoutes, route: NoRoute, step: HoldStep) -> PenstockError:
    """No copy can take the request, and it can't wait for one."""
    if step.reason != REFUSED:
        who = _whose(endpoint, pool.component)
        return _filled(step.reason, endpoint, step.retry_after_s, who=who)
    if pool.component and route.reason == "no-copies":
        return _filled("component-no-capacity")
    return no_route(endpoint, pool.name, route, pool.component)


def no_capacity_in_time(endpoint: str, component: str | None) -> PenstockError:
    return NotNowError(
        "no-capacity-in-time",
        f"{_whose(endpoint, component)} had no copy that could take the request within the time"
        " that it allowed: the request was held for one, because the count of copies is 0 or those"
        " that there are still load.",
        hint=f"'penstock status {endpoint}' shows its copies and what they do. Allow more time, or"
        " raise the count.",
        retry_after_s=1.0,
    )


def _whose(endpoint: str, component: str | None) -> str:
    return f"{f'Component {component} of endpoint' if component else 'Endpoint'} {endpoint}"


def target_model_not_allowed(endpoint: str) -> PenstockError:
    return target_model_refused(endpoint, named=True)


def target_model_refused(endpoint: str, *, named: bool) -> PenstockError:
    """A target model is named where none is allowed, or none is named where one is required."""
    return _filled("target-model-not-allowed" if named else "target-model-required", endpoint)


def target_container_not_allowed(endpoint: str) -> PenstockError:
    return CallerError(
        "target-container-not-allowed",
        f"Endpoint {endpoint} takes no TargetContainerHostname: its model has no several containers"
        " with the Mode Direct.",
        hint="Leave TargetContainerHostname out.",
    )


def target_model_not_ready(model: str) -> PenstockError:
    """The same error as the host's own (SageMaker's ModelNotReadyException)."""
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


def asynchronous_only(endpoint: str) -> PenstockError:
    return CallerError(
        "endpoint-asynchronous",
        f"Endpoint {endpoint} has an AsyncInferenceConfig: it takes asynchronous requests only.",
        hint="Call it with InvokeEndpointAsync.",
    )


def stopping(who: str = "The server") -> PenstockError:
    return NotNowError(
        "stopping",
        f"{who} is stopping.",
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


def given_up(endpoint: str, reason: str, attempts: int) -> PenstockError:
    """It was sent `attempts` times and given back each time, the last time because of `reason`."""
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
    """The error that an instance answered."""
    try:
        return from_dict(orjson.loads(reply.body))
    except (ValueError, TypeError, AttributeError):
        log.error("an instance sent an error that can't be read: %r", reply.body[:256])
        return InternalError("internal", "The instance's error could not be read.")


# Of an HTTP connection, before a door sees the request


def body_too_large(bytes_max: int, setting: str) -> PenstockError:
    return CallerError(
        "body-too-large",
        f"The body is larger than {bytes_max} bytes ({setting}).",
        hint="Send less at once, or start the server with a larger limit.",
        status=413,
    )


def head_too_large(limits: LimitConfig) -> PenstockError:
    message = f"Request line and headers are larger than {limits.head_bytes_max} bytes."
    return CallerError("head-too-large", message, status=431)


def fields_too_many(fields_max: int) -> PenstockError:
    message = f"The request has more than {fields_max} headers."
    return CallerError("head-too-large", message, status=431)


def too_slow(part: str, limit_s: float) -> PenstockError:
    message = f"The {part} of the request took longer than {limit_s:g} s."
    return CallerError("request-too-slow", message, status=408)


def connections_too_many(connections_max: int) -> PenstockError:
    return NotNowError(
        "too-many-connections",
        f"{connections_max} connections are open.",
        hint="Reuse connections, or try again shortly.",
        retry_after_s=1.0,
    )


def malformed(why: object) -> PenstockError:
    return CallerError("http-malformed", f"This is not HTTP/1.1: {why}.")


def connect_unserved() -> PenstockError:
    return CallerError("method-unknown", "CONNECT is not served.", status=405)


def expectation_unknown(expectation: bytes) -> PenstockError:
    message = f"Expect: {expectation[:64].decode('latin-1')} can't be met."
    return CallerError("expectation-unknown", message, status=417)

"""Errors for callers of a target model that does not answer, or has another version."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.core.residency import RefuseParked
from penstock.core.residency.actions import LARGER_THAN_BUDGET, LOAD_FAILED, QUARANTINED
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError
from penstock.wire.frames import decode_request_meta

#: SageMaker's status for a target model that is not loaded yet (ModelNotReadyException).
NOT_READY_STATUS = 429
_RETRY_AFTER_S = 1.0


def refused(model: str, action: RefuseParked, error: PenstockError | None) -> PenstockError:
    """`error`: of the last attempt to load it."""
    if action.reason == LOAD_FAILED and error is not None:
        return error
    if action.reason == LARGER_THAN_BUDGET:
        return CallerError(
            "target-model-too-large",
            f"Target model {model} does not fit: {action.message}",
            hint="Choose a larger instance type.",
        )
    if action.reason == QUARANTINED:
        return ModelError(
            "target-model-quarantined",
            f"Target model {model} is not loaded for now: {action.message}",
            hint="Replace its artifact, or wait.",
            retry_after_s=action.retry_after_s,
        )
    return not_ready(model, action.message, action.retry_after_s)


def not_ready(model: str, why: str, retry_after_s: float | None = None) -> NotNowError:
    return NotNowError(
        "target-model-not-ready",
        f"Target model {model} is not ready: {why}",
        hint="Try again in a moment, or allow more time.",
        status=NOT_READY_STATUS,
        retry_after_s=retry_after_s or _RETRY_AFTER_S,
    )


def busy(model: str, why: str) -> NotNowError:
    return NotNowError(
        "target-model-busy",
        f"Target model {model} is not unloaded: {why}",
        hint="A model is unloaded when it has answered all; keep its callers away for that long.",
        retry_after_s=_RETRY_AFTER_S,
    )


def going() -> NotNowError:
    return NotNowError(
        "host-gone",
        "the host of the target model has ended",
        hint="Try again: another host takes its place.",
        retry_after_s=_RETRY_AFTER_S,
    )


def wrong_version(meta: bytes, described: dict[str, Any]) -> CallerError | None:
    """`described`: of the loaded model. None if the request names no version, or the loaded one."""
    if b"version" not in meta:
        return None
    parameters = decode_request_meta(meta).parameters
    asked = orjson.loads(parameters).get("version") if parameters else None
    versions = [str(one) for one in described.get("versions") or ("1",)]
    if not asked or asked in versions:
        return None
    return CallerError(
        "model-version-not-found",
        f"The target model has no version {str(asked)[:64]}; it has {', '.join(versions)}",
        hint="Leave the version out.",
        status=404,
    )

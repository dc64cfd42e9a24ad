"""Policies of the core as JSON text, as a row holds them."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from penstock.core.scaling.spec import (
    STEP_SCALING,
    Policy,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)


def encode_policy(policy: Policy) -> str:
    return orjson.dumps(asdict(policy)).decode()


def decode_policy(kind: str, text: str) -> Policy:
    """The inverse of `encode_policy`. Members that an older version did not write take their
    defaults."""
    fields = orjson.loads(text)
    if kind == STEP_SCALING:
        steps = tuple(StepAdjustment(**one) for one in fields.pop("steps"))
        return StepPolicy(steps=steps, **fields)
    return TrackingPolicy(**fields)

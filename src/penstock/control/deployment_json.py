"""`DeploymentSpec` as JSON text, the snapshot that a deployment row holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from penstock.core.deployment import DeploymentSpec, ManagedScaling, ModelSource, VariantSpec


def encode_deployment(deployment: DeploymentSpec) -> str:
    return orjson.dumps(asdict(deployment)).decode()


def decode_deployment(text: str) -> DeploymentSpec:
    """The inverse of `encode_deployment`. Members that an older version did not write take their
    defaults."""
    fields = orjson.loads(text)
    variants = []
    for variant in fields.pop("variants"):
        source, managed = variant.pop("model"), variant.pop("managed", None)
        variants.append(
            VariantSpec(
                model=None if source is None else decode_source(source),
                managed=None if managed is None else ManagedScaling(**managed),
                **variant,
            )
        )
    return DeploymentSpec(variants=tuple(variants), **fields)


def decode_source(fields: dict[str, Any]) -> ModelSource:
    environment = tuple((key, value) for key, value in fields.pop("environment"))
    return ModelSource(environment=environment, **fields)

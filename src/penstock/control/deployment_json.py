"""`DeploymentSpec` as JSON text, the snapshot that a deployment row holds."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from penstock.core.deployment import DeploymentSpec, ModelSource, VariantSpec


def encode_deployment(deployment: DeploymentSpec) -> str:
    return orjson.dumps(asdict(deployment)).decode()


def decode_deployment(text: str) -> DeploymentSpec:
    """The inverse of `encode_deployment`. Members that an older version did not write take their
    defaults."""
    fields = orjson.loads(text)
    variants = []
    for variant in fields.pop("variants"):
        source = variant.pop("model")
        source["environment"] = tuple((key, value) for key, value in source["environment"])
        variants.append(VariantSpec(model=ModelSource(**source), **variant))
    return DeploymentSpec(variants=tuple(variants), **fields)

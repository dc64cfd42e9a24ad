"""`DeploymentSpec` and `ComponentRevision` as JSON text, the snapshots that rows hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from penstock.core.deployment.component_spec import ComponentRevision
from penstock.core.deployment.deployment import (
    AsyncSpec,
    DeploymentSpec,
    ManagedScaling,
    ModelSource,
    PoolSpec,
    VariantSpec,
)
from penstock.core.deployment.wish import CopyNeed


def encode_deployment(deployment: DeploymentSpec) -> str:
    return orjson.dumps(asdict(deployment)).decode()


def decode_deployment(text: str) -> DeploymentSpec:
    """The inverse of `encode_deployment`. Members that an older version did not write take their
    defaults."""
    fields = orjson.loads(text)
    variants = []
    for variant in fields.pop("variants"):
        source, managed = variant.pop("model"), variant.pop("managed", None)
        pools = variant.pop("pools", ())
        variants.append(
            VariantSpec(
                model=None if source is None else _source(source),
                managed=None if managed is None else ManagedScaling(**managed),
                pools=tuple(_pool(one) for one in pools),
                **variant,
            )
        )
    asynchronous = fields.pop("asynchronous", None)
    return DeploymentSpec(
        variants=tuple(variants),
        asynchronous=None if asynchronous is None else AsyncSpec(**asynchronous),
        **fields,
    )


def encode_revision(revision: ComponentRevision) -> str:
    return orjson.dumps(asdict(revision)).decode()


def decode_revision(text: str) -> ComponentRevision:
    fields = orjson.loads(text)
    model, need = _source(fields.pop("model")), CopyNeed(**fields.pop("need"))
    return ComponentRevision(model=model, need=need, **fields)


def _pool(fields: dict[str, Any]) -> PoolSpec:
    model = fields.pop("model")
    return PoolSpec(model=None if model is None else _source(model), **fields)


def _source(fields: dict[str, Any]) -> ModelSource:
    environment = tuple((key, value) for key, value in fields.pop("environment"))
    return ModelSource(environment=environment, **fields)

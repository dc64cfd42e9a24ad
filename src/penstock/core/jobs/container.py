"""What a container says of batch transforms, and what of a job it decides: what the job left open.

SageMaker asks a container at /execution-parameters, which few answer:

    {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 6}

A value that makes no sense is as none: the job's own default holds then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core.jobs.spec import MIB, MULTI_RECORD, SINGLE_RECORD, TransformSpec

#: SageMaker's: of one request in MB, and of all that are sent at once.
PAYLOAD_MB_MAX: Final = 100

_STRATEGIES: Final = {
    "MULTI_RECORD": MULTI_RECORD,
    "SINGLE_RECORD": SINGLE_RECORD,
    MULTI_RECORD: MULTI_RECORD,
    SINGLE_RECORD: SINGLE_RECORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSays:
    concurrency_max: int = 0  #: requests at once; 0 = nothing
    strategy: str = ""  #: MultiRecord | SingleRecord; empty: nothing
    payload_bytes_max: int | None = None  #: 0 = no limit; None = nothing


def container_says(told: Mapping[str, Any]) -> ContainerSays:
    """`told`: the members of its answer."""
    payload_mb = _count(told.get("MaxPayloadInMB"))
    if payload_mb is not None and payload_mb > PAYLOAD_MB_MAX:
        payload_mb = None
    return ContainerSays(
        concurrency_max=_count(told.get("MaxConcurrentTransforms")) or 0,
        strategy=_STRATEGIES.get(str(told.get("BatchStrategy")), ""),
        payload_bytes_max=None if payload_mb is None else payload_mb * MIB,
    )


def completed(spec: TransformSpec, says: ContainerSays) -> TransformSpec:
    """The job, with what it left open as its container says.

    Requests that are sent at once together have `PAYLOAD_MB_MAX` at most, as where a job says both:
    one request always goes.
    """
    if says.strategy and "strategy" in spec.unset:
        spec = replace(spec, strategy=says.strategy)
    if says.payload_bytes_max is not None and "payload_bytes_max" in spec.unset:
        spec = replace(spec, payload_bytes_max=says.payload_bytes_max)
    if says.concurrency_max and not spec.concurrency_max:
        most = PAYLOAD_MB_MAX * MIB // max(spec.payload_bytes_max, 1)
        spec = replace(spec, concurrency_max=max(1, min(says.concurrency_max, most)))
    return spec


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None

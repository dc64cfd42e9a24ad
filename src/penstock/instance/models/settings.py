"""How a host of target models is set: by its load call, and by the model's Environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

from penstock.core.residency import GDSF, LRU, Footprint, ResidencySpec
from penstock.errors import CallerError
from penstock.instance.loading.call import LoadCall

#: GDSF or LRU.
POLICY: Final = "PENSTOCK_MODEL_CACHE_POLICY"
#: Of the instance's memory, what its process and all its models may take together.
SHARE: Final = "PENSTOCK_MODEL_CACHE_SHARE"
#: s that a model stays at least; not given: by what its load costs.
RESIDENCY_S_MIN: Final = "PENSTOCK_MODEL_RESIDENCY_SECONDS_MIN"

#: The rest is for what runs take beyond what loads took.
_SHARE_DEFAULT: Final = 0.8
#: Of that, what loads may fill: requests take memory as well, while they run.
_LOADS_SHARE: Final = 0.9
#: A load keeps a core busy: half of them are for models that are loaded. Not fewer at once than the
#: first, of which one computes while the other waits for the disk; nor more than the last.
_LOADS_LEAST: Final = 2
_LOADS_MOST: Final = 8


def residency_spec(call: LoadCall) -> ResidencySpec:
    """Raises CallerError (`environment-invalid`)."""
    environment = {**call.source.environment, **call.environment}
    asked = call.multi_model or {}
    share = _number(environment, SHARE, _SHARE_DEFAULT, least=0.05, most=1.0)
    policy = environment.get(POLICY, GDSF).upper()
    if policy not in (GDSF, LRU):
        raise CallerError(
            "environment-invalid", f"{POLICY} is {policy!r}", hint=f"Give {GDSF} or {LRU}."
        )
    spec = ResidencySpec(
        budget=Footprint(host_bytes=int(_LOADS_SHARE * share * call.memory_bytes_max)),
        policy=policy,
        loads_max=min(max(int(call.cores / 2), _LOADS_LEAST), _LOADS_MOST),
        keep=bool(asked.get("keeps_models", True)),
    )
    if RESIDENCY_S_MIN not in environment:
        return spec
    residency_s_min = _number(environment, RESIDENCY_S_MIN, 0.0, least=0.0, most=86_400.0)
    return dataclasses.replace(spec, residency_s_min=residency_s_min)


def _number(
    environment: Mapping[str, str], name: str, default: float, *, least: float, most: float
) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise CallerError(
            "environment-invalid",
            f"{name} is {text!r}",
            hint=f"Give a number from {least:g} to {most:g}.",
        )
    return value

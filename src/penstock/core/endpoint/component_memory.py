"""MaxMemoryRequiredInMb: the memory that a component's copy may take, and its model's known need.

A model that has never run here is known only by its files, and an estimate alone does not end it.
It is refused before loading only if it certainly needs more, or took more when it was last loaded.
Once it is loaded, its measured memory decides.
"""

from __future__ import annotations

from penstock.core.deployment.capacity_spec import ComponentCopiesSpec
from penstock.core.machine.room import MEASURED
from penstock.core.models.memory_need import MemoryEstimate


def before_load(component: ComponentCopiesSpec, need: MemoryEstimate) -> str:
    """The error for a model that is known to need more; "" where it may be loaded."""
    bytes_max = component.need.memory_bytes_max
    if not bytes_max:
        return ""
    if need.least_bytes > bytes_max:
        return _story(component, "needs at least", need.least_bytes)
    if need.basis == MEASURED and need.memory_bytes > bytes_max:
        return _story(component, "needs, as was measured before,", need.memory_bytes)
    return ""


def after_load(component: ComponentCopiesSpec, taken_bytes: int) -> str:
    """The error for a model that has taken more; "" where it may stay."""
    bytes_max = component.need.memory_bytes_max
    return _story(component, "has taken", taken_bytes) if 0 < bytes_max < taken_bytes else ""


def _story(component: ComponentCopiesSpec, verb: str, size_bytes: int) -> str:
    mib, most = -(-size_bytes // 2**20), component.need.memory_bytes_max // 2**20
    return (
        f"a copy of {component.told} {verb} {mib} MB of memory, and MaxMemoryRequiredInMb is"
        f" {most}. Raise it, or choose a smaller model."
    )

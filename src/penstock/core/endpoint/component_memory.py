"""MaxMemoryRequiredInMb: what a copy of a component may take, against what is known of its model.

Before it is loaded a model that has never run here is only known by its files, and an estimate ends
nothing: it is refused where less can't hold it in any case, or where it took more when it was
loaded before. What it took once it is loaded is measured, and counts.
"""

from __future__ import annotations

from penstock.core.deployment.wish import ComponentCopiesSpec
from penstock.core.machine.room import MEASURED
from penstock.core.models.memory_need import MemoryEstimate


def before_load(component: ComponentCopiesSpec, need: MemoryEstimate) -> str:
    """The story of a model that is known to need more; "" where it may be loaded."""
    bytes_max = component.need.memory_bytes_max
    if not bytes_max:
        return ""
    if need.least_bytes > bytes_max:
        return _story(component, "needs at least", need.least_bytes)
    if need.basis == MEASURED and need.memory_bytes > bytes_max:
        return _story(component, "needs, as was measured before,", need.memory_bytes)
    return ""


def after_load(component: ComponentCopiesSpec, taken_bytes: int) -> str:
    """The story of a model that has taken more; "" where it may stay."""
    bytes_max = component.need.memory_bytes_max
    return _story(component, "has taken", taken_bytes) if 0 < bytes_max < taken_bytes else ""


def _story(component: ComponentCopiesSpec, verb: str, size_bytes: int) -> str:
    mib, most = -(-size_bytes // 2**20), component.need.memory_bytes_max // 2**20
    return (
        f"a copy of {component.told} {verb} {mib} MB of memory, and MaxMemoryRequiredInMb is"
        f" {most}. Raise it, or choose a smaller model."
    )

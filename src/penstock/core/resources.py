"""What a machine and an instance have, and what a copy needs: one vector, and one rule of fit.

Memory is host memory in bytes. Cores are cores of the processor and may be a fraction.
Accelerators are whole devices; their own memory is not counted here. None of the three can replace
another.

A copy that asks for none of a resource shares it, however little is left. So cores that are never
set aside (`core/machine/room.py`) need no rule of their own: nobody asks for them there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub
from typing import Any, Final

#: What may be missing, in the order in which it is named: the scarcest first.
ACCELERATORS: Final = "accelerators"
MEMORY: Final = "memory"
CORES: Final = "cores"

#: Sums of fractions have rounding errors: 0.1 of a core must fit where 0.9 of one is taken.
_ROUNDING_CORES: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeResources:
    """An amount of each resource. A balance may be negative."""

    memory_bytes: int = 0  #: of the host
    cores: float = 0.0
    accelerators: int = 0  #: whole devices

    def __add__(self, other: ComputeResources) -> ComputeResources:
        return self._each(add, other)

    def __sub__(self, other: ComputeResources) -> ComputeResources:
        return self._each(sub, other)

    def at_least(self, other: ComputeResources) -> ComputeResources:
        """The larger amount of each resource."""
        return self._each(max, other)

    def at_most(self, other: ComputeResources) -> ComputeResources:
        """The smaller amount of each resource."""
        return self._each(min, other)

    def _each(self, make: Callable[[Any, Any], Any], other: ComputeResources) -> ComputeResources:
        return ComputeResources(
            memory_bytes=make(self.memory_bytes, other.memory_bytes),
            cores=make(self.cores, other.cores),
            accelerators=make(self.accelerators, other.accelerators),
        )

    def missing(self, free: ComputeResources) -> tuple[str, ...]:
        """The resources that `free` lacks, the scarcest first; empty where this fits."""
        short: tuple[str, ...] = ()
        if self.accelerators and self.accelerators > free.accelerators:
            short += (ACCELERATORS,)
        if self.memory_bytes and self.memory_bytes > free.memory_bytes:
            short += (MEMORY,)
        if self.cores and self.cores > free.cores + _ROUNDING_CORES:
            short += (CORES,)
        return short

    def fits(self, free: ComputeResources) -> bool:
        return not self.missing(free)

    def by_scarcity(self) -> tuple[int, int, float]:
        """A sort key: (devices, bytes, cores)."""
        return self.accelerators, self.memory_bytes, self.cores


NO_RESOURCES: Final = ComputeResources()

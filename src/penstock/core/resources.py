"""What a machine and an instance have, and what a copy asks for: one vector, and one rule of fit.

Memory is in bytes, of the host. Cores are those of the processor; a fraction is a part of one.
Accelerators are whole devices: their own memory is not counted here. The three never make up for
each other.

What somebody does not ask for he shares, however little of it is left. That is why cores that are
never set aside (`core/machine/room.py`) need no rule of their own: nobody asks for them there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What may be missing, in the order in which it is named: the scarcest first.
ACCELERATORS: Final = "accelerators"
MEMORY: Final = "memory"
CORES: Final = "cores"

#: Sums of fractions are off by a last digit: 0.1 of a core fits where 0.9 of one are taken.
_ROUNDING_CORES: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeResources:
    """So much of each. A balance may be less than nothing."""

    memory_bytes: int = 0  #: of the host
    cores: float = 0.0
    accelerators: int = 0  #: devices

    def __add__(self, other: ComputeResources) -> ComputeResources:
        return ComputeResources(
            memory_bytes=self.memory_bytes + other.memory_bytes,
            cores=self.cores + other.cores,
            accelerators=self.accelerators + other.accelerators,
        )

    def __sub__(self, other: ComputeResources) -> ComputeResources:
        return ComputeResources(
            memory_bytes=self.memory_bytes - other.memory_bytes,
            cores=self.cores - other.cores,
            accelerators=self.accelerators - other.accelerators,
        )

    def at_least(self, other: ComputeResources) -> ComputeResources:
        """The larger of the two, of each."""
        return ComputeResources(
            memory_bytes=max(self.memory_bytes, other.memory_bytes),
            cores=max(self.cores, other.cores),
            accelerators=max(self.accelerators, other.accelerators),
        )

    def at_most(self, other: ComputeResources) -> ComputeResources:
        """The smaller of the two, of each."""
        return ComputeResources(
            memory_bytes=min(self.memory_bytes, other.memory_bytes),
            cores=min(self.cores, other.cores),
            accelerators=min(self.accelerators, other.accelerators),
        )

    def missing(self, free: ComputeResources) -> tuple[str, ...]:
        """What `free` has too little of, the scarcest first; nothing where this fits."""
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
        """To order by: (devices, bytes, cores)."""
        return self.accelerators, self.memory_bytes, self.cores


NO_RESOURCES: Final = ComputeResources()

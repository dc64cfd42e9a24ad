"""The settings of residency: memory on host and accelerators, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub

from penstock.core.blame.death_limits import MODEL_DEATHS_MAX, QUARANTINE_S
from penstock.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of the host and of accelerators, in bytes: two amounts that are never added up."""

    host_bytes: int = 0
    accelerator_bytes: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return self._each(add, other)

    def __sub__(self, other: Footprint) -> Footprint:
        """May be negative: a balance, not a size."""
        return self._each(sub, other)

    def at_least(self, other: Footprint) -> Footprint:
        """The larger amount in each dimension."""
        return self._each(max, other)

    def within(self, other: Footprint) -> bool:
        """Whether it is at most `other` in both dimensions."""
        return (
            self.host_bytes <= other.host_bytes
            and self.accelerator_bytes <= other.accelerator_bytes
        )

    def _each(self, make: Callable[[int, int], int], other: Footprint) -> Footprint:
        return Footprint(
            host_bytes=make(self.host_bytes, other.host_bytes),
            accelerator_bytes=make(self.accelerator_bytes, other.accelerator_bytes),
        )

    def snapshot(self) -> dict[str, int]:
        return {"host_bytes": self.host_bytes, "accelerator_bytes": self.accelerator_bytes}


NOTHING = Footprint()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencySpec:
    #: for loads: memory of the host's whole process tree; accelerator memory 0 = it has none
    budget: Footprint
    #: the same while requests run, which take memory too: above it idle models are evicted; None:
    #: the budget
    budget_running: Footprint | None = None
    loads_max: int = 2  #: models that may load at once; as many artifacts may be fetched at once
    #: False (ModelCacheSetting Disabled): a model is unloaded as soon as it is idle
    keep: bool = True
    #: minimum residency: s that a model stays after its load; None: derived from its load time
    residency_s_min: float | None = None
    failure_s: float = 5.0  #: s that a failed load is remembered; doubles with each further failure
    failure_s_max: float = 300.0
    crashes_max: int = MODEL_DEATHS_MAX  #: crashes in a row after which it is put in quarantine
    #: s of quarantine; a model that ran this long has a clean record again
    quarantine_s: float = QUARANTINE_S
    waiting_max: int = 256  #: requests parked for one model
    models_max: int = 0  #: models that may be loaded at once; 0 = as many as memory holds

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise CallerError("residency-spec", f"{name} {value}: it is at least {least}")
        if not NOTHING.within(self.budget) or self.budget.host_bytes == 0:
            raise CallerError("residency-spec", f"budget {self.budget}: there must be memory")
        if self.budget_running is not None and not self.budget.within(self.budget_running):
            raise CallerError(
                "residency-spec",
                f"budget_running {self.budget_running} is below budget {self.budget}",
            )
        if self.failure_s_max < self.failure_s:
            raise CallerError(
                "residency-spec",
                f"failure_s_max {self.failure_s_max} is below failure_s {self.failure_s}",
            )


_LEAST = {
    "loads_max": 1, "residency_s_min": 0.0, "failure_s": 0.0, "crashes_max": 1,
    "quarantine_s": 0.0, "waiting_max": 1, "models_max": 0,
}  # fmt: skip

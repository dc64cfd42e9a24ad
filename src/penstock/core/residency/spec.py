"""What residency is told: memory in its two dimensions, and the limits it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.blame.death_limits import MODEL_DEATHS_MAX, QUARANTINE_S
from penstock.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of the host and of accelerators, in bytes: two dimensions that never mix."""

    host_bytes: int = 0
    accelerator_bytes: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            host_bytes=self.host_bytes + other.host_bytes,
            accelerator_bytes=self.accelerator_bytes + other.accelerator_bytes,
        )

    def __sub__(self, other: Footprint) -> Footprint:
        """May be negative: a balance, not a size."""
        return Footprint(
            host_bytes=self.host_bytes - other.host_bytes,
            accelerator_bytes=self.accelerator_bytes - other.accelerator_bytes,
        )

    def within(self, other: Footprint) -> bool:
        """Whether it is at most `other` in both dimensions."""
        return (
            self.host_bytes <= other.host_bytes
            and self.accelerator_bytes <= other.accelerator_bytes
        )

    def at_least(self, other: Footprint) -> Footprint:
        """The larger of the two in each dimension."""
        return Footprint(
            host_bytes=max(self.host_bytes, other.host_bytes),
            accelerator_bytes=max(self.accelerator_bytes, other.accelerator_bytes),
        )

    def snapshot(self) -> dict[str, int]:
        return {"host_bytes": self.host_bytes, "accelerator_bytes": self.accelerator_bytes}


NOTHING = Footprint()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencySpec:
    #: what loads may fill of the host's whole process tree; no accelerator memory = none there
    budget: Footprint
    #: the same, with what runs take while they last: above it idle models go; None: the budget
    budget_running: Footprint | None = None
    loads_max: int = 2  #: models loading at once, and as many being fetched
    keep: bool = True  #: False (ModelCacheSetting Disabled): unloaded as soon as it is idle
    #: minimum residency: s that a model stays once it is loaded; None: by what its load costs
    residency_s_min: float | None = None
    failure_s: float = 5.0  #: a failed load is remembered so long, then twice as long each time
    failure_s_max: float = 300.0
    crashes_max: int = MODEL_DEATHS_MAX  #: in a row, that end in quarantine
    #: Its length; a model that ran so long has a clean record again.
    quarantine_s: float = QUARANTINE_S
    waiting_max: int = 256  #: requests parked for one model
    models_max: int = 0  #: loaded at once; 0 = as many as memory holds

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

"""The instance resources that target models have used since the start, for cost reports.

An instance is held for a time and has a price; the models on it use memory, compute time and loads.
Both are kept after an instance has ended, up to a limit: then the one that ended first is
forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.metrics.models.model_delta import OTHERS, ModelDelta
from penstock.metrics.utilization.cost import InstanceHeld

#: Limit of models, since requests name them; each takes some hundred bytes.
MODELS_MAX: Final = 10_000
INSTANCES_MAX: Final = 1_000


class ModelUse:
    """The use of one model on one instance. Times are summed; `bytes_peak` is a maximum."""

    __slots__ = (
        "bytes_peak", "compute_s", "load_s", "loads", "requests", "resident_byte_s", "resident_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.resident_s = 0.0
        self.resident_byte_s = 0.0  #: byte-seconds of the host's memory
        self.compute_s = 0.0  #: time that lanes were busy
        self.requests = 0  #: answered requests
        self.loads = 0
        self.load_s = 0.0
        self.bytes_peak = 0

    def add(self, delta: ModelDelta, host_bytes: int) -> None:
        self.resident_s += delta.resident_s
        self.resident_byte_s += delta.byte_s
        self.compute_s += delta.run_s
        self.requests += delta.answered
        self.loads += delta.loads
        self.load_s += delta.load_us.total / 1e6 if delta.load_us is not None else 0.0
        self.bytes_peak = max(self.bytes_peak, host_bytes)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class _Instance:
    __slots__ = ("held", "held_s", "models")

    def __init__(self) -> None:
        self.held: InstanceHeld | None = None  #: None: `note` has not named it yet
        self.held_s = 0.0
        self.models: dict[str, ModelUse] = {}


class UsageLedger:
    """The use of all instances of this server."""

    def __init__(self) -> None:
        self._instances: dict[str, _Instance] = {}

    def note(self, held: Sequence[InstanceHeld], elapsed_s: float) -> None:
        """These instances exist now: held for `elapsed_s` since the last note; new ones from now
        on."""
        for one in held:
            known = self._instances.pop(one.instance_id, None) or _Instance()
            known.held_s += one.load_s if known.held is None else elapsed_s
            known.held = one
            # Moved to the end, so that the first is the one that ended first.
            self._instances[one.instance_id] = known
        self._forget_ended({one.instance_id for one in held})
        self._bound(len(held))

    def add(self, instance_id: str, model: str, delta: ModelDelta, host_bytes: int) -> None:
        """Adds a host's report for a model. Its instance may be noted later.

        A name for which nothing was ever loaded is ignored: it may be misspelt.
        """
        if not (host_bytes or delta.loads or delta.answered or delta.resident_s):
            return
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = _Instance()
            self._bound()
        models = instance.models
        if model not in models and len(models) >= MODELS_MAX:
            model = OTHERS
        models.setdefault(model, ModelUse()).add(delta, host_bytes)

    def _forget_ended(self, instance_ids: set[str]) -> None:
        """Forgets ended instances of variants without target models: no row would ever show
        them."""
        hosting = self._hosting()
        for name, one in list(self._instances.items()):
            held = one.held
            if name not in instance_ids and held and (held.endpoint, held.variant) not in hosting:
                del self._instances[name]

    def _hosting(self) -> set[tuple[str, str]]:
        """(endpoint, variant) with target models on any instance."""
        return {
            (one.held.endpoint, one.held.variant)
            for one in self._instances.values()
            if one.held is not None and one.models
        }

    def rows(self) -> list[dict[str, Any]]:
        """JSON-ready: the instances of variants that host target models, and their models."""
        noted = [(one.held, one) for one in self._instances.values() if one.held is not None]
        hosting = self._hosting()
        return [
            {
                "endpoint": held.endpoint,
                "instance_id": held.instance_id,
                "instance_type": held.instance_type,
                "price_per_hour": held.price_per_hour,
                "held_s": one.held_s,
                "cores": held.cores,
                "memory_bytes": held.memory_bytes,
                "models": [{"model": model, **use.to_dict()} for model, use in one.models.items()],
            }
            for held, one in noted
            if (held.endpoint, held.variant) in hosting
        ]

    def _bound(self, least: int = 0) -> None:
        while len(self._instances) > max(INSTANCES_MAX, least):
            del self._instances[next(iter(self._instances))]

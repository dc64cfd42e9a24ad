"""How long copies took to become ready, and how long the next one will take.

To hold a request for a copy that is starting, or to scale out ahead of a queue, one figure is
needed: seconds from the decision to a copy that answers. Each start is measured part by part. The
forecast is the time within which nine in ten of the last starts were ready (nearest rank), so with
ten or more samples one slow start, for example by a busy disk, does not decide it. Time that a copy
waited for its turn, or for room, is kept apart and not forecast: it depends on what else was
started then, not on this model.

Times are kept by endpoint and component; for the model of a variant the component has the variant's
name. The class knows no clock and no file: `rows` and `restore` let the owner keep it over a
restart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

#: Samples per component: one slow start in ten is not the forecast, and a new version of a model is
#: learned after a few starts.
SAMPLES_MAX: Final = 16
#: Components of all endpoints; those not observed for longest are forgotten first.
COMPONENTS_MAX: Final = 4096
_HIGH: Final = 0.9
#: Longest credible part, s: a download may last an hour, a start ten minutes.
_PART_S_MAX: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToReady:
    """Times of one start, in s. A part that was not needed is 0."""

    start_s: float = 0.0  #: instance start, from the request to accepting connections
    connect_s: float = 0.0  #: connections from control plane and gateway to the instance
    fetch_s: float = 0.0  #: artifact: download, unpack, inspect
    load_s: float = 0.0  #: model load, including the runtime's own warm-up
    warm_up_s: float = 0.0  #: the artifact's warm-up requests
    waited_s: float = 0.0  #: waits between the parts: for a turn to start or load, and for room

    @property
    def total_s(self) -> float:
        """Sum of the parts, without waits."""
        return self.start_s + self.connect_s + self.fetch_s + self.load_s + self.warm_up_s


#: Names of the parts, in the order of a start.
PARTS: Final = tuple(one.name.removesuffix("_s") for one in fields(TimeToReady))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyObserved:
    """What is known about one component's starts."""

    last: TimeToReady
    forecast_s: float  #: expected time of the next start
    count: int  #: starts that the forecast is based on


class ReadyTimes:
    """Start times of all components of one server."""

    def __init__(self) -> None:
        #: the one observed last is at the end
        self._samples: dict[tuple[str, str], deque[TimeToReady]] = {}
        self.changes = 0  #: increases whenever `rows` would change

    def observe(self, endpoint: str, component: str, took: TimeToReady) -> None:
        """Records that a copy of the component is ready."""
        key = _key(endpoint, component)
        samples = self._samples.pop(key, None) or deque(maxlen=SAMPLES_MAX)
        samples.append(took)
        self.changes += 1
        self._samples[key] = samples
        while len(self._samples) > COMPONENTS_MAX:
            del self._samples[next(iter(self._samples))]

    def forecast_s(self, endpoint: str, component: str) -> float | None:
        """Seconds until a copy requested now is ready; None where none ever was."""
        samples = self._samples.get(_key(endpoint, component))
        return None if samples is None else _high([one.total_s for one in samples])

    def fastest_s(self, endpoint: str, component: str) -> float | None:
        """The shortest of the last starts: none of them could have met an earlier deadline."""
        samples = self._samples.get(_key(endpoint, component))
        return None if samples is None else min(one.total_s for one in samples)

    def seen(self, endpoint: str) -> dict[str, ReadyObserved]:
        """By component, for one endpoint."""
        name = endpoint.lower()
        return {
            component: ReadyObserved(
                last=samples[-1],
                forecast_s=_high([one.total_s for one in samples]),
                count=len(samples),
            )
            for (owner, component), samples in self._samples.items()
            if owner == name
        }

    def parts_s(self, endpoint: str, component: str) -> dict[str, float]:
        """Parts of the last start, and the forecast of the next; {} where there was none."""
        samples = self._samples.get(_key(endpoint, component))
        if samples is None:
            return {}
        parts = {part: getattr(samples[-1], f"{part}_s") for part in PARTS}
        return {**parts, "forecast": _high([one.total_s for one in samples])}

    def forget(self, endpoint: str) -> None:
        """Forgets a deleted endpoint: another of the same name has another model."""
        name = endpoint.lower()
        for key in [key for key in self._samples if key[0] == name]:
            del self._samples[key]
            self.changes += 1

    def rows(self) -> list[dict[str, Any]]:
        """All samples, JSON-ready, in the form that `restore` takes."""
        return [
            {"endpoint": owner, "component": component, "took": [asdict(one) for one in samples]}
            for (owner, component), samples in self._samples.items()
        ]

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds saved samples. A row of another form is skipped, as it will be measured anew."""
        for row in rows:
            try:
                endpoint, component, took = row["endpoint"], row["component"], row["took"]
                samples = [_checked(one) for one in took[-SAMPLES_MAX:]]
            except (KeyError, TypeError, ValueError):
                continue
            if isinstance(endpoint, str) and isinstance(component, str):
                for one in samples:
                    self.observe(endpoint, component, one)


def _key(endpoint: str, component: str) -> tuple[str, str]:
    """Endpoint names ignore case."""
    return endpoint.lower(), component


def _high(totals_s: list[float]) -> float:
    return sorted(totals_s)[math.ceil(_HIGH * len(totals_s)) - 1]


def _checked(parts: Mapping[str, Any]) -> TimeToReady:
    """Raises ValueError or TypeError for rows that do not come from a `TimeToReady`."""
    took = TimeToReady(**{name: float(value) for name, value in parts.items()})
    if not all(0.0 <= value <= _PART_S_MAX for value in asdict(took).values()):
        raise ValueError("a time out of range")
    return took

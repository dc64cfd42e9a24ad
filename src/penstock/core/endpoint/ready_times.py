"""How long copies took to become ready, and how long the next one will take.

Whoever holds a request for a copy that is coming, or asks for capacity ahead of a queue, needs one
figure: seconds from a decision to a copy that answers. It is measured at every copy that comes up,
part by part, and forecast from the last of them: the time within which nine in ten were ready
(nearest rank), which the slowest of ten or more, a disk that was busy once, does not decide.

What a copy waited for its turn, or for room, is kept apart and is not forecast: it says what else
was started then, not what this model takes.

Times are known by endpoint and component; of a model behind a variant the component has the
variant's name. The class knows no clock and no file: `rows` and `restore` are for whoever keeps it
over a restart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

#: Enough that one slow start in ten is not the forecast, few enough that a new version of a model
#: is known after a handful of starts.
SAMPLES_MAX: Final = 16
#: Of all endpoints; those not seen for longest are forgotten first.
COMPONENTS_MAX: Final = 4096
_HIGH: Final = 0.9
#: Nothing takes longer: a download may last an hour, a start ten minutes. More is no measurement.
_PART_S_MAX: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToReady:
    """What one copy took, in s. A part that it did not need is 0."""

    start_s: float = 0.0  #: its instance, from being asked for to accepting connections
    connect_s: float = 0.0  #: control plane and gateway to the instance
    fetch_s: float = 0.0  #: the artifact: bring, unpack, understand
    load_s: float = 0.0  #: the model, its runtime's own warm-up included
    warm_up_s: float = 0.0  #: the artifact's warm-up requests
    waited_s: float = 0.0  #: between the parts: for a turn to start or load, and for room

    @property
    def total_s(self) -> float:
        """Of the parts, without what it waited."""
        return self.start_s + self.connect_s + self.fetch_s + self.load_s + self.warm_up_s


#: Names of the parts, in the order of a start.
PARTS: Final = tuple(one.name.removesuffix("_s") for one in fields(TimeToReady))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyObserved:
    """What is known of one component."""

    last: TimeToReady
    forecast_s: float  #: of the next copy
    count: int  #: starts that the forecast is made of


class ReadyTimes:
    """Of all components of one server."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[TimeToReady]] = {}  #: last seen last
        self.changes = 0  #: raised by whatever `rows` would show

    def observe(self, endpoint: str, component: str, took: TimeToReady) -> None:
        """A copy of the component is ready."""
        key = _key(endpoint, component)
        samples = self._samples.pop(key, None) or deque(maxlen=SAMPLES_MAX)
        samples.append(took)
        self.changes += 1
        self._samples[key] = samples
        while len(self._samples) > COMPONENTS_MAX:
            del self._samples[next(iter(self._samples))]

    def forecast_s(self, endpoint: str, component: str) -> float | None:
        """Seconds until a copy that is asked for now is ready; None where none ever was."""
        samples = self._samples.get(_key(endpoint, component))
        return None if samples is None else _high([one.total_s for one in samples])

    def fastest_s(self, endpoint: str, component: str) -> float | None:
        """The shortest of the last starts: whoever refuses by it refuses only what none served."""
        samples = self._samples.get(_key(endpoint, component))
        return None if samples is None else min(one.total_s for one in samples)

    def seen(self, endpoint: str) -> dict[str, ReadyObserved]:
        """By component, those of one endpoint."""
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
        """The last start by part, and the forecast of the next; {} where none ever was."""
        samples = self._samples.get(_key(endpoint, component))
        if samples is None:
            return {}
        parts = {part: getattr(samples[-1], f"{part}_s") for part in PARTS}
        return {**parts, "forecast": _high([one.total_s for one in samples])}

    def forget(self, endpoint: str) -> None:
        """It is deleted: another of its name has another model."""
        name = endpoint.lower()
        for key in [key for key in self._samples if key[0] == name]:
            del self._samples[key]
            self.changes += 1

    def rows(self) -> list[dict[str, Any]]:
        """Everything, JSON-ready; what `restore` takes."""
        return [
            {"endpoint": owner, "component": component, "took": [asdict(one) for one in samples]}
            for (owner, component), samples in self._samples.items()
        ]

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Adds what was kept. A row of another form is left out: it is only measured anew."""
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
    """Names of endpoints are one whatever their case."""
    return endpoint.lower(), component


def _high(totals_s: list[float]) -> float:
    return sorted(totals_s)[math.ceil(_HIGH * len(totals_s)) - 1]


def _checked(parts: Mapping[str, Any]) -> TimeToReady:
    """Raises ValueError or TypeError for what no `TimeToReady` was."""
    took = TimeToReady(**{name: float(value) for name, value in parts.items()})
    if not all(0.0 <= value <= _PART_S_MAX for value in asdict(took).values()):
        raise ValueError("a time out of range")
    return took

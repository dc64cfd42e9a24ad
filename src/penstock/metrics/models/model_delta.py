"""What happened to one target model on one host since the last report.

Counts, durations and resource use as plain sums and sketches: they merge over hosts, over time and
over models, in any order. Zeros are not sent.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from penstock.metrics.series.sketch import Sketch

#: The sum of the models that have no series of their own. AWS's SDKs use this name for a file only
#: if the caller gives exactly this name.
OTHERS: Final = "(others)"


class ModelDelta:
    """Part of a host's report, of windows and of totals.

    Attributes:
        hits, misses: requests that found the model loaded; that had to wait for a load.
        answered: requests that succeeded.
        model_errors, other_errors: requests on which the model failed; that were refused, or failed
            otherwise.
        loads_failed: loads, downloads included, that ended with an error.
        wait_us: of requests that waited for a load, until they continued or were refused.
        download_us, load_us, unload_us: durations of one each.
        latency_us: of answered requests, in the copy's queue and in the model, with the wait for a
            load.
        run_s: time that lanes were busy: the model's compute time.
        resident_s, idle_s: time loaded; time loaded with nothing to answer.
        queue_s, model_s: of answered requests, in the copy's queue; in the model.
        inferences, executions: rows that were computed; runs of the model.
        cache_hits, cache_misses: answers from its response cache, and others, where it has one.
        byte_s, accelerator_byte_s: its memory times the time that it was loaded.
        unloads: reason -> number of times.
    """

    INTEGERS: Final = (
        "hits", "misses", "answered", "model_errors", "other_errors", "loads_failed",
        "cache_hits", "cache_misses",
    )  # fmt: skip
    SUMS: Final = (
        "run_s", "resident_s", "idle_s", "byte_s", "accelerator_byte_s", "queue_s", "model_s",
        "inferences", "executions",
    )  # fmt: skip
    SKETCHES: Final = ("wait_us", "download_us", "load_us", "unload_us", "latency_us")

    __slots__ = (*INTEGERS, *SUMS, *SKETCHES, "unloads")

    def __init__(self) -> None:
        self.hits = self.misses = self.answered = self.loads_failed = 0
        self.model_errors = self.other_errors = 0
        self.cache_hits = self.cache_misses = 0
        self.run_s = self.resident_s = self.idle_s = 0.0
        self.byte_s = self.accelerator_byte_s = 0.0
        self.queue_s = self.model_s = self.inferences = self.executions = 0.0
        # Made on first use: there may be thousands of models, and most need none.
        self.wait_us: Sketch | None = None
        self.download_us: Sketch | None = None
        self.load_us: Sketch | None = None
        self.unload_us: Sketch | None = None
        self.latency_us: Sketch | None = None
        self.unloads: dict[str, int] = {}

    def sketch(self, name: str) -> Sketch:
        """One of SKETCHES, to add to."""
        found: Sketch | None = getattr(self, name)
        if found is None:
            found = Sketch()
            setattr(self, name, found)
        return found

    @property
    def calls(self) -> int:
        """Requests for the model."""
        return self.hits + self.misses

    @property
    def ended(self) -> int:
        """Requests that ended, in any way."""
        return self.answered + self.model_errors + self.other_errors

    @property
    def loads(self) -> int:
        return int(self.load_us.count) if self.load_us is not None else 0

    @property
    def load_s(self) -> float:
        """The time of all downloads, loads and unloads together, in s."""
        parts = (self.download_us, self.load_us, self.unload_us)
        return sum(part.total for part in parts if part is not None) / 1e6

    def add(self, other: ModelDelta) -> None:
        """Adds all of `other`, which stays as it is."""
        for name in (*self.INTEGERS, *self.SUMS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in self.SKETCHES:
            sketch: Sketch | None = getattr(other, name)
            if sketch is not None:
                self.sketch(name).merge(sketch)
        for reason, count in other.unloads.items():
            self.unloads[reason] = self.unloads.get(reason, 0) + count

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        told: dict[str, Any] = {
            name: value for name in (*self.INTEGERS, *self.SUMS) if (value := getattr(self, name))
        }
        for name in self.SKETCHES:
            sketch: Sketch | None = getattr(self, name)
            if sketch is not None:
                told[name] = base64.b64encode(sketch.to_bytes()).decode()
        if self.unloads:
            told["unloads"] = self.unloads
        return told

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ModelDelta:
        """Inverse of `to_dict`.

        Raises CallerError for an invalid sketch, TypeError or ValueError for other invalid fields.
        """
        delta = cls()
        for name in cls.INTEGERS:
            setattr(delta, name, int(fields.get(name, 0)))
        for name in cls.SUMS:
            setattr(delta, name, float(fields.get(name, 0.0)))
        for name in cls.SKETCHES:
            if name in fields:
                setattr(delta, name, Sketch.from_bytes(base64.b64decode(fields[name])))
        delta.unloads = {str(k): int(v) for k, v in fields.get("unloads", {}).items()}
        return delta

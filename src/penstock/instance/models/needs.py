"""What a target model is expected to take beside others, and what loads have taught of it."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

from penstock.core.machine.room import MEASURED
from penstock.core.models.memory_need import KinMemory, MemoryObserved, beside_others
from penstock.core.residency import Footprint
from penstock.instance.loading.load import Prepared
from penstock.instance.memory import facts as records
from penstock.instance.memory.facts import facts_of
from penstock.runtimes import registry
from penstock.runtimes.record import Interface


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a model will take."""

    need: Footprint  #: at its highest, while it loads
    kept: Footprint  #: afterwards
    measured: bool  #: that was seen before, on this machine
    sized: bool  #: that, or others of its kind and size were seen by this host


class Needs:
    """By a model's own record, else by the rule as models of its kind have corrected it. Every
    method blocks on the disk: threads call them, several at once."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._kin = KinMemory()
        self._kin_is_free = threading.Lock()  #: what one thread reads another must not change
        self._runtimes: set[str] = set()  #: whose libraries this process has

    def of(self, model: Prepared) -> Expected:
        kind = model.context.description.runtime
        first = kind not in self._runtimes
        facts = facts_of(model.context)
        seen = records.read(self._record(model))
        need = beside_others(facts, seen, first=first)
        if seen is not None and need.basis == MEASURED:
            return Expected(
                need=Footprint(host_bytes=need.memory_bytes),
                kept=Footprint(host_bytes=seen.own_bytes_max),
                measured=True,
                sized=not first,
            )
        estimated_bytes = need.memory_bytes
        with self._kin_is_free:
            corrected_bytes = self._kin.corrected(kind, estimated_bytes)
            kept_bytes = self._kin.kept(kind, estimated_bytes) if _by_files(kind) else None
        bytes_max = max(corrected_bytes, need.least_bytes)
        return Expected(
            need=Footprint(host_bytes=bytes_max),
            kept=Footprint(host_bytes=bytes_max if kept_bytes is None else kept_bytes),
            measured=False,
            sized=kept_bytes is not None,
        )

    def learn(self, model: Prepared, seen: MemoryObserved) -> Footprint:
        """It was loaded with nothing beside it. Returns what it is charged with.

        With the first of a runtime its libraries came, which stay when it goes. They are nobody's,
        so as much as the rule says of them is taken off; and what it took is no record of it.
        """
        kind = model.context.description.runtime
        facts = facts_of(model.context)
        first = kind not in self._runtimes
        rule = beside_others(facts, None, first=first)
        with self._kin_is_free:
            self._kin.learn(
                kind,
                estimated_bytes=rule.memory_bytes,
                peak_bytes=seen.load_bytes_max,
                kept_bytes=seen.own_bytes_max,
            )
        self._runtimes.add(kind)
        if first:
            own_bytes = beside_others(facts, None, first=False).memory_bytes
            libraries_bytes = rule.memory_bytes - own_bytes
            own_bytes = max(own_bytes, seen.own_bytes_max - libraries_bytes)
            return Footprint(host_bytes=min(own_bytes, seen.own_bytes_max))
        records.write(self._record(model), seen)
        return Footprint(host_bytes=seen.own_bytes_max)

    def _record(self, model: Prepared) -> Path:
        return records.record_path(
            self._cache_dir, model.digest, model.context, folder="memory-beside"
        )


def _by_files(runtime: str) -> bool:
    """Whether its models hold what their files hold: of two whose files have one size, one tells
    what the other takes. Code may read anything."""
    return registry.record(runtime).has(Interface.TENSORS)

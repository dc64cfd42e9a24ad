"""Expected memory of a target model beside others, and corrections by earlier loads."""

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
    """The memory that a model will take."""

    need: Footprint  #: at its peak, while it loads
    kept: Footprint  #: after the load
    measured: bool  #: True: measured before, on this machine
    sized: bool  #: True: this host has loaded it, or others of its kind and size


class Needs:
    """Estimates by a model's own record; else by the rule, corrected by models of its kind. Every
    method blocks on the disk and is called on threads, several at once."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._kin = KinMemory()
        self._kin_is_free = threading.Lock()  #: guards data that several threads read and change
        self._runtimes: set[str] = set()  #: runtimes whose libraries this process has loaded

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
        """Records a load that ran alone. Returns the memory that it is charged with.

        The first model of a runtime also loads its libraries, which stay when the model goes. They
        belong to no model, so the rule's size for them is subtracted; and no record of that load is
        kept.
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
    """Whether the runtime's models take the memory that their files suggest: then two models with
    files of one size take the same. Code may read anything."""
    return registry.record(runtime).has(Interface.TENSORS)

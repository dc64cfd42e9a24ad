"""How much memory a model needs: estimated before it has ever run here, measured afterwards.

An estimate is the most that an instance takes while it loads and runs the model: the process with
its libraries, and a multiple of the files that hold the weights. Each runtime's record has its rule
(`runtimes/*/record.py`). The multiples were measured on a model of 16 layers of 2,560 x 2,560
weights (400 MiB in FP32) on x86, in private bytes of the processes per byte of file:

    OpenVINO, ONNX file     2.06 while it is compiled, 2.05 after the first run
    OpenVINO, its own IR    0.6 after loading, 1.05 to 1.1 after the first run, which packs weights
    ONNX Runtime            1.84 after loading, as after runs

A graph is packed for its processor when it first runs, so before its first run a copy shows less
memory than it will take: until then the estimate stands. Python code reads the weights and builds a
model of them; for a moment both are there: a factor of 2, in each worker. The host memory of a
foreign server or a GPU engine can't be seen from its files: its rule is a round figure, which the
first load corrects.

A model that was loaded on this machine before needs what it took then; the rule no longer counts.
Caches that fill under traffic (keys and values of OpenVINO GenAI, graphs of frequent shapes) are
growth, and are measured when they come.

`KinMemory` corrects the rule for models that were never loaded on this machine. A host of many
models loads one after the other, and those of one kind (runtime) and of about one size take about
the same: so what the last ones took corrects the estimate for the next. Models of another size say
less: only what they took beyond the rule. The largest of the last few counts, with a little
headroom: too low an estimate would promise memory that is not there.

Models whose files have the same size to a few parts in a hundred mostly are one graph with other
weights. What such a model takes is *known* before it was ever loaded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.machine.room import ESTIMATED, MEASURED

_MIB = 2**20

#: An instance's process before it loads anything; 35 MiB were measured.
START_BYTES = 64 * _MIB

#: Headroom for growth of a running copy beyond what was seen: an eighth, and not less than this.
_HEADROOM_SHARE = 8
_HEADROOM_BYTES_MIN = 64 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """What a runtime takes: `fixed + processes * (each + factor * files) + cache`."""

    fixed_bytes: int = 0  #: memory of its libraries
    factor: float = 0.0  #: bytes of memory for each byte of the files
    each_bytes: int = 0  #: memory of each worker process
    #: Bytes of memory per byte of the files that a model certainly takes; 0 where it need not read
    #: all of them. Half is usual: weights in FP32 may be computed with in 16 bits.
    least: float = 0.0


#: On accelerators the weights pass through the host's memory and do not stay.
_ACCELERATED = MemoryRule(fixed_bytes=3072 * _MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model before it is loaded."""

    library: str  #: name that models in one process share the fixed part by, such as the runtime's
    rule: MemoryRule
    file_bytes: int  #: size of the files that hold its weights
    processes: int = 1  #: processes that each hold the whole model
    cache_bytes: int = 0  #: memory taken at the start, such as vLLM's keys and values
    accelerated: bool = False
    inside: tuple[ModelFacts, ...] = ()  #: the artifact's other models, which are loaded beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What a model will take of the host's memory, with its instance's process."""

    memory_bytes: int  #: at its peak
    least_bytes: int = 0  #: no instance with less can hold it; 0 = not known
    basis: str = ESTIMATED  #: estimated | measured


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryObserved:
    """What an instance with the model took, as the operating system measured."""

    load_bytes_max: int  #: peak during the load
    own_bytes_max: int  #: peak afterwards
    ran: bool  #: it has answered requests


def estimated(facts: ModelFacts) -> MemoryEstimate:
    """The estimate for a model and those loaded beside it, which share process and libraries."""
    memory_bytes, least_bytes = START_BYTES + sum(_libraries(facts).values()), 0
    for each in (facts, *facts.inside):
        rule = _rule(each)
        each_bytes = rule.each_bytes + int(rule.factor * each.file_bytes)
        memory_bytes += max(each.processes, 1) * each_bytes + each.cache_bytes
        least_bytes += int(rule.least * each.file_bytes)
    return MemoryEstimate(memory_bytes=memory_bytes, least_bytes=least_bytes)


def _rule(facts: ModelFacts) -> MemoryRule:
    return _ACCELERATED if facts.accelerated else facts.rule


def _libraries(facts: ModelFacts) -> dict[str, int]:
    """Library -> fixed memory, for the model and those inside."""
    return {each.library: _rule(each).fixed_bytes for each in (facts, *facts.inside)}


def need_of(facts: ModelFacts, seen: MemoryObserved | None) -> MemoryEstimate:
    """The need as measured here before, or else by the rules."""
    guess = estimated(facts)
    if seen is None:
        return guess
    if not seen.ran:
        memory_bytes = max(guess.memory_bytes, seen.load_bytes_max)
        return MemoryEstimate(memory_bytes=memory_bytes, least_bytes=guess.least_bytes)
    memory_bytes = max(seen.load_bytes_max, with_headroom(seen.own_bytes_max))
    return MemoryEstimate(memory_bytes=memory_bytes, least_bytes=guess.least_bytes, basis=MEASURED)


def beside_others(facts: ModelFacts, seen: MemoryObserved | None, *, first: bool) -> MemoryEstimate:
    """What a further model takes in a process that already has others.

    Args:
        seen: measured for this model beside others, whose libraries were loaded: its peak during
            the load, and what it kept.
        first: the process has no model of this runtime yet, so that libraries are loaded with it;
            the same holds for the libraries of the models inside.
    """
    libraries_bytes = sum(_libraries(facts).values()) if first else 0
    if seen is not None:
        memory_bytes = max(seen.load_bytes_max, seen.own_bytes_max) + libraries_bytes
        return MemoryEstimate(memory_bytes=memory_bytes, basis=MEASURED)
    alone = estimated(facts)
    memory_bytes = alone.memory_bytes - START_BYTES - sum(_libraries(facts).values())
    return MemoryEstimate(
        memory_bytes=memory_bytes + libraries_bytes, least_bytes=alone.least_bytes
    )


def with_headroom(own_bytes: int) -> int:
    """What to set aside for a copy that takes `own_bytes`."""
    return own_bytes + max(own_bytes // _HEADROOM_SHARE, _HEADROOM_BYTES_MIN)


def expected_now(
    *, need_bytes: int, own_bytes_max: int, loaded: bool, ran: bool, bytes_max: int
) -> int:
    """What an instance is expected to take, by all that is known of it now.

    Args:
        need_bytes: its model's need, as `need_of` says; 0 = not known yet.
        own_bytes_max: the most that was measured: since its start, or since its model is loaded.
        loaded: its model is loaded.
        ran: it has answered requests.
        bytes_max: limit of its type: it is ended when it takes more; 0 = no bound.
    """
    bound = max(bytes_max, own_bytes_max) or need_bytes
    if not loaded:
        return max(min(need_bytes, bound), own_bytes_max, START_BYTES)
    measured = min(with_headroom(own_bytes_max), bound)
    return measured if ran and own_bytes_max else max(measured, min(need_bytes, bound))


#: Loads that are remembered per kind.
_LOADS: Final = 16
_HEADROOM: Final = 1.1
#: Estimates within this factor belong to models of about one size.
_ALIKE: Final = 2.0
#: Estimates within this factor belong to models of the same size: names and lengths of labels
#: differ, weights don't.
_SAME: Final = 1.05


class _Seen(NamedTuple):
    estimated_bytes: int
    peak_bytes: int
    kept_bytes: int


class KinMemory:
    def __init__(self) -> None:
        self._seen: dict[str, deque[_Seen]] = {}

    def learn(
        self, kind: str, *, estimated_bytes: int, peak_bytes: int, kept_bytes: int = 0
    ) -> None:
        """A model of that kind took `peak_bytes` at its peak and kept `kept_bytes`; the rule had
        estimated `estimated_bytes`."""
        seen = self._seen.setdefault(kind, deque(maxlen=_LOADS))
        seen.append(_Seen(estimated_bytes, peak_bytes, kept_bytes))

    def kept(self, kind: str, estimated_bytes: int) -> int | None:
        """The most that a model of the same size kept; None: there was none."""
        return max(
            (one.kept_bytes for one in self._like(kind, estimated_bytes, _SAME)), default=None
        )

    def corrected(self, kind: str, estimated_bytes: int) -> int:
        """The estimate for a model of that kind that was never loaded."""
        seen = self._seen.get(kind)
        if not seen:
            return estimated_bytes
        alike = self._like(kind, estimated_bytes, _ALIKE)
        if alike:
            return int(_HEADROOM * max(one.peak_bytes for one in alike))
        on_top = max(one.peak_bytes - one.estimated_bytes for one in seen)
        return estimated_bytes + max(0, on_top)

    def _like(self, kind: str, estimated_bytes: int, factor: float) -> list[_Seen]:
        return [
            one
            for one in self._seen.get(kind, ())
            if estimated_bytes < factor * one.estimated_bytes
            and one.estimated_bytes < factor * estimated_bytes
        ]

"""How much memory a model needs: estimated before it has ever run here, measured afterwards.

An estimate is what an instance takes at the height of loading and running the model: the process
with its libraries, and a multiple of the files that hold the weights. Each runtime's record has its
rule (`runtimes/*/record.py`). The multiples were measured on a model of 16 layers of 2,560 x 2,560
weights (400 MiB in FP32) on x86, in bytes that processes have for themselves, per byte of file:

    OpenVINO, ONNX file     2.06 while it is compiled, 2.05 after the first run
    OpenVINO, its own IR    0.6 after loading, 1.05 to 1.1 after the first run, which packs weights
    ONNX Runtime            1.84 after loading, as after runs

A graph is packed for its processor when it first runs, so a copy that has not run shows less than
it will take: until then the estimate stands. Python code reads weights and builds a model of them,
for a moment both are there: 2, in each worker. What a foreign server or a GPU engine takes of the
host's memory can't be seen from its files: a round figure, which the first load corrects.

A model that was loaded on this machine before needs what it took then; no rule of thumb comes in.
Caches that fill under traffic (keys and values of OpenVINO GenAI, graphs of frequent shapes) are
growth, and are measured when they come.

What models of one kind have shown of each other's memory: an estimate that learns.

A rule of thumb (`memory_need`) is for a model that was never loaded on this machine. A host of many
models loads one after the other, and those of one kind (runtime) and of about one size take about
the same: so what the last ones really took corrects the rule for the next. Of models of another
size they tell less, only what came on top of the rule. The largest of the last few counts, with a
little headroom: too little would be memory that is not there.

Models whose files have the same size to a few parts in a hundred are mostly one graph with other
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

#: What a copy that runs may come to take beyond what was seen: an eighth, and not less than this.
_HEADROOM_SHARE = 8
_HEADROOM_BYTES_MIN = 64 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """What a runtime takes: `fixed + processes * (each + factor * files) + cache`."""

    fixed_bytes: int = 0  #: of its libraries
    factor: float = 0.0  #: bytes for each byte of the files
    each_bytes: int = 0  #: of each worker process
    #: Of the files, in any case; 0 where a model need not read all of them. Half is usual: weights
    #: in FP32 may be computed with in 16 bits.
    least: float = 0.0


#: On accelerators the weights pass through the host's memory and do not stay.
_ACCELERATED = MemoryRule(fixed_bytes=3072 * _MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model before it is loaded."""

    library: str  #: whose models in one process share what is fixed, such as the runtime's name
    rule: MemoryRule
    file_bytes: int  #: of the files that hold its weights
    processes: int = 1  #: that hold the model, each for itself
    cache_bytes: int = 0  #: taken at the start, such as vLLM's keys and values
    accelerated: bool = False
    inside: tuple[ModelFacts, ...] = ()  #: of the artifact's other models, loaded beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What a model will take of the host's memory, its instance's process included."""

    memory_bytes: int  #: at the highest
    least_bytes: int = 0  #: no instance with less can hold it; 0 = not known
    basis: str = ESTIMATED  #: estimated | measured


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryObserved:
    """What an instance took when it had the model, as the operating system measured."""

    load_bytes_max: int  #: while it was loaded
    own_bytes_max: int  #: afterwards
    ran: bool  #: it has answered requests


def estimated(facts: ModelFacts) -> MemoryEstimate:
    """Of a model and those loaded beside it, which share the process and its libraries."""
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
    """Of all its models."""
    return {each.library: _rule(each).fixed_bytes for each in (facts, *facts.inside)}


def need_of(facts: ModelFacts, seen: MemoryObserved | None) -> MemoryEstimate:
    """By what was measured here before, else by the rules of thumb."""
    guess = estimated(facts)
    if seen is None:
        return guess
    if not seen.ran:
        memory_bytes = max(guess.memory_bytes, seen.load_bytes_max)
        return MemoryEstimate(memory_bytes=memory_bytes, least_bytes=guess.least_bytes)
    memory_bytes = max(seen.load_bytes_max, with_headroom(seen.own_bytes_max))
    return MemoryEstimate(memory_bytes=memory_bytes, least_bytes=guess.least_bytes, basis=MEASURED)


def beside_others(facts: ModelFacts, seen: MemoryObserved | None, *, first: bool) -> MemoryEstimate:
    """What one more model takes in a process that has others.

    Args:
        seen: of this model beside others, whose libraries were there: what it took while it was
            loaded, and what it kept.
        first: the process has no model of this runtime, whose libraries come with it; and with
            them those of the models inside.
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
    """What an instance is expected to take, from all that is known of it at this moment.

    Args:
        need_bytes: of its model, as `need_of` says; 0 = not known yet.
        own_bytes_max: the most that was measured: since its start, or since its model is loaded.
        loaded: its model is there.
        ran: it has answered requests.
        bytes_max: what its type allows: it is ended when it takes more; 0 = not bounded.
    """
    bound = max(bytes_max, own_bytes_max) or need_bytes
    if not loaded:
        return max(min(need_bytes, bound), own_bytes_max, START_BYTES)
    measured = min(with_headroom(own_bytes_max), bound)
    return measured if ran and own_bytes_max else max(measured, min(need_bytes, bound))


#: Loads of a kind that are remembered.
_LOADS: Final = 16
_HEADROOM: Final = 1.1
#: Estimates that differ by less are of models of one size.
_ALIKE: Final = 2.0
#: Estimates that differ by less are of one size: names and lengths of labels differ, weights don't.
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
        """A model of that kind took `peak_bytes` at its height and kept `kept_bytes`; the rule said
        `estimated_bytes`."""
        seen = self._seen.setdefault(kind, deque(maxlen=_LOADS))
        seen.append(_Seen(estimated_bytes, peak_bytes, kept_bytes))

    def kept(self, kind: str, estimated_bytes: int) -> int | None:
        """What models of that very size kept, the largest of them; None: there was none."""
        return max(
            (one.kept_bytes for one in self._like(kind, estimated_bytes, _SAME)), default=None
        )

    def corrected(self, kind: str, estimated_bytes: int) -> int:
        """What to expect of a model of that kind that was never loaded."""
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

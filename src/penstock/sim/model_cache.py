"""A host of target models under virtual time: traces of calls, and how residency handles them.

The machine is the live one; only loads, unloads and answers are simulated. `compared` compares its
loads with those of a textbook LRU cache (`lru_loads`), in which loads take no time. The traces are
those on which caches differ: a few popular models (Zipf), changing favourites, rounds over all
models, random calls, a day with office hours, and different sizes.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, count
from math import pi, sin
from typing import Any

from penstock.core.residency import (
    Action,
    Admit,
    Footprint,
    Load,
    Prepare,
    RefuseParked,
    Residency,
    ResidencySpec,
    Unload,
)

MIB = 2**20


@dataclass(frozen=True, slots=True)
class SimulatedModelSpec:
    """The true properties of one model."""

    size: Footprint
    load_s: float
    need: Footprint | None = None  #: the estimate before its first load; None = the true value


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    models: Mapping[str, SimulatedModelSpec]
    calls: tuple[tuple[float, str], ...]  #: (s, model), ascending
    budget: Footprint


@dataclass(slots=True)
class CacheOutcome:
    """The result of a trace."""

    calls: int = 0
    hits: int = 0
    refused: int = 0
    loads: int = 0
    reloads: int = 0  #: loads of models that were loaded before
    load_s: float = 0.0  #: sum over all loads
    unloads: int = 0
    used_max: int = 0  #: highest use of host memory, bytes
    over_budget: int = 0  #: number of moments above the budget
    wait_s: list[float] = field(default_factory=list)  #: for each call, until it was admitted
    loaded_at: dict[str, list[float]] = field(default_factory=dict)

    def summary(self, length_s: float) -> dict[str, Any]:
        waits = sorted(self.wait_s) or [0.0]
        return {
            "loads": self.loads,
            "reloads": self.reloads,
            "reloads_per_hour": round(self.reloads / length_s * 3600.0, 1),
            "load_s": round(self.load_s, 1),
            "hit_ratio": round(self.hits / max(self.calls, 1), 4),
            "refused": self.refused,
            "wait_s_p50": round(waits[len(waits) // 2], 3),
            "wait_s_p99": round(waits[int(len(waits) * 0.99)], 3),
        }


class ModelCacheSim:
    """Carries out the machine's actions in virtual time."""

    def __init__(
        self,
        trace: Trace,
        spec: ResidencySpec,
        *,
        answer_s: float = 0.02,
        prepare_s: float = 0.0,
        unload_s: float = 0.01,
        deadline_s: float | None = None,
    ) -> None:
        self._trace = trace
        self._answer_s = answer_s
        self._prepare_s = prepare_s
        self._unload_s = unload_s
        self._deadline_s = deadline_s
        self.residency = Residency(spec)
        self.outcome = CacheOutcome()
        self._budget = spec.budget
        self._events: list[tuple[float, int, str, str]] = []
        self._order = count()
        self._in_flight: dict[str, int] = {}
        #: model -> (arrival, deadline)
        self._parked: dict[str, list[tuple[float, float | None]]] = {}
        self._held: dict[str, Footprint] = {}  #: true memory of models that are loaded or loading
        self._used = Footprint()

    def run(self) -> CacheOutcome:
        for at, model in self._trace.calls:
            self._run_until(at)
            self._call(model, at)
        self._run_until(float("inf"))
        return self.outcome

    def _run_until(self, until: float) -> None:
        while True:
            due = self.residency.next_deadline()
            event_at = self._events[0][0] if self._events else float("inf")
            if due is not None and due <= min(event_at, until):
                self._carry_out(self.residency.on_timer(now=due), due)
            elif event_at <= until and self._events:
                at, _, what, model = heappop(self._events)
                self._happen(what, model, at)
            else:
                return

    def _call(self, model: str, now: float) -> None:
        self.outcome.calls += 1
        if self.residency.is_loaded(model):
            self.outcome.hits += 1
            self._answer(model, now, now)
            return
        deadline = None if self._deadline_s is None else now + self._deadline_s
        self._parked.setdefault(model, []).append((now, deadline))
        self._carry_out(self.residency.request(model, now=now, deadline=deadline), now)

    def _answer(self, model: str, arrived: float, now: float) -> None:
        self.outcome.wait_s.append(now - arrived)
        self._in_flight[model] = self._in_flight.get(model, 0) + 1
        self.residency.began(model, now=now)
        self._later("answered", model, now + self._answer_s)

    def _later(self, what: str, model: str, at: float) -> None:
        heappush(self._events, (at, next(self._order), what, model))

    def _happen(self, what: str, model: str, now: float) -> None:
        target = self._trace.models[model]
        if what == "answered":
            self._in_flight[model] -= 1
            if self._in_flight[model] == 0:
                self._carry_out(self.residency.idle(model, now=now), now)
        elif what == "prepared":
            need = target.need or target.size
            begun = self.residency.prepared(model, need, now=now, prepare_s=self._prepare_s)
            self._carry_out(begun, now)
        elif what == "loaded":
            begun = self.residency.loaded(
                model, target.size, now=now, load_s=target.load_s, used=self._used
            )
            self._carry_out(begun, now)
        else:
            self._used -= self._held.pop(model)
            self._carry_out(self.residency.unloaded(model, now=now, used=self._used), now)

    def _carry_out(self, actions: list[Action], now: float) -> None:
        for action in actions:
            model = action.model
            if isinstance(action, Prepare):
                self._later("prepared", model, now + self._prepare_s)
            elif isinstance(action, Load):
                self._load(model, now)
            elif isinstance(action, Unload):
                assert not self._in_flight.get(model), "unloaded while it answers"
                self.outcome.unloads += 1
                self._later("unloaded", model, now + self._unload_s)
            elif isinstance(action, Admit):
                for arrived, _ in self._parked.pop(model, []):
                    self._answer(model, arrived, now)
            else:
                self._refuse(action)

    def _load(self, model: str, now: float) -> None:
        target, outcome = self._trace.models[model], self.outcome
        times = outcome.loaded_at.setdefault(model, [])
        outcome.loads += 1
        outcome.reloads += bool(times)
        outcome.load_s += target.load_s
        times.append(now)
        self._held[model] = target.size
        self._used += target.size
        outcome.used_max = max(outcome.used_max, self._used.host_bytes)
        outcome.over_budget += not self._used.within(self._budget)
        self._later("loaded", model, now + target.load_s)

    def _refuse(self, action: RefuseParked) -> None:
        parked = self._parked.get(action.model, [])
        if action.newest_only:
            parked.pop()
            self.outcome.refused += 1
            return
        latest = action.deadline_max
        stay = [] if latest is None else [one for one in parked if (one[1] or latest + 1) > latest]
        self.outcome.refused += len(parked) - len(stay)
        self._parked[action.model] = stay


# catalogues


def alike(number: int, *, mib: int = 100, load_s: float = 0.5) -> dict[str, SimulatedModelSpec]:
    """Models of one size."""
    target = SimulatedModelSpec(Footprint(host_bytes=mib * MIB), load_s)
    return {f"model-{at:04}": target for at in range(number)}


def mixed(number: int, rng: random.Random) -> dict[str, SimulatedModelSpec]:
    """Sizes over two orders of magnitude; load times depend on size only loosely."""
    targets = {}
    for at in range(number):
        mib = int(20 * 100 ** rng.random())
        load_s = (0.1 + mib / 1000) * 3 ** (2 * rng.random() - 1)
        targets[f"model-{at:04}"] = SimulatedModelSpec(Footprint(host_bytes=mib * MIB), load_s)
    return targets


def budget_for(models: Mapping[str, SimulatedModelSpec], share: float) -> Footprint:
    total = sum(target.size.host_bytes for target in models.values())
    return Footprint(host_bytes=int(total * share))


# calls


def _poisson(rng: random.Random, rate: float, length_s: float) -> Iterator[float]:
    at = rng.expovariate(rate)
    while at < length_s:
        yield at
        at += rng.expovariate(rate)


def _drawn(rng: random.Random, weights: list[float]) -> Iterator[int]:
    sums = list(accumulate(weights))
    while True:
        yield bisect_left(sums, rng.random() * sums[-1])


def zipf_calls(
    names: list[str], rng: random.Random, *, rate: float, length_s: float, skew: float = 1.0,
    shift_s: float = 0.0,
) -> tuple[tuple[float, str], ...]:  # fmt: skip
    """The k-th model is called k ** -skew as often; every `shift_s` another model becomes first."""
    draw = _drawn(rng, [(k + 1.0) ** -skew for k in range(len(names))])
    calls = []
    for at in _poisson(rng, rate, length_s):
        moved = int(at / shift_s) * (len(names) // 5) if shift_s else 0
        calls.append((at, names[(next(draw) + moved) % len(names)]))
    return tuple(calls)


def cyclic_calls(
    names: list[str], rng: random.Random, *, gap_s: float, length_s: float, jitter: float = 0.0
) -> tuple[tuple[float, str], ...]:
    """Rounds over all models, again and again; each call is early or late by a share of a gap."""
    number = int(length_s / gap_s)
    calls = [
        (max(0.0, (at + jitter * (rng.random() - 0.5)) * gap_s), names[at % len(names)])
        for at in range(number)
    ]
    return tuple(sorted(calls))


def scan_calls(
    names: list[str], rng: random.Random, *, rate: float, length_s: float
) -> tuple[tuple[float, str], ...]:
    """Most calls are for a quarter of the models; between them are rounds over all others."""
    often, others = names[: len(names) // 4], names[len(names) // 4 :]
    calls, turn = [], 0
    for at in _poisson(rng, rate, length_s):
        if rng.random() < 0.6:
            calls.append((at, rng.choice(often)))
        else:
            calls.append((at, others[turn % len(others)]))
            turn += 1
    return tuple(calls)


def day_calls(
    names: list[str], rng: random.Random, *, rate: float, length_s: float, skew: float = 0.8
) -> tuple[tuple[float, str], ...]:
    """Customers on three continents: each third of the models has its own office hours."""
    draw = _drawn(rng, [(k + 1.0) ** -skew for k in range(len(names))])
    calls = []
    for at in _poisson(rng, rate, length_s):
        which = next(draw)
        phase = 2 * pi * (at / length_s - (which % 3) / 3)
        if rng.random() < max(0.02, sin(phase)):
            calls.append((at, names[which]))
    return tuple(calls)


def traces(*, seed: int = 0, number: int = 100, length_s: float = 3600.0) -> list[Trace]:
    """The traces for comparing policies."""
    rng = random.Random(f"model-cache/{seed}")
    same, various = alike(number), mixed(number, rng)
    names = list(same)
    at_a_rate = {"rate": 2.0, "length_s": length_s}
    calls: list[
        tuple[str, Mapping[str, SimulatedModelSpec], float, tuple[tuple[float, str], ...]]
    ] = [
        ("zipf", same, 0.3, zipf_calls(names, rng, **at_a_rate)),
        ("zipf-steep", same, 0.2, zipf_calls(names, rng, skew=1.4, **at_a_rate)),
        ("zipf-shifting", same, 0.3, zipf_calls(names, rng, shift_s=length_s / 6, **at_a_rate)),
        ("uniform", same, 0.5, zipf_calls(names, rng, skew=0.0, **at_a_rate)),
        ("scan", same, 0.3, scan_calls(names, rng, **at_a_rate)),
        ("scan-wide", same, 0.6, scan_calls(names, rng, **at_a_rate)),
        ("day", same, 0.3, day_calls(names, rng, **at_a_rate)),
        ("mixed-zipf", various, 0.3, zipf_calls(names, rng, **at_a_rate)),
        ("mixed-uniform", various, 0.5, zipf_calls(names, rng, skew=0.0, **at_a_rate)),
        ("mixed-day", various, 0.3, day_calls(names, rng, **at_a_rate)),
    ]
    for share in (0.95, 0.8, 0.5):
        rounds = cyclic_calls(names, rng, gap_s=1.0, length_s=length_s, jitter=2.0)
        calls.append((f"cyclic-{share}", same, share, rounds))
    rounds = cyclic_calls(names, rng, gap_s=1.0, length_s=length_s)
    calls.append(("mixed-cyclic", various, 0.6, rounds))
    return [Trace(name, models, made, budget_for(models, s)) for name, models, s, made in calls]


def lru_loads(trace: Trace) -> int:
    """The number of loads of a cache that evicts by last use alone, if loads take no time."""
    held: OrderedDict[str, int] = OrderedDict()  #: model -> bytes, least recently used first
    free, loads = trace.budget.host_bytes, 0
    for _, model in trace.calls:
        if model in held:
            held.move_to_end(model)
            continue
        size = trace.models[model].size.host_bytes
        while held and size > free:
            free += held.popitem(last=False)[1]
        held[model] = size
        free -= size
        loads += 1
    return loads


def compared(trace: Trace, **spec: Any) -> dict[str, Any]:
    """The machine's results on a trace, and the loads of `lru_loads` for the same calls."""
    outcome = ModelCacheSim(trace, ResidencySpec(budget=trace.budget, **spec)).run()
    summary = outcome.summary(max(trace.calls[-1][0], 1.0))
    return summary | {"lru_loads": lru_loads(trace)}

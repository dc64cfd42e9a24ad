"""Which of two orders of eviction to follow, by value or by last use: what does better.

Value knows more than LRU, and can be wrong: a guess about the next call is a guess. So two caches
of names and sizes run beside the real one, on the same calls: one evicts by last use, the other by
value. Only calls that one of them has and the other has not tell them apart. Value is followed
once it leads by more than chance explains (a sign test at three standard deviations) and has not
cost more time in reloads; as soon as it does worse, LRU is followed again. Old evidence fades.

A cache of names knows no minimum residency, no load that takes time, no guess that was wrong. So
while value is followed, what the host really loads is held against what LRU would have missed: a
host that loads more goes back to LRU, and asks for a clearer lead the next time.

Where nothing tells them apart (models called alike, of one size) the host is therefore plain LRU,
and never worse than that for longer than the evidence takes. Set duelling, as processors do it for
their caches: Qureshi et al., 2007, "Adaptive Insertion Policies for High Performance Caching".
"""

from __future__ import annotations

from collections import OrderedDict
from math import sqrt
from typing import Any

from penstock.core.residency.history import Population
from penstock.core.residency.model import TargetModel
from penstock.core.residency.spec import NOTHING, Footprint
from penstock.core.residency.victims import EvictionCandidate, Shortage, by_value

_SIGMAS = 3.0
_LEAD_MIN = 2.0
#: Loads more than LRU's misses, in what is remembered, after which value is left; the lead that it
#: must have then grows so many times, up to a bound, and halves again as it proves itself.
_LOADS_MORE_MAX = 8.0
_LEAD_GROWTH = 4.0
_LEAD_MAX = 200.0
_TOLD_APART_MAX = 400.0  #: from so many on, all that was seen counts half
_SAMPLED = 64  #: models looked at per eviction by value: work that does not grow with the host


class _Shadow:
    """A cache of names and sizes: what the host would hold if it evicted in one order."""

    def __init__(self) -> None:
        self.held: OrderedDict[str, TargetModel] = OrderedDict()  #: longest unused first
        self._sizes: dict[str, Footprint] = {}
        self._taken = NOTHING

    def drop(self, name: str) -> None:
        if name in self.held:
            del self.held[name]
            self._taken -= self._sizes.pop(name)

    def resized(self, name: str, size: Footprint) -> None:
        if name in self.held:
            self._taken += size - self._sizes[name]
            self._sizes[name] = size

    def short_of(self, size: Footprint, room: Footprint, models_max: int) -> Shortage:
        missing = (self._taken + size - room).at_least(NOTHING)
        more = max(0, len(self.held) + 1 - models_max) if models_max else 0
        return Shortage(missing, more)

    def hold(self, model: TargetModel, size: Footprint) -> None:
        self.held[model.name] = model
        self._sizes[model.name] = size
        self._taken += size


class Contest:
    """Two shadows and what tells them apart."""

    def __init__(self, population: Population, models_max: int) -> None:
        self._population = population
        self._models_max = models_max
        self._by_use = _Shadow()
        self._by_value = _Shadow()
        self._hand = 0
        self.room = NOTHING  #: for models, in each of the two
        self.value_only = 0.0  #: calls that only the cache by value could answer
        self.use_only = 0.0  #: that only LRU could
        self.saved_s = 0.0  #: time in reloads that value would have saved
        self.by_value = False  #: what is followed
        self._lead_min = _LEAD_MIN
        self._loads = 0.0  #: of the host, while it follows value
        self._missed = 0.0  #: by LRU in the same time

    def called(self, model: TargetModel, *, now: float, joins: bool = False) -> None:
        """A call of the model, when its size is known.

        `joins` others for whom the model is on its way: whichever order is followed, it loads no
        model, and so it tells nothing.
        """
        name, size = model.name, model.size
        used = name in self._by_use.held
        valued = name in self._by_value.held
        if used:
            self._by_use.held.move_to_end(name)
        if used and valued:
            return
        if size is None or not size.within(self.room):
            return
        if not used:
            self._missed += self.by_value and not joins
            self._hold_by_use(model, size)
        if not valued:
            self._hold_by_value(model, size, now)
        if used != valued and not joins:
            self._weigh(model, valued=valued)

    def loads(self) -> None:
        """The host began a load, for whatever reason."""
        if not self.by_value:
            return
        self._loads += 1
        if self._loads - self._missed >= _LOADS_MORE_MAX:
            self._lead_min = min(self._lead_min * _LEAD_GROWTH, _LEAD_MAX)
            self._follow(value=False)
            self.value_only = self.use_only = self.saved_s = 0.0
        elif self._loads + self._missed >= _TOLD_APART_MAX:
            self._loads /= 2
            self._missed /= 2
            self._lead_min = max(self._lead_min / 2, _LEAD_MIN)

    def resized(self, model: TargetModel) -> None:
        if model.size is not None:
            self._by_use.resized(model.name, model.size)
            self._by_value.resized(model.name, model.size)

    def forget(self, name: str) -> None:
        self._by_use.drop(name)
        self._by_value.drop(name)

    def snapshot(self) -> dict[str, Any]:
        return {
            "follows": "value" if self.by_value else "last-use",
            "value_only": self.value_only,
            "last_use_only": self.use_only,
            "saved_s": self.saved_s,
        }

    def _hold_by_use(self, model: TargetModel, size: Footprint) -> None:
        shadow = self._by_use
        while shadow.held and any_missing(shadow.short_of(size, self.room, self._models_max)):
            shadow.drop(next(iter(shadow.held)))
        shadow.hold(model, size)

    def _hold_by_value(self, model: TargetModel, size: Footprint, now: float) -> None:
        shadow = self._by_value
        while shadow.held and any_missing(
            shortage := shadow.short_of(size, self.room, self._models_max)
        ):
            sample = [
                candidate(held, now, self._population)
                for held in self._sampled(list(shadow.held.values()))
            ]
            for victim in by_value(sample, shortage) or sample:
                shadow.drop(victim.name)
        shadow.hold(model, size)

    def _sampled(self, held: list[TargetModel]) -> list[TargetModel]:
        """A part that moves on each time; all of them where they are few."""
        if len(held) <= _SAMPLED:
            return held
        start = self._hand % len(held)
        self._hand = start + _SAMPLED
        return (held + held[:_SAMPLED])[start : start + _SAMPLED]

    def _follow(self, *, value: bool) -> None:
        if value and not self.by_value:
            self._loads = self._missed = 0.0
        self.by_value = value

    def _weigh(self, model: TargetModel, *, valued: bool) -> None:
        if valued:
            self.value_only += 1
            self.saved_s += model.reload_s
        else:
            self.use_only += 1
            self.saved_s -= model.reload_s
        lead, told_apart = self.value_only - self.use_only, self.value_only + self.use_only
        least = 0.0 if self.by_value else _SIGMAS * sqrt(told_apart) + self._lead_min
        self._follow(value=lead >= least and self.saved_s >= 0)
        if told_apart >= _TOLD_APART_MAX:
            self.value_only /= 2
            self.use_only /= 2
            self.saved_s /= 2


def any_missing(shortage: Shortage) -> bool:
    return shortage.models > 0 or shortage.memory != NOTHING


def candidate(model: TargetModel, now: float, population: Population) -> EvictionCandidate:
    """A model as a victim by value."""
    loss = model.reload_s / model.history.expected_wait_s(now, population)
    return EvictionCandidate(model.name, model.size or NOTHING, loss, model.history.last or 0.0)

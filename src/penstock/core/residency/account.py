"""The memory of a host of target models, in both dimensions: what is taken and still to come.

What the operating system measured decides. While nothing loads, the tree takes what was measured;
what no model is known to have taken is `shared`: the runtimes, counted once, and growth that nobody
can be charged with. While models load, a look at the tree shows a part of what they will take, so

    committed = the larger of what is measured now,
                and what was settled before the loads began, plus all that they will take

Neither sum counts a byte twice, and a load that takes more than was expected shows in the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.residency.spec import NOTHING, Footprint


class Account:
    """Charges of loaded models and needs of those that load, within one budget."""

    def __init__(self, budget: Footprint, *, used: Footprint, models_max: int) -> None:
        self.budget = budget
        self.base = used  #: without any model
        self.measured = used  #: by the last look
        self._models_max = models_max
        self._settled = used  #: without what is loading now
        self._charges: dict[str, Footprint] = {}  #: of models that are loaded, or leaving
        self._charged = NOTHING  #: their sum
        self._needs: dict[str, Footprint] = {}  #: of running loads
        self._needed = NOTHING
        self._leaving: set[str] = set()
        self._leaving_sum = NOTHING

    # what happens

    def look(self, used: Footprint) -> None:
        """The whole tree was measured."""
        self.measured = used
        if not self._needs:
            self._settled = used

    def load_begins(self, model: str, need: Footprint) -> None:
        self._needs[model] = need
        self._needed += need

    def load_ends(self, model: str, *, taken: Footprint | None, used: Footprint) -> None:
        """`taken` by the model that is loaded now; None: it is not."""
        self._needed -= self._needs.pop(model)
        if taken is not None:
            self._charges[model] = taken
            self._charged += taken
            self._settled += taken
        self.look(used)

    def grown(self, model: str, taken: Footprint) -> None:
        """A loaded model takes so much now; follow with `look`."""
        growth = taken - self._charges[model]
        self._charges[model] = taken
        self._charged += growth
        self._settled += growth
        if model in self._leaving:
            self._leaving_sum += growth

    def leaves(self, model: str) -> None:
        """Its memory is about to be given back."""
        self._leaving.add(model)
        self._leaving_sum += self._charges[model]

    def left(self, model: str, *, used: Footprint) -> None:
        """It is gone, announced or not."""
        charge = self._charges.pop(model)
        self._charged -= charge
        self._settled = (self._settled - charge).at_least(NOTHING)
        if model in self._leaving:
            self._leaving.discard(model)
            self._leaving_sum -= charge
        self.look(used)

    def limit_models(self, models_max: int) -> None:
        """So many at once from now on; 0 = as many as memory holds."""
        self._models_max = models_max

    # what is there

    @property
    def committed(self) -> Footprint:
        """What the tree will take when the running loads are done."""
        return self.measured.at_least(self._settled + self._needed)

    @property
    def shared(self) -> Footprint:
        """What no model is charged with; can't be had back by unloading."""
        return (self._settled - self._charged).at_least(NOTHING)

    def charge(self, model: str) -> Footprint:
        return self._charges[model]

    def charged(self) -> set[str]:
        """The models that are loaded or leaving."""
        return set(self._charges)

    def can_ever_hold(self, need: Footprint) -> bool:
        """Whether the budget has room for it beside the bare process."""
        return (self.base + need).within(self.budget)

    def has_room(self, need: Footprint) -> bool:
        """Whether a load may begin at this moment: nothing that is still leaving is counted on."""
        if self._models_max and self.models + 1 > self._models_max:
            return False
        return (self.committed + need).within(self.budget)

    def short_of(self, need: Footprint) -> Footprint:
        """What is missing for it once those who leave have left; nothing negative."""
        return self.above(self.budget - need)

    def above(self, limit: Footprint) -> Footprint:
        """What is taken beyond it once those who leave have left; nothing negative."""
        return (self.committed - self._leaving_sum - limit).at_least(NOTHING)

    def models_over(self, more: int) -> int:
        """How many models must go, besides those who leave, before `more` may come."""
        if not self._models_max:
            return 0
        return max(0, self.models - len(self._leaving) + more - self._models_max)

    @property
    def models(self) -> int:
        """Loaded, loading, or not gone yet."""
        return len(self._charges) + len(self._needs)

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {
            "budget": self.budget.snapshot(),
            "measured": self.measured.snapshot(),
            "committed": self.committed.snapshot(),
            "shared": self.shared.snapshot(),
            "loading": self._needed.snapshot(),
            "leaving": self._leaving_sum.snapshot(),
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the sums are not those of the parts."""
        for total, parts in (
            (self._charged, self._charges.values()),
            (self._needed, self._needs.values()),
            (self._leaving_sum, [self._charges[model] for model in sorted(self._leaving)]),
        ):
            assert total == sum(parts, NOTHING), "a sum of memory is not that of its parts"
        assert not self._needs.keys() & self._charges.keys(), "a model loads and is loaded"


def fits(free: Footprint, before: Footprint | None, others: Iterable[Footprint]) -> bool:
    """Whether a model may be loaded ahead of its calls without anybody being evicted for it.

    By what it took before, else by the largest of the others: nothing is guessed from sizes.

    Where nothing was measured yet, the first one is what is measured.

    Args:
        free: of the budget.
        before: what the model took when it was loaded last; None: it never was.
        others: what other models of the host took.
    """
    need = before
    if need is None:
        need = NOTHING
        for one in others:
            need = need.at_least(one)
    return need.within(free)

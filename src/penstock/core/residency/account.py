"""The memory of a host of target models, on host and accelerator: taken, and still to be taken.

What the operating system measures decides. While nothing loads, the process tree takes what was
measured. Memory that belongs to no known model is `shared`: the runtimes, counted once, and growth
that can't be attributed. While models load, a measurement shows only a part of what they will take.
So

    committed = the larger of what is measured now,
                and what was settled before the loads began, plus all that they will take

Neither sum counts a byte twice; a load that takes more than was expected shows in the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.residency.spec import NOTHING, Footprint


class Account:
    """Memory charged to loaded models and needed by running loads, within one budget."""

    def __init__(self, budget: Footprint, *, used: Footprint, models_max: int) -> None:
        self.budget = budget
        self.base = used  #: the process tree without any model
        self.measured = used  #: result of the last measurement
        self._models_max = models_max
        self._settled = used  #: without the models that are loading now
        self._charges: dict[str, Footprint] = {}  #: of models that are loaded, or leaving
        self._charged = NOTHING  #: sum of the charges
        self._needs: dict[str, Footprint] = {}  #: needs of running loads
        self._needed = NOTHING
        self._leaving: set[str] = set()
        self._leaving_sum = NOTHING

    # inputs

    def look(self, used: Footprint) -> None:
        """Records a measurement of the whole process tree."""
        self.measured = used
        if not self._needs:
            self._settled = used

    def load_begins(self, model: str, need: Footprint) -> None:
        self._needs[model] = need
        self._needed += need

    def load_ends(self, model: str, *, taken: Footprint | None, used: Footprint) -> None:
        """`taken`: memory of the model, which is loaded now; None: the load failed."""
        self._needed -= self._needs.pop(model)
        if taken is not None:
            self._charges[model] = taken
            self._charged += taken
            self._settled += taken
        self.look(used)

    def grown(self, model: str, taken: Footprint) -> None:
        """A loaded model takes `taken` now; call `look` afterwards."""
        growth = taken - self._charges[model]
        self._charges[model] = taken
        self._charged += growth
        self._settled += growth
        if model in self._leaving:
            self._leaving_sum += growth

    def leaves(self, model: str) -> None:
        """The model is about to be unloaded."""
        self._leaving.add(model)
        self._leaving_sum += self._charges[model]

    def left(self, model: str, *, used: Footprint) -> None:
        """The model is gone, whether `leaves` was called before or not."""
        charge = self._charges.pop(model)
        self._charged -= charge
        self._settled = (self._settled - charge).at_least(NOTHING)
        if model in self._leaving:
            self._leaving.discard(model)
            self._leaving_sum -= charge
        self.look(used)

    def limit_models(self, models_max: int) -> None:
        """Sets the number of models that may be loaded at once; 0 = as many as memory holds."""
        self._models_max = models_max

    # views

    @property
    def committed(self) -> Footprint:
        """What the tree will take when the running loads are done."""
        return self.measured.at_least(self._settled + self._needed)

    @property
    def shared(self) -> Footprint:
        """Memory that is charged to no model; unloading does not free it."""
        return (self._settled - self._charged).at_least(NOTHING)

    def charge(self, model: str) -> Footprint:
        return self._charges[model]

    def charged(self) -> set[str]:
        """The models that are loaded or leaving."""
        return set(self._charges)

    def can_ever_hold(self, need: Footprint) -> bool:
        """Whether the budget has room for it in a process without models."""
        return (self.base + need).within(self.budget)

    def has_room(self, need: Footprint) -> bool:
        """Whether a load may begin now: leaving models' memory does not count as free."""
        if self._models_max and self.models + 1 > self._models_max:
            return False
        return (self.committed + need).within(self.budget)

    def short_of(self, need: Footprint) -> Footprint:
        """What is missing for a load after leaving models have left; never negative."""
        return self.above(self.budget - need)

    def above(self, limit: Footprint) -> Footprint:
        """What is taken beyond the limit after leaving models have left; never negative."""
        return (self.committed - self._leaving_sum - limit).at_least(NOTHING)

    def models_over(self, more: int) -> int:
        """How many models must be unloaded, besides leaving ones, before `more` may be loaded."""
        if not self._models_max:
            return 0
        return max(0, self.models - len(self._leaving) + more - self._models_max)

    @property
    def models(self) -> int:
        """Number of models that are loaded, loading, or leaving."""
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
    """Whether a model may be loaded ahead of its calls without evicting any other.

    It counts as large as when it was loaded before, else as the largest of the others: nothing is
    guessed from file sizes. Where nothing was measured yet, the first model is loaded to measure
    it.

    Args:
        free: free part of the budget.
        before: what the model took when it was loaded last; None: it never was.
        others: what other models of the host took.
    """
    need = before
    if need is None:
        need = NOTHING
        for one in others:
            need = need.at_least(one)
    return need.within(free)

"""Whether a model may be loaded ahead of its calls without anybody being evicted for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.residency.spec import NOTHING, Footprint


def fits(free: Footprint, before: Footprint | None, others: Iterable[Footprint]) -> bool:
    """By what it took before, else by the largest of the others: nothing is guessed from sizes.

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

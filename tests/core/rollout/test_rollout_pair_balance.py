"""`core/rollout/pair_balance.py`: as many requests go to one revision as to the other."""

from __future__ import annotations

from penstock.core.rollout.pair_balance import AHEAD_MAX, PairBalance
from penstock.core.rollout.sequential import evidence_above


def copied(balance: PairBalance, directions: str) -> str:
    """Of answers of the former revision (o) and of the new one (n): those that are copied."""
    done = ""
    for one in directions:
        to_new = one == "o"
        if balance.admits(to_new=to_new):
            balance.copied(to_new=to_new)
            done += one
    return done


def test_neither_revision_is_asked_much_more_than_it_answers() -> None:
    assert copied(PairBalance(), "o" * 20) == "oooo"
    assert copied(PairBalance(), "n" * 20) == "nnnn"
    # Nine of ten answers are the former one's: of those as many are copied as of the others.
    seen = copied(PairBalance(), "ooooooooon" * 40)
    assert (seen.count("o"), seen.count("n")) == (43, 40)


def test_what_is_ahead_alone_proves_nothing() -> None:
    """All of these may be late because their copy is busy; a decision is sure from 300 on."""
    assert evidence_above(AHEAD_MAX, AHEAD_MAX, 0.5) < 300

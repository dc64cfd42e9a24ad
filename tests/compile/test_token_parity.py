"""When a text writer's artifact is its source's equal: the rule on logits written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.compile.contract import Tolerance
from penstock.compile.seq2seq.seq2seq_parity import (
    TokenParity,
    compare_steps,
    tolerance_asked,
    tolerance_for,
)

CEILING = Tolerance(difference_max=1.0, difference_mean=0.3, agreement_min=0.97)


def compared(
    theirs: list[list[float]], ours: list[list[float]], margin: float = 0.1
) -> TokenParity:
    return compare_steps([np.array(theirs)], [np.array(ours)], margin=margin)


def test_what_is_added_to_all_logits_alike_changes_no_token_and_counts_for_nothing() -> None:
    parity = compared([[3.0, 1.0, -1.0]], [[13.0, 11.0, 9.0]])
    assert (parity.agreement, parity.loss_max) == (1.0, 0.0)
    assert parity.difference_mean == pytest.approx(0.0)


def test_the_loss_of_a_token_is_what_the_source_prefers_its_own_by_in_spreads() -> None:
    """The logits 4, 0, 0, -4 spread by the root of 8; ours is the token that has 0."""
    parity = compared([[4.0, 0.0, 0.0, -4.0]], [[1.0, 2.0, 0.0, -3.0]])
    assert parity.loss_max == pytest.approx(4.0 / 8.0**0.5)
    assert parity.agreement == 0.0


def test_a_token_that_the_source_hardly_decides_is_no_disagreement() -> None:
    theirs = [[2.0, 1.999, -4.0], [2.0, -1.0, -1.0]]
    ours = [[1.999, 2.0, -4.0], [2.0, -1.0, -1.0]]
    parity = compared(theirs, ours)
    assert (parity.agreement, parity.agreement_decided) == (0.5, 1.0)


def test_nothing_decided_is_nothing_to_agree_on() -> None:
    assert compared([[1.0, 0.0]], [[0.0, 1.0]], margin=5.0).agreement_decided is None


def test_forbidden_tokens_of_the_source_are_left_out() -> None:
    parity = compared([[2.0, 0.0, -np.inf]], [[2.0, 0.0, 99.0]])
    assert (parity.agreement, parity.difference_mean) == (1.0, 0.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_is_never_parity(bad: float) -> None:
    parity = compared([[2.0, 0.0]], [[bad, 0.0]])
    assert (parity.loss_max, parity.difference_mean) == (float("inf"), float("inf"))
    assert parity.agreement == 0.0


def test_no_step_is_no_parity() -> None:
    assert compare_steps([], [], margin=0.1).loss_max == float("inf")


def rounded(mean: float, rms: float) -> TokenParity:
    return TokenParity(
        steps=100, agreement=1.0, agreement_decided=1.0, loss_max=0.0, difference_mean=mean,
        difference_rms=rms,
    )  # fmt: skip


def test_an_artifact_may_differ_as_its_format_does() -> None:
    """Half as much again as the mean, eight times the root mean square."""
    tolerance = tolerance_for(rounded(0.02, 0.04), CEILING)
    assert (tolerance.difference_mean, tolerance.difference_max) == (0.03, 0.32)
    assert tolerance.agreement_min == 0.97


def test_what_a_format_may_cost_at_most_is_a_constant() -> None:
    tolerance = tolerance_for(rounded(2.0, 3.0), CEILING)
    assert (tolerance.difference_mean, tolerance.difference_max) == (0.3, 1.0)


def test_a_format_that_costs_next_to_nothing_leaves_room_for_rounding() -> None:
    tolerance = tolerance_for(rounded(1e-6, 1e-6), CEILING)
    assert (tolerance.difference_mean, tolerance.difference_max) == (0.005, 0.05)


def test_a_caller_names_the_largest_loss_and_the_mean_follows() -> None:
    tolerance = tolerance_asked(0.6, CEILING)
    assert (tolerance.difference_max, tolerance.difference_mean) == (0.6, pytest.approx(0.1))
    assert tolerance_asked(0.0, CEILING).difference_mean == 0.0

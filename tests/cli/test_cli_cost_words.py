"""Figures of cost reports: what a request costs is small, and is read by people."""

from __future__ import annotations

import pytest

from penstock.cli.output import figure, money, saved


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "0"), (1e-13, "0"), (0.000088123, "0.0000881"), (0.02, "0.02"), (0.0199999, "0.02"),
        (12.3456, "12.3"), (240.0, "240"), (1234567.8, "1234568"), (99999.6, "100000"),
        (-0.5, "-0.5"), (0.99996, "1"),
    ],
)  # fmt: skip
def test_figures_have_three_digits_that_count_and_no_exponent(amount: float, text: str) -> None:
    assert figure(amount) == text


def test_money_is_in_dollars() -> None:
    assert money(0.00002411) == "$0.0000241"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.984, "98%"), (0.0, "0%"), (-0.5, "1.5 x as dear"), (-39.0, "40 x as dear")],
)
def test_what_is_dearer_is_told_by_how_many_times(share: float, text: str) -> None:
    assert saved(share) == text

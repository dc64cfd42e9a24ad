"""Shapes that a text model meets are few: rows go up in powers of two."""

from __future__ import annotations

import pytest

from penstock.instance.text_engine import row_steps


@pytest.mark.parametrize(
    ("rows_max", "steps"),
    [(0, (1,)), (1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (32, (1, 2, 4, 8, 16, 32))],
)
def test_row_steps(rows_max: int, steps: tuple[int, ...]) -> None:
    assert row_steps(rows_max) == steps

"""Shapes that a text model meets are few: rows go up by half at most."""

from __future__ import annotations

import pytest

from penstock.instance.engines.text import row_steps


@pytest.mark.parametrize(
    ("rows_max", "steps"),
    [
        (0, (1,)),
        (1, (1,)),
        (2, (1, 2)),
        (6, (1, 2, 4, 6)),
        (10, (1, 2, 4, 8, 10)),
        (32, (1, 2, 4, 8, 12, 16, 24, 32)),
        (64, (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)),
    ],
)
def test_row_steps(rows_max: int, steps: tuple[int, ...]) -> None:
    assert row_steps(rows_max) == steps

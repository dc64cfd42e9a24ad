"""Moments in CloudWatch's two forms."""

from __future__ import annotations

import pytest

from penstock.core.alarms.words import moment, stamp


@pytest.mark.parametrize(
    ("at", "in_json", "in_words"),
    [
        (0, "1970-01-01T00:00:00.000+0000", "01/01/70 00:00:00"),
        (951_782_400, "2000-02-29T00:00:00.000+0000", "29/02/00 00:00:00"),
        (1_700_000_040, "2023-11-14T22:14:00.000+0000", "14/11/23 22:14:00"),
        (1_709_251_199, "2024-02-29T23:59:59.000+0000", "29/02/24 23:59:59"),
        (1_709_251_200, "2024-03-01T00:00:00.000+0000", "01/03/24 00:00:00"),
        (4_107_542_399, "2100-02-28T23:59:59.000+0000", "28/02/00 23:59:59"),
        (4_107_542_400, "2100-03-01T00:00:00.000+0000", "01/03/00 00:00:00"),
    ],
)
def test_a_moment_in_json_and_in_words(at: int, in_json: str, in_words: str) -> None:
    assert (moment(at), stamp(at)) == (in_json, in_words)


def test_json_has_milliseconds() -> None:
    assert moment(1_700_000_040.25) == "2023-11-14T22:14:00.250+0000"
    assert moment(0.999_9) == "1970-01-01T00:00:00.999+0000"

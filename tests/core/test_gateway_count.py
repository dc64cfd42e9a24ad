"""How many gateway processes there are, by the machine's cores or by what was asked for."""

from __future__ import annotations

import pytest

from penstock.core.servers.gateway_count import gateways_for


@pytest.mark.parametrize(
    ("cores", "count"),
    [
        (0.5, 1),
        (1, 1),
        (2, 1),
        (3.9, 1),
        (4, 1),  # one for every four cores
        (7.9, 1),
        (8, 2),
        (16, 4),
        (32, 8),
        (192, 8),  # more were never measured
    ],
)
def test_without_a_wish_the_cores_decide(cores: float, count: int) -> None:
    assert gateways_for(cores, 0) == count


def test_who_asks_for_a_number_gets_it() -> None:
    assert gateways_for(1, 4) == 4
    assert gateways_for(64, 1) == 1

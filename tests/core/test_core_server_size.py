"""`core/servers/server_size.py`: gateways by cores, connections by open files, or what was asked
for.
"""

from __future__ import annotations

import pytest

from penstock.core.servers.server_size import connections_for, gateways_for


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


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [
        (None, 10_000),
        (1_048_576, 10_000),
        (20_000, 10_000),
        (10_000, 7_500),
        (1024, 768),
        (384, 288),
        (256, 160),
        (112, 16),
        (100, 16),
        (0, 16),
    ],
)
def test_clients_get_what_a_reserve_for_the_server_itself_leaves(
    descriptors: int | None, connections: int
) -> None:
    """A quarter is the server's, and never less than 96; 16 clients may come in any case."""
    assert connections_for(descriptors, 10_000) == connections


def test_a_smaller_wish_stays() -> None:
    assert connections_for(1_048_576, 50) == 50

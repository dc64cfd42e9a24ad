"""How many connections the limit on open files leaves."""

from __future__ import annotations

import pytest

from penstock.core.request.body_budget import connections_for


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

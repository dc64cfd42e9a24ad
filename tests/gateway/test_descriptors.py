"""How many connections the limit on open files leaves."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from penstock.gateway.descriptors import CONNECTIONS_MIN, RESERVE_MIN, connections_for


@pytest.mark.parametrize(
    ("limit", "connections"),
    [
        (resource.RLIM_INFINITY, 10_000),
        (1_048_576, 10_000),
        (20_000, 10_000),
        (10_000, 7_500),
        (1024, 768),
        (256, 256 - RESERVE_MIN),
        (100, CONNECTIONS_MIN),
    ],
)
def test_clients_get_what_a_reserve_for_the_server_itself_leaves(
    limit: int, connections: int
) -> None:
    assert connections_for(limit, 10_000) == connections


def test_a_smaller_wish_stays() -> None:
    assert connections_for(1_048_576, 50) == 50


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 300));"
        "from penstock.gateway.descriptors import limit_now, raise_limit;"
        "print(limit_now(), raise_limit(), limit_now())"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert printed.stdout.split() == [b"100", b"300", b"300"]

"""Which requests a shadow variant gets copies of: a share of them, within bounds."""

from __future__ import annotations

import pytest

from penstock.core.request.mirroring import (
    IN_SESSION,
    MIRRORED,
    NOT_SAMPLED,
    TOO_MANY,
    TOO_MANY_BYTES,
    MirrorGate,
    MirrorSpec,
)

SPEC = MirrorSpec(count_max=2, bytes_max=100)


def ask(gate: MirrorGate, body_bytes: int = 10, *, share: float = 1.0, draw: float = 0.5) -> str:
    found = gate.admit(share, draw, body_bytes, in_session=False)
    gate.check_invariants()
    return found


@pytest.mark.parametrize(
    ("share", "draw", "expected"),
    [
        (0.0, 0.0, NOT_SAMPLED),
        (0.25, 0.0, MIRRORED),
        (0.25, 0.2499, MIRRORED),
        (0.25, 0.25, NOT_SAMPLED),
        (1.0, 0.9999, MIRRORED),
    ],
)
def test_the_share_of_the_requests_is_copied(share: float, draw: float, expected: str) -> None:
    assert ask(MirrorGate(SPEC), share=share, draw=draw) == expected


def test_a_request_of_a_session_is_counted_as_such_where_it_was_sampled() -> None:
    gate = MirrorGate(SPEC)
    assert gate.admit(0.25, 0.0, 10, in_session=True) == IN_SESSION
    assert gate.admit(0.25, 0.5, 10, in_session=True) == NOT_SAMPLED
    assert gate.snapshot() == {"in_flight": 0, "bytes": 0}


def test_the_number_under_way_is_bounded() -> None:
    gate = MirrorGate(SPEC)
    assert [ask(gate), ask(gate), ask(gate)] == [MIRRORED, MIRRORED, TOO_MANY]
    gate.release(10)
    assert ask(gate) == MIRRORED
    assert gate.snapshot() == {"in_flight": 2, "bytes": 20}


def test_the_bytes_under_way_are_bounded() -> None:
    gate = MirrorGate(SPEC)
    assert ask(gate, 101) == TOO_MANY_BYTES
    assert [ask(gate, 60), ask(gate, 41), ask(gate, 40)] == [MIRRORED, TOO_MANY_BYTES, MIRRORED]
    for size in (60, 40):
        gate.release(size)
        gate.check_invariants()
    assert ask(gate, 100) == MIRRORED
    assert gate.snapshot() == {"in_flight": 1, "bytes": 100}

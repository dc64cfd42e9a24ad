"""Every parser that a stranger reaches takes time and memory in proportion to what it is given.

Sizes sixteen times apart, the processor time of the thread, the best of several calls: a quadratic
parser takes 256 times as long for the larger one and a linear one 16 times, on any machine. What is
below a millisecond is not judged: no constant factor makes that a danger.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

import pytest
from bench.cost_per_byte import GROWTH, SLOPE_MAX, best_s, peak_bytes
from bench.hostile_inputs import KIB, MIB, Attack, attacks

#: Enough for a quadratic parser to show itself; all of it together takes seconds.
BYTES_MAX = 64 * KIB
JUDGED_S = 0.001
#: Of each byte; two-byte lists of JSON take 32.
MEMORY_FACTOR_MAX = 128
MEMORY_FREE = 24 * MIB
ATTACKS = list(attacks())


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """As in the server, collections do not walk what lives for ever (the service models)."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def slope_of(attack: Attack, small: bytes, large: bytes, repetitions: int) -> float:
    small_s, large_s = (best_s(attack, data, repetitions)[0] for data in (small, large))
    if large_s < JUDGED_S:
        return 0.0
    return math.log(large_s / small_s) / math.log(len(large) / len(small))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
async def test_time_and_memory_grow_with_the_input_and_no_faster(attack: Attack) -> None:
    size = min(attack.bytes_max, BYTES_MAX)
    small, large = attack.make(size // GROWTH), attack.make(size)
    if len(large) > 4 * len(small):  # what is zipped may not grow at all
        slope = slope_of(attack, small, large, 2)
        if slope >= SLOPE_MAX:  # perhaps something came in between
            slope = slope_of(attack, small, large, 8)
        assert slope < SLOPE_MAX
    assert peak_bytes(attack, large) <= MEMORY_FACTOR_MAX * len(large) + MEMORY_FREE


def test_a_quadratic_parser_would_be_noticed() -> None:
    def run(data: bytes) -> None:
        for end in range(0, len(data), 64):
            sum(data[:end])

    attack = Attack("none", "quadratic", bytes, run, BYTES_MAX)
    assert slope_of(attack, bytes(BYTES_MAX // GROWTH), bytes(BYTES_MAX), 1) > SLOPE_MAX


def test_every_parser_is_attacked_in_several_shapes() -> None:
    shapes: dict[str, int] = {}
    for attack in ATTACKS:
        shapes[attack.parser] = shapes.get(attack.parser, 0) + 1
    assert len(shapes) >= 20
    assert all(count >= 2 for count in shapes.values())

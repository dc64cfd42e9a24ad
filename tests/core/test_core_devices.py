"""Which accelerators an instance gets."""

from __future__ import annotations

import pytest

from penstock.core.machine.devices import choose_devices


@pytest.mark.parametrize(
    ("count", "held", "visible", "chosen"),
    [
        (0, (), "", ()),
        (2, (), "", ("0", "1")),
        (1, ("0", "2"), "", ("1",)),
        (2, ("1",), "", ("0", "2")),
        (1, (), "3,5", ("3",)),
        (1, ("3",), "3, 5", ("5",)),
        (1, (), "GPU-8a56", ("GPU-8a56",)),
        (2, ("3",), "3,5", ("5",)),
    ],
)
def test_the_first_that_nobody_holds(
    count: int, held: tuple[str, ...], visible: str, chosen: tuple[str, ...]
) -> None:
    assert choose_devices(count, held, visible) == chosen

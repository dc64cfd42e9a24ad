"""`core/residency/warm.py`: a model is loaded ahead of its calls only into memory that is free."""

from __future__ import annotations

from penstock.core.residency.spec import Footprint
from penstock.core.residency.warm import fits

FREE = Footprint(host_bytes=100, accelerator_bytes=10)


def test_what_a_model_took_before_decides_and_not_the_others() -> None:
    large = [Footprint(host_bytes=200)]
    assert fits(FREE, Footprint(host_bytes=100, accelerator_bytes=10), large)
    assert not fits(FREE, Footprint(host_bytes=101), [])
    assert not fits(FREE, Footprint(accelerator_bytes=11), [])


def test_one_that_was_never_loaded_is_taken_to_be_as_large_as_the_largest_of_the_others() -> None:
    others = [Footprint(host_bytes=100), Footprint(host_bytes=1, accelerator_bytes=10)]
    assert fits(FREE, None, others)
    assert not fits(FREE, None, [*others, Footprint(host_bytes=101)])
    assert not fits(FREE, None, [*others, Footprint(accelerator_bytes=11)])


def test_the_first_one_is_loaded_unless_the_budget_is_overdrawn() -> None:
    assert fits(FREE, None, [])
    assert fits(Footprint(), None, [])
    assert not fits(Footprint(host_bytes=-1), None, [])

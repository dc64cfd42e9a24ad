"""Other ways to serve the same models, in instances and money that can be counted by hand."""

from __future__ import annotations

import pytest

from penstock.core.cost.compared import (
    AS_CALLED,
    FRACTIONS,
    ONE_EACH,
    RESIDENT,
    ComparisonSpec,
    TypeOffer,
    bins,
    compared,
    of_usage,
)
from penstock.core.cost.report import InstanceUsage, ModelUsage
from penstock.errors import CallerError

SHARED = TypeOffer(name="large", memory_bytes=1000, price_per_hour=1.0)
SMALL = TypeOffer(name="small", memory_bytes=100, price_per_hour=0.25)


def spec(**fields: object) -> ComparisonSpec:
    return ComparisonSpec(shared=SHARED, offers=(SMALL,), **fields)  # type: ignore[arg-type]


def test_four_ways_for_twelve_models_alone_and_in_three_replicas() -> None:
    """Eleven models of 60 bytes and one of 220, on instances of 1000 bytes for 1 $.

    One endpoint each: eleven small types and a large one. Fractions: 220 and half as much again are
    330 bytes each, three to an instance. Packed up to 800 bytes: 220 + 9 x 60, then 2 x 60.
    """
    sizes = {f"m{at}": 60 for at in range(11)} | {"big": 220}
    found = compared(sizes, spec(), shared_per_hour=0.5, shared_instances=0.5)
    assert [(each.name, each.replicas) for each in found] == [
        (name, replicas)
        for replicas in (1, 3)
        for name in (ONE_EACH, FRACTIONS, RESIDENT, AS_CALLED)
    ]
    assert [(each.instances, each.dollars_per_hour) for each in found] == [
        (12, 3.75),
        (4, 4.0),
        (2, 2.0),
        (0.5, 0.5),
        (36, 11.25),
        (12, 12.0),
        (6, 6.0),
        (1.5, 1.5),
    ]
    assert [round(each.saves, 4) for each in found[:4]] == [0.0, -0.0667, 0.4667, 0.8667]
    assert [round(each.saves_fractions, 4) for each in found[:4]] == [0.0625, 0.0, 0.5, 0.875]
    assert [each.models_per_instance for each in found[:4]] == [1, 3, 6, 24]


def test_replicas_are_compared_with_one_endpoint_each_that_has_none_as_well() -> None:
    """Three copies of everything, shared, for less than one of everything apart."""
    found = compared({f"m{at}": 10 for at in range(12)}, spec(replicas=(3,)))
    assert [(each.name, each.saves_single) for each in found] == [
        (ONE_EACH, -2.0),
        (FRACTIONS, 0.0),
        (RESIDENT, 0.0),
    ]


def test_a_model_that_fits_no_type_is_an_error_that_names_it() -> None:
    with pytest.raises(CallerError) as caught:
        compared({"huge": 1001}, spec())
    assert (caught.value.code, "huge" in caught.value.message) == ("model-too-large", True)


def test_packing_is_first_fit_with_the_largest_first() -> None:
    assert bins([3, 3, 2, 2], 5) == 2
    assert bins([4, 4, 4], 5) == 3
    assert bins([7, 1], 5) == 2
    assert bins([], 5) == 0


def used(model: str, peak: int, *, kind: TypeOffer, name: str, held_s: float) -> InstanceUsage:
    return InstanceUsage(
        endpoint="e",
        instance_id=name,
        instance_type=kind.name,
        price_per_hour=kind.price_per_hour,
        held_s=held_s,
        cores=1.0,
        memory_bytes=kind.memory_bytes,
        models=(
            ModelUsage(
                model=model, resident_s=1.0, resident_byte_s=1.0, compute_s=0.0, requests=0,
                bytes_peak=peak,
            ),
        ),
    )  # fmt: skip


def test_instances_of_a_report_are_themselves_one_of_the_ways() -> None:
    """Held for two hours and for one: an instance and a half on average. The dearest type is the
    one that is shared; a model's memory is the most that it ever took."""
    instances = [
        used("a", 50, kind=SHARED, name="i-1", held_s=7200.0),
        used("a", 90, kind=SMALL, name="i-2", held_s=3600.0),
    ]
    found = of_usage(instances, [], replicas=(1,))
    assert [(each.name, each.instances, each.dollars_per_hour) for each in found] == [
        (ONE_EACH, 1, 1.0),
        (FRACTIONS, 1, 1.0),
        (RESIDENT, 1, 1.0),
        (AS_CALLED, 1.5, 1.125),
    ]
    assert of_usage(instances, [SMALL], replicas=(1,))[0].dollars_per_hour == 0.25


def test_nothing_is_compared_with_nothing() -> None:
    assert compared({}, spec()) == []
    assert of_usage([], []) == []

"""Who pays what of shared instances: all of it is paid, and by whoever caused it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cost.report import (
    Cost,
    InstanceUsage,
    ModelUsage,
    divided,
    report,
    tenants_by,
    usage_from_dict,
)
from penstock.errors import CallerError


def usage(model: str, **figures: float) -> ModelUsage:
    nothing: dict[str, float] = {
        "resident_s": 0.0, "resident_byte_s": 0.0, "compute_s": 0.0, "requests": 0,
    }  # fmt: skip
    return ModelUsage(model=model, **(nothing | figures))  # type: ignore[arg-type]


def instance(*models: ModelUsage, name: str = "i-1", endpoint: str = "e") -> InstanceUsage:
    """Costs 1 $; has 100,000 byte seconds and 2,000 core seconds."""
    return InstanceUsage(
        endpoint=endpoint,
        instance_id=name,
        instance_type="ml.local.medium",
        price_per_hour=3.6,
        held_s=1000.0,
        cores=2.0,
        memory_bytes=100,
        models=models,
    )


BUSY = usage(
    "a-1.tar.gz", resident_s=1000.0, resident_byte_s=40_000.0, compute_s=100.0, requests=50,
    loads=1, bytes_peak=40,
)  # fmt: skip
LOADED_FOR_NOTHING = usage(
    "b", resident_s=500.0, resident_byte_s=10_000.0, loads=5, load_s=100.0, bytes_peak=20
)


def test_a_price_is_used_as_far_as_the_scarcer_of_memory_and_cores() -> None:
    """Memory is half used, cores a tenth: half of the dollar, in the ratio of 5 to 1. The other
    half is headroom, by memory held."""
    busy, idle = divided(instance(BUSY, LOADED_FOR_NOTHING))
    assert dataclasses.asdict(busy) == pytest.approx(
        {
            # half of the cores' twelfth, and a tenth of its memory's rent of a third
            "serving": 1 / 24 + 1 / 30,
            "cold_start": 0.0,
            "idle": 0.3,
            "headroom": 0.4,
        }
    )
    assert dataclasses.asdict(idle) == pytest.approx(
        {"serving": 0.0, "cold_start": 1 / 24, "idle": 1 / 12, "headroom": 0.1}
    )


def test_whoever_is_loaded_again_and_again_pays_for_it() -> None:
    once = usage("a", resident_s=10.0, resident_byte_s=100.0, loads=1, load_s=1.0)
    often = usage("b", resident_s=10.0, resident_byte_s=100.0, loads=9, load_s=9.0)
    costs = divided(instance(once, often))
    assert costs[1].cold_start == pytest.approx(9 * costs[0].cold_start)
    assert costs[0].idle == pytest.approx(costs[1].idle)


def test_an_instance_without_models_is_nobodys() -> None:
    found = report([instance(), instance(BUSY, name="i-2")], tenants_by())
    assert (found.dollars, found.unassigned) == (2.0, 1.0)
    assert sum(line.cost.dollars for line in found.models) == pytest.approx(1.0)


def test_models_that_took_nothing_share_what_was_kept_for_them() -> None:
    costs = divided(instance(usage("a"), usage("b")))
    assert costs == [Cost(headroom=0.5), Cost(headroom=0.5)]


def test_a_model_on_two_instances_is_one_line_and_models_of_a_tenant_are_one() -> None:
    second = instance(dataclasses.replace(BUSY, bytes_peak=30), name="i-2")
    other = instance(usage("a-2", requests=1, resident_byte_s=1.0), name="i-3", endpoint="f")
    found = report([instance(BUSY), second, other], tenants_by())
    assert [(line.endpoint, line.name, line.requests) for line in found.models] == [
        ("e", "a-1.tar.gz", 100),
        ("f", "a-2", 1),
    ]
    assert found.models[0].bytes_peak == 40
    (tenant,) = found.tenants
    assert (tenant.name, tenant.models, tenant.requests, tenant.bytes_peak) == ("a", 2, 101, 40)
    assert tenant.cost.dollars == pytest.approx(3.0)
    assert tenant.dollars_per_request == pytest.approx(3.0 / 101)


def test_figures_of_one_model_are_added_up_and_its_peak_is_the_largest() -> None:
    """Of a tenant the peak is the sum: its models may be loaded together."""
    less = dataclasses.replace(BUSY, loads=3, bytes_peak=30)
    other = usage("a-2", requests=7, bytes_peak=5)
    found = report([instance(BUSY), instance(less, other, name="i-2")], tenants_by())
    model = next(line for line in found.models if line.name == BUSY.model)
    assert (model.models, model.requests, model.loads, model.bytes_peak) == (1, 100, 4, 40)
    (tenant,) = found.tenants
    assert (tenant.name, tenant.endpoint, tenant.models) == ("a", "", 2)
    assert (tenant.requests, tenant.loads, tenant.bytes_peak) == (107, 4, 45)


def test_hours_are_those_of_all_instances() -> None:
    assert report([instance(), instance(name="i-2")], tenants_by()).hours == 2000.0 / 3600.0


def test_nothing_answered_has_no_price_per_request() -> None:
    found = report([instance(LOADED_FOR_NOTHING)], tenants_by())
    assert found.models[0].dollars_per_request is None


def test_lines_are_in_the_order_of_their_cost_then_of_their_names() -> None:
    found = report([instance(usage("c"), usage("b"), BUSY)], tenants_by())
    assert [line.name for line in found.models] == ["a-1.tar.gz", "b", "c"]


def test_parts_measured_larger_than_their_whole_are_the_whole() -> None:
    """Memory of a model is measured apart from that of its instance."""
    over = usage("a", resident_s=1.0, resident_byte_s=300_000.0, compute_s=5000.0, requests=1)
    (cost,) = divided(instance(over))
    assert cost.dollars == pytest.approx(1.0)
    assert cost.headroom == 0.0


@pytest.mark.parametrize(
    ("name", "tenant"),
    [
        ("acme/embed.tar.gz", "acme"),
        ("acme-17.tar.gz", "acme"),
        ("acme-17/x", "acme"),
        ("acme.tar.gz", "acme"),
        ("acme.onnx", "acme"),
        ("-x", "-x"),
    ],
)
def test_a_tenant_is_what_stands_before_the_first_slash_or_dash(name: str, tenant: str) -> None:
    assert tenants_by()(name) == tenant


def test_other_characters_and_more_parts_may_tell_it() -> None:
    assert tenants_by(parts=2)("customer-017-fr.tar.gz") == "customer-017"
    assert tenants_by(parts=2)("customer-017.tar.gz") == "customer-017"
    assert tenants_by("/", parts=2)("eu/acme-1/embed.tar.gz") == "eu/acme-1"
    assert tenants_by("")("acme-1.zip") == "acme-1"


@pytest.mark.parametrize("held_s", [-1.0, float("nan"), float("inf")])
def test_figures_that_cannot_be_are_refused(held_s: float) -> None:
    with pytest.raises(CallerError) as caught:
        report([dataclasses.replace(instance(BUSY), held_s=held_s)], tenants_by())
    assert (caught.value.code, "held_s" in caught.value.message) == ("usage-invalid", True)
    wrong = dataclasses.replace(BUSY, compute_s=held_s)
    with pytest.raises(CallerError, match="compute_s of"):
        report([instance(wrong)], tenants_by())
    with pytest.raises(CallerError, match="cores"):
        report([dataclasses.replace(instance(BUSY), cores=0.0)], tenants_by())


amounts = st.floats(0.0, 1e6)
usages = st.builds(
    lambda model, resident, memory, compute, load, requests: usage(
        f"m-{model}", resident_s=resident, resident_byte_s=memory, compute_s=compute,
        load_s=load, requests=requests,
    ),
    st.integers(0, 3), amounts, amounts, amounts, amounts, st.integers(0, 9),
)  # fmt: skip


@given(st.lists(st.lists(usages, max_size=4), max_size=4))
def test_every_dollar_is_paid_once_and_nobody_is_paid(groups: list[list[ModelUsage]]) -> None:
    instances = [instance(*group, name=f"i-{at}") for at, group in enumerate(groups)]
    found = report(instances, tenants_by())
    for lines in (found.models, found.tenants):
        paid = sum(line.cost.dollars for line in lines) + found.unassigned
        assert paid == pytest.approx(found.dollars)
        for line in lines:
            assert min(dataclasses.astuple(line.cost)) >= -1e-12


# Usage as JSON: what was written is read back, and nothing is taken for what it is not.


MODEL = ModelUsage(
    model="a.tar.gz", resident_s=9.0, resident_byte_s=90.0, compute_s=1.5, requests=3, loads=1,
    load_s=0.5, bytes_peak=10,
)  # fmt: skip
INSTANCE = InstanceUsage(
    endpoint="e", instance_id="i-1", instance_type="ml.local.small", price_per_hour=0.02,
    held_s=10.0, cores=1.0, memory_bytes=100, models=(MODEL,),
)  # fmt: skip


def written() -> dict[str, Any]:
    return json.loads(json.dumps({"instances": [dataclasses.asdict(INSTANCE)]}))


def test_what_was_written_is_read_back() -> None:
    assert usage_from_dict(written()) == (INSTANCE,)
    assert usage_from_dict({"instances": []}) == ()


def test_an_instance_may_have_no_models() -> None:
    given = written()
    del given["instances"][0]["models"]
    assert usage_from_dict(given) == (dataclasses.replace(INSTANCE, models=()),)


@pytest.mark.parametrize(
    ("name", "value"),
    [("held_s", "10"), ("held_s", -1), ("cores", None), ("endpoint", 7), ("more", 1),
     ("models", [{"model": "a"}]), ("models", [7]), ("models", 7)],
)  # fmt: skip
def test_what_is_no_usage_is_refused_with_a_remedy(name: str, value: object) -> None:
    given = written()
    given["instances"][0][name] = value
    with pytest.raises(CallerError) as caught:
        usage_from_dict(given)
    assert caught.value.code == "usage-invalid"
    assert caught.value.hint


@pytest.mark.parametrize("given", [None, [], {}, {"instances": 7}, {"instances": [None]}])
def test_anything_else_is_refused_as_well(given: object) -> None:
    with pytest.raises(CallerError):
        usage_from_dict(given)

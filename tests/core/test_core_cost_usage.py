"""Usage as JSON: what was written is read back, and nothing is taken for what it is not."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from penstock.core.cost.report import InstanceUsage, ModelUsage, usage_from_dict
from penstock.errors import CallerError

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

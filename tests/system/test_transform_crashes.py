"""Records that end the instance they are given to: found over its deaths, refused with the reason,
and all others written.

The model divides the smallest 64-bit number by what it is given; by -1, x86 processors raise a
fault (`test_native_crash.py`), and the process dies of SIGFPE within a batch of many rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.kit.transform import TransformSite, transform_site
from tests.system.test_native_crash import divides, needs_x86

pytestmark = [pytest.mark.system, pytest.mark.timeout(500), needs_x86]

SKIP = "PENSTOCK_TRANSFORM_REFUSED_RECORDS"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformSite]:
    top = tmp_path_factory.mktemp("crashes")
    with transform_site(top) as made:
        made.model("divides", divides(top / "divides"))
        yield made


def quotients(numbers: list[int]) -> list[str]:
    return [str(-(2**63) // number) for number in numbers if number != -1]


def test_a_record_that_crashes_the_native_library_is_refused_and_the_others_written(
    site: TransformSite,
) -> None:
    """Among 600 rows that share batches; another object has none of the kind."""
    powers = [2 ** (1 + at % 40) for at in range(600)]
    poisoned = list(powers)
    poisoned[423] = -1
    site.put("in/bad.csv", [str(one) for one in poisoned])
    site.put("in/good.csv", [str(one) for one in powers])
    site.begin("narrowed", "divides", site.uri("in"), Environment={SKIP: "skip:1"})
    told = site.ended("narrowed", seconds=390)
    assert told["TransformJobStatus"] == "Completed", told
    assert told["PenstockProgress"]["RefusedRecords"] == 1
    outputs = site.outputs("narrowed")
    assert sorted(outputs) == ["bad.csv.errors", "bad.csv.out", "good.csv.out"]
    assert outputs["good.csv.out"].splitlines() == quotients(powers)
    assert outputs["bad.csv.out"].splitlines() == quotients(poisoned)
    [refused] = [json.loads(line) for line in outputs["bad.csv.errors"].splitlines()]
    assert refused["record"] == 423
    assert refused["error"]["code"] == "model-worker-died"
    assert "SIGFPE" in refused["error"]["message"], refused

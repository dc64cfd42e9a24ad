"""What a container says of batch transforms decides what the job has left open, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.container import (
    ContainerSays,
    TransformOptions,
    completed,
    container_says,
    options_of,
)
from penstock.core.jobs.spec import (
    MIB,
    MULTI_RECORD,
    SINGLE_RECORD,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.errors import CallerError

OPEN = ("strategy", "payload_bytes_max")
WHOLE = {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 2}


def spec(**fields: Any) -> TransformSpec:
    return TransformSpec(
        job="j",
        model=ModelSource(model_name="m"),
        instance_type="ml.local",
        instance_count=1,
        input=TransformInput(uri="s3://b/in"),
        output=TransformOutput(uri="s3://b/out"),
        **fields,
    )


def test_what_the_job_left_open_is_the_containers_to_say() -> None:
    said = completed(spec(unset=OPEN), container_says(WHOLE))
    assert (said.strategy, said.payload_bytes_max, said.concurrency_max) == (
        SINGLE_RECORD, 2 * MIB, 8,
    )  # fmt: skip


def test_what_the_job_asked_for_holds() -> None:
    asked = spec(concurrency_max=3)
    assert completed(asked, container_says(WHOLE)) == asked


@pytest.mark.parametrize("unset", OPEN)
def test_each_is_open_by_itself(unset: str) -> None:
    said = completed(spec(unset=(unset,), concurrency_max=1), container_says(WHOLE))
    assert (said.strategy == SINGLE_RECORD) == (unset == "strategy")
    assert (said.payload_bytes_max == 2 * MIB) == (unset == "payload_bytes_max")


def test_a_container_that_says_nothing_changes_nothing() -> None:
    assert completed(spec(unset=OPEN), container_says({})) == spec(unset=OPEN)


def test_requests_at_once_together_have_no_more_than_a_job_may_ask_for() -> None:
    says = ContainerSays(concurrency_max=50)
    assert completed(spec(), says).concurrency_max == 16  # of 6 MB
    assert completed(spec(payload_bytes_max=100 * MIB), says).concurrency_max == 1
    assert completed(spec(payload_bytes_max=0), says).concurrency_max == 50
    assert completed(spec(payload_bytes_max=200 * MIB), says).concurrency_max == 1


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"BatchStrategy": "MultiRecord"}, ContainerSays(strategy=MULTI_RECORD)),
        ({"BatchStrategy": "MULTI_RECORD"}, ContainerSays(strategy=MULTI_RECORD)),
        ({"BatchStrategy": "all"}, ContainerSays()),
        ({"BatchStrategy": ["SINGLE_RECORD"]}, ContainerSays()),
        ({"MaxPayloadInMB": 0}, ContainerSays(payload_bytes_max=0)),
        ({"MaxPayloadInMB": 100}, ContainerSays(payload_bytes_max=100 * MIB)),
        ({"MaxPayloadInMB": 101}, ContainerSays()),
        ({"MaxPayloadInMB": -1}, ContainerSays()),
        ({"MaxPayloadInMB": 1.5}, ContainerSays()),
        ({"MaxConcurrentTransforms": 0}, ContainerSays()),
        ({"MaxConcurrentTransforms": True}, ContainerSays()),
        ({"MaxConcurrentTransforms": "4"}, ContainerSays()),
    ],
)
def test_a_value_that_makes_no_sense_is_as_none(told: dict[str, Any], says: ContainerSays) -> None:
    assert container_says(told) == says


# What a job asks for in its Environment, and what is no answer to it.


def test_without_any_the_environment_is_the_models() -> None:
    assert options_of({"A": "1"}) == (TransformOptions(), {"A": "1"})


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("REFUSED_RECORDS", "fail", TransformOptions(refused_max=0)),
        ("REFUSED_RECORDS", "skip", TransformOptions(refused_max=None)),
        ("REFUSED_RECORDS", "skip:12", TransformOptions(refused_max=12)),
        ("REFUSED_RECORDS", "skip:" + 15 * "9", TransformOptions(refused_max=10**15 - 1)),
        ("PRIORITY", "-100", TransformOptions(priority=-100)),
        ("PRIORITY", "100", TransformOptions(priority=100)),
        ("CORES_MAX", "3", TransformOptions(cores_max=3)),
        ("CORES_MAX", "9999", TransformOptions(cores_max=9999)),
        ("COLUMNS", " left , right", TransformOptions(columns=("left", "right"))),
    ],
)
def test_an_option_is_taken_out(name: str, text: str, options: TransformOptions) -> None:
    environment = {f"PENSTOCK_TRANSFORM_{name}": text, "A": "1"}
    assert options_of(environment) == (options, {"A": "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("REFUSED_RECORDS", "skip:"),
        ("REFUSED_RECORDS", "skip:-1"),
        ("REFUSED_RECORDS", "fail:1"),
        ("REFUSED_RECORDS", "skip:9999999999999999"),
        ("PRIORITY", "101"),
        ("PRIORITY", "-101"),
        ("PRIORITY", "1.5"),
        ("PRIORITY", "--1"),
        ("PRIORITY", "²"),
        ("PRIORITY", ""),
        ("CORES_MAX", "-1"),
        ("CORES_MAX", "10000"),
        ("CORES_MAX", "1.5"),
        ("CORES_MAX", "all"),
        ("COLUMNS", " , "),
        ("COLUMNS", "a,a"),
        ("REFUSED", "fail"),
    ],
)
def test_what_is_no_answer_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(CallerError) as told:
        options_of({f"PENSTOCK_TRANSFORM_{name}": text})
    assert told.value.code == "transform-option"
    assert f"PENSTOCK_TRANSFORM_{name}" in told.value.message
    assert told.value.hint

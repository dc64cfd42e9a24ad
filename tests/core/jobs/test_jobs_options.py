"""What a job asks for in its Environment, and what is no answer to it."""

from __future__ import annotations

import pytest

from penstock.core.jobs.container import TransformOptions, options_of
from penstock.errors import CallerError


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

"""A variant's environment may name a service level for its copies."""

from __future__ import annotations

import pytest

from penstock.artifacts.description.description import Batching
from penstock.errors import CallerError
from penstock.instance.loading.described import batch_spec
from penstock.instance.loading.load import served_with


def test_the_environment_names_the_level_in_milliseconds() -> None:
    batching = served_with(Batching(rows_max=8), {"PENSTOCK_LATENCY_P99_MS": "12.5"})
    assert batching == Batching(rows_max=8, latency_s_p99_max=0.0125)
    assert batch_spec(batching, 2).latency_s_p99_max == 0.0125


def test_it_overrules_the_artifact_and_says_nothing_by_default() -> None:
    batching = Batching(latency_s_p99_max=0.5)
    assert served_with(batching, {}) == batching
    assert served_with(batching, {"PENSTOCK_LATENCY_P99_MS": "10"}).latency_s_p99_max == 0.01


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan", "inf"])
def test_anything_else_is_the_callers_mistake(text: str) -> None:
    with pytest.raises(CallerError) as caught:
        served_with(Batching(), {"PENSTOCK_LATENCY_P99_MS": text})
    assert caught.value.code == "environment-invalid"

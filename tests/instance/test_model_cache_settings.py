"""What a model's Environment says of its host's cache, and what of that has no effect any more."""

from __future__ import annotations

import pytest

from penstock.artifacts.sources.source import ArtifactSource
from penstock.core.residency import Footprint
from penstock.errors import CallerError
from penstock.instance.loading.load import LoadCall
from penstock.instance.models.hosted import loads_at_start, residency_spec, retired_of


def call(**environment: str) -> LoadCall:
    return LoadCall(
        copy=1,
        endpoint="shop",
        variant="all",
        source=ArtifactSource(uri="file:///models/"),
        environment=environment,
        cores=2.0,
        memory_bytes_max=1000,
        accelerators=0,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
        network_isolated=False,
        batching={},
    )


def test_without_settings_a_minimum_residency_follows_from_what_a_load_costs() -> None:
    spec = residency_spec(call())
    assert (spec.residency_s_min, spec.budget.host_bytes, spec.loads_max) == (None, 720, 2)
    assert spec.budget_running == Footprint(host_bytes=760)


def test_a_minimum_residency_and_a_share_that_are_set_hold() -> None:
    environment = {
        "PENSTOCK_MODEL_RESIDENCY_SECONDS_MIN": "7.5",
        "PENSTOCK_MODEL_CACHE_SHARE": "0.5",
    }
    spec = residency_spec(call(**environment))
    assert (spec.residency_s_min, spec.budget.host_bytes) == (7.5, 450)


@pytest.mark.parametrize("policy", ["GDSF", "gdsf"])
def test_a_policy_that_there_is_no_more_is_taken_and_said_to_have_no_effect(policy: str) -> None:
    """Records of endpoints that were made with it load as before."""
    asked = call(PENSTOCK_MODEL_CACHE_POLICY=policy)
    assert residency_spec(asked) == residency_spec(call())
    assert retired_of(asked) == (
        "PENSTOCK_MODEL_CACHE_POLICY=GDSF has no effect any more: the model that was unused for "
        "longest is unloaded (LRU). Take the setting out of the model's Environment."
    )


@pytest.mark.parametrize("environment", [{}, {"PENSTOCK_MODEL_CACHE_POLICY": "lru"}])
def test_the_policy_that_there_is_needs_no_words(environment: dict[str, str]) -> None:
    assert residency_spec(call(**environment)) == residency_spec(call())
    assert retired_of(call(**environment)) == ""


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("PENSTOCK_MODEL_CACHE_POLICY", "LFU", "Give LRU."),
        ("PENSTOCK_MODEL_CACHE_SHARE", "2", "Give a number from 0.05 to 1."),
        ("PENSTOCK_MODEL_RESIDENCY_SECONDS_MIN", "soon", "Give a number from 0 to 86400."),
    ],
)
def test_a_value_that_can_not_be_is_refused_by_name(name: str, value: str, hint: str) -> None:
    with pytest.raises(CallerError) as caught:
        residency_spec(call(**{name: value}))
    assert caught.value.code == "environment-invalid"
    assert caught.value.message.startswith(name)
    assert caught.value.hint == hint


def test_models_are_loaded_at_the_start_where_the_environment_says_all() -> None:
    assert loads_at_start({"PENSTOCK_MODELS_AT_START": "all"})
    assert not loads_at_start({})
    with pytest.raises(CallerError, match="PENSTOCK_MODELS_AT_START is 'some'"):
        loads_at_start({"PENSTOCK_MODELS_AT_START": "some"})

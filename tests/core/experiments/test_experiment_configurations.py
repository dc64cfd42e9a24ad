"""`core/experiments/configurations.py`: what an experiment makes of an endpoint configuration."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.experiments.configurations import (
    DAY_S,
    changed,
    experiment_config,
    final_config,
    names_of,
    survivors,
    window,
)
from penstock.errors import CallerError


def variant(name: str, model: str, count: int = 1) -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": count},
        },
    }


def mode(percent: int = 40, shadow: str = "New") -> dict[str, Any]:
    sampled = {"ShadowModelVariantName": shadow, "SamplingPercentage": percent}
    return {"SourceModelVariantName": "Old", "ShadowModelVariants": [sampled]}


REQUEST: dict[str, Any] = {
    "Name": "try",
    "ModelVariants": [variant("Old", "old", 2), variant("New", "new")],
    "ShadowModeConfig": mode(),
}
BASE: dict[str, Any] = {
    "EndpointConfigName": "shop",
    "EnableNetworkIsolation": True,
    "ProductionVariants": [
        {
            "VariantName": "Old",
            "ModelName": "old",
            "InstancePools": [{"InstanceType": "ml.c5.large", "Priority": 1}],
            "InitialInstanceCount": 7,
            "InitialVariantWeight": 0.5,
            "RoutingConfig": {"RoutingStrategy": "RANDOM"},
        }
    ],
}


def made(name: str, model: str, count: int, weight: float) -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": count,
        "InitialVariantWeight": weight,
        "RoutingConfig": {"RoutingStrategy": "RANDOM"},
    }


def test_the_shadow_gets_its_share_and_what_else_the_endpoint_has_stays() -> None:
    """Isolation above all: without it an experiment would open a closed model."""
    assert experiment_config(BASE, REQUEST, "try-1") == {
        "EndpointConfigName": "try-1",
        "EnableNetworkIsolation": True,
        "ProductionVariants": [made("Old", "old", 2, 1.0)],
        "ShadowProductionVariants": [made("New", "new", 1, 0.4)],
    }
    assert BASE["EndpointConfigName"] == "shop"


@pytest.mark.parametrize(("percent", "weight"), [(0, 0.0), (100, 1.0)])
def test_none_or_all_of_the_requests_may_be_copied(percent: int, weight: float) -> None:
    config = experiment_config(BASE, REQUEST | {"ShadowModeConfig": mode(percent)}, "try-1")
    assert config["ShadowProductionVariants"] == [made("New", "new", 1, weight)]


def test_data_is_captured_where_a_place_is_given_and_only_while_it_runs() -> None:
    types = {"CsvContentTypes": ["text/csv"]}
    stored = REQUEST | {"DataStorageConfig": {"Destination": "s3://b/p", "ContentType": types}}
    assert experiment_config(BASE, stored, "try-1")["DataCaptureConfig"] == {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://b/p",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": types,
    }
    assert "DataCaptureConfig" not in final_config(BASE, stored, ("New", ""), None, "try-2")


@pytest.mark.parametrize(
    ("actions", "kept"),
    [
        ({"New": "Promote"}, ("New", "")),
        ({"Old": "Remove", "New": "Promote"}, ("New", "")),
        ({"New": "Remove"}, ("Old", "")),
        ({"Old": "Retain"}, ("Old", "")),
        ({"Old": "Retain", "New": "Retain"}, ("Old", "New")),
    ],
)
def test_what_stays_after_a_stop(actions: dict[str, str], kept: tuple[str, str]) -> None:
    assert survivors(REQUEST, actions) == kept


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ({"Old": "Retain", "New": "Promote"}, "one production variant must stay"),
        ({"Old": "Remove", "New": "Remove"}, "one production variant must stay"),
        ({"Old": "Remove"}, "one production variant must stay"),
        ({"Old": "Promote"}, "one production variant must stay"),
        ({"Third": "Remove"}, "names 'Third'"),
    ],
)
def test_a_stop_that_leaves_no_production_variant_or_two_is_refused(
    actions: dict[str, str], told: str
) -> None:
    with pytest.raises(CallerError, match=told):
        survivors(REQUEST, actions)


def test_the_promoted_variant_is_alone_and_desired_variants_say_on_what_it_runs() -> None:
    promoted = final_config(BASE, REQUEST, ("New", ""), None, "try-2")
    assert promoted == BASE | {
        "EndpointConfigName": "try-2",
        "ProductionVariants": [made("New", "new", 1, 1.0)],
    }
    desired = [variant("New", "new", 5)]
    larger = final_config(BASE, REQUEST, ("New", ""), desired, "try-2")
    assert larger["ProductionVariants"] == [made("New", "new", 5, 1.0)]
    both = [variant("Old", "old", 3), variant("New", "new", 4)]
    kept = final_config(BASE, REQUEST, ("Old", "New"), both, "try-2")
    assert kept["ProductionVariants"] == [made("Old", "old", 3, 1.0)]
    assert kept["ShadowProductionVariants"] == [made("New", "new", 4, 0.4)]


@pytest.mark.parametrize(
    "desired",
    [
        [variant("Old", "old")],
        [variant("New", "other")],
        [variant("New", "new"), variant("New", "new")],
        [variant("New", "new"), variant("Old", "old")],
    ],
)
def test_desired_variants_are_those_that_stay(desired: list[dict[str, Any]]) -> None:
    with pytest.raises(CallerError, match="DesiredModelVariants must be what is kept"):
        final_config(BASE, REQUEST, ("New", ""), desired, "try-2")


def test_what_stays_needs_an_instance() -> None:
    with pytest.raises(CallerError, match="'New': InstanceCount is 0"):
        final_config(BASE, REQUEST, ("New", ""), [variant("New", "new", 0)], "try-2")


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"ShadowModeConfig": mode(shadow="Third")}, "ModelVariants must be"),
        ({"ModelVariants": [variant("Old", "old")]}, "ModelVariants must be"),
        (
            {
                "ModelVariants": [variant("Old", "old"), variant("old", "new")],
                "ShadowModeConfig": mode(shadow="old"),
            },
            "ModelVariants must be",
        ),
        ({"ShadowModeConfig": mode(-1)}, "SamplingPercentage -1"),
        ({"ShadowModeConfig": mode(101)}, "SamplingPercentage 101"),
        ({"ModelVariants": [variant("Old", "old", 0), variant("New", "new")]}, "InstanceCount"),
    ],
)
def test_members_that_contradict_each_other_are_refused(members: dict[str, Any], told: str) -> None:
    with pytest.raises(CallerError, match=told):
        names_of(REQUEST | members)


def test_an_update_changes_shares_and_counts_but_no_variant_and_no_model() -> None:
    scheduled = REQUEST | {"Schedule": {"StartTime": 10.0, "EndTime": 20.0}}
    update = {"Schedule": {"EndTime": 30.0}, "ShadowModeConfig": mode(90), "Description": None}
    assert changed(scheduled, update) == scheduled | {
        "Schedule": {"StartTime": 10.0, "EndTime": 30.0},
        "ShadowModeConfig": mode(90),
    }
    with pytest.raises(CallerError, match="keeps its models"):
        changed(REQUEST, {"ModelVariants": [variant("Old", "old"), variant("New", "newer")]})
    third = {"ModelVariants": [variant("Old", "old"), variant("Third", "new")]}
    with pytest.raises(CallerError, match="keeps its variants"):
        changed(REQUEST, third | {"ShadowModeConfig": mode(shadow="Third")})


@pytest.mark.parametrize(
    ("schedule", "starts", "found"),
    [
        ({}, None, (100.0, 100.0 + 7 * DAY_S)),
        ({"StartTime": 200.0}, None, (200.0, 200.0 + 7 * DAY_S)),
        ({"StartTime": 50.0, "EndTime": 300.0}, None, (100.0, 300.0)),
        ({"EndTime": 100.0 + 30 * DAY_S}, None, (100.0, 100.0 + 30 * DAY_S)),
        ({"StartTime": 100.0 + 365 * DAY_S}, None, (100.0 + 365 * DAY_S, 100.0 + 372 * DAY_S)),
        ({"EndTime": 101.0}, 40.0, (40.0, 101.0)),
        ({"StartTime": 40.0, "EndTime": 101.0}, 40.0, (40.0, 101.0)),
    ],
)
def test_when_it_starts_and_ends(
    schedule: dict[str, float], starts: float | None, found: tuple[float, float]
) -> None:
    assert window(schedule, now=100.0, starts=starts) == found


@pytest.mark.parametrize(
    ("schedule", "starts", "told"),
    [
        ({"EndTime": 100.0}, None, "EndTime must be after"),
        ({"StartTime": 300.0, "EndTime": 300.0}, None, "EndTime must be after"),
        ({"EndTime": 99.0}, 40.0, "EndTime must be after"),
        ({"EndTime": 101.0 + 30 * DAY_S}, None, "at most 30 days"),
        ({"StartTime": 101.0 + 365 * DAY_S}, None, "more than a year ahead"),
        ({"StartTime": 41.0, "EndTime": 200.0}, 40.0, "StartTime can't change"),
    ],
)
def test_times_that_no_experiment_can_have_are_refused(
    schedule: dict[str, float], starts: float | None, told: str
) -> None:
    with pytest.raises(CallerError, match=told):
        window(schedule, now=100.0, starts=starts)

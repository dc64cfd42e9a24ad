"""Updates of inference components whose answers are compared, as unmodified boto3 asks for them: a
tag on the component, and the answers of both specifications decide. No caller loses a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.components import SMALL, ComponentSite
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server, penstock

pytestmark = pytest.mark.system

#: Scores that differ from model to model by what `off` says.
MODEL = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return json.dumps({{"score": json.loads(body)[1] * 0.001 + {off}}}), "application/json"
"""
ROLLOUT = "/admin/endpoints/shop/rollout"


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> ComponentSite:
    """Models `old`, `same` and `worse`, and the endpoint."""
    made = ComponentSite(empty_server, tmp_path)
    for name, off in (("old", 0.0), ("same", 0.001), ("worse", 0.5)):
        empty_server.model(name, python_model(tmp_path / name, MODEL.format(off=off)))
    made.endpoint()
    return made


def under_agreement(site: ComponentSite, words: str, copies: int) -> None:
    """Component `score` of model `old`, whose updates are held to these words."""
    site.component("score", "old", copies)
    arn = site.serves("score", copies=copies)["InferenceComponentArn"]
    site.client.add_tags(
        ResourceArn=arn, Tags=[{"Key": "penstock:agreement", "Value": f"{words} slower=0"}]
    )


def update(site: ComponentSite, to: str) -> None:
    """One copy at a time, with pauses that outlast any test."""
    site.client.update_inference_component(
        InferenceComponentName="score",
        Specification={"ModelName": to, "ComputeResourceRequirements": SMALL},
        DeploymentConfig={
            "RollingUpdatePolicy": {
                "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
                "WaitIntervalInSeconds": 3600,
            }
        },
    )


@contextmanager
def calls(site: ComponentSite) -> Iterator[Load]:
    """Every one of them is answered."""
    named = {"X-Amzn-SageMaker-Inference-Component": "score"}
    with Load(site.server.port, "/endpoints/shop/invocations", workers=2, headers=named) as load:
        yield load
    assert (set(load.statuses), load.broken) == ({200}, 0), load.errors


def story(site: ComponentSite) -> dict[str, Any]:
    return dict(site.server.get(f"{ROLLOUT}?component=score"))


def test_a_worse_one_goes_back_and_an_equal_one_takes_over_long_before_its_pauses_are_over(
    site: ComponentSite,
) -> None:
    under_agreement(site, "scores tolerance=0.01", 2)
    with calls(site):
        update(site, "worse")
        described = site.serves("score", copies=2)
        assert described["Specification"]["ModelName"] == "old"
        assert described["FailureReason"].startswith("the update went back: ")
        assert "answers disagree (sure to 99" in described["FailureReason"]
        assert story(site)["agreement"]["verdict"] == "worse"
        update(site, "same")
        described = site.serves("score", copies=2)
        assert described["Specification"]["ModelName"] == "same"
        assert "FailureReason" not in described
    told = story(site)
    assert told["agreement"]["verdict"] == "as-good"
    assert told["agreement"]["pairs"]["agree"] > 400
    assert told["agreement"]["pairs"]["differ"] == 0, "those of the other rollout are not its own"
    by_reason = {one["reason"]: one["detail"] for one in told["timeline"]}
    assert "answers disagree (sure to 99" in by_reason["goes-back"]
    assert "answers disagree (sure to 99" in by_reason["agreed"]


def test_of_one_copy_both_serve_until_it_is_sure_also_after_a_kill_of_the_server(
    site: ComponentSite,
) -> None:
    """So few requests are copied that nothing is ever sure, so an operator ends it."""
    under_agreement(site, "exact mirror=0.001", 1)

    def both_serve() -> bool:
        told = story(site)
        return bool(told["new"] and told["old"]["copies_ready"] == told["new"]["copies_ready"] == 1)

    with calls(site) as load:
        update(site, "same")
        wait_until(both_serve, "copies of both", 60)
        before = load.answered
        wait_until(lambda: load.answered > before + 200, "answers", 30)
        assert both_serve()
    site.server.kill()
    site.server.start()
    wait_until(both_serve, "copies of both, again", 60)
    show = ("rollout", "show", "shop", "--component", "score")
    shown = penstock(*show, server=site.server).stdout
    assert "undecided" in shown
    assert "old (revision 1, 1 copies ready)" in shown
    penstock("rollout", "promote", "shop", "--component", "score", server=site.server)
    described = site.serves("score", copies=1)
    assert described["Specification"]["ModelName"] == "same"
    told = json.loads(penstock(*show, "--json", server=site.server).stdout)
    assert [one["reason"] for one in told["timeline"]][-1] == "promoted"
    assert site.server.post(f"{ROLLOUT}/abort?component=score", b"")[0] == 409
    assert site.server.post(f"{ROLLOUT}/abort?component=none", b"")[0] == 404

"""A transform job takes what endpoints leave: it goes where one needs its room, comes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import up
from tests.kit.transform import ANSWER, GOOD, TransformSite

pytestmark = pytest.mark.system

#: Long enough for an endpoint to come meanwhile, wherever this runs.
SLOW = r"""
    import time

    def model_fn(folder):
        return None

    def transform_fn(model, body, content_type, accept):
        time.sleep(0.04)
        return body, accept
"""
WHOLE_MACHINE = "ml.local.machine"
LINES = 100


def test_an_endpoint_that_needs_the_whole_machine_gets_it_from_a_job(tmp_path: Path) -> None:
    """The job loses its instance and what was under way on it, and no record."""
    with up(tmp_path) as server:
        site = TransformSite(server, tmp_path / "data")
        site.model("slow", python_model(tmp_path / "slow", SLOW))
        lines = [f"{at},2,3,4" for at in range(LINES)]
        source = site.put("in/a.csv", lines)
        site.begin(
            "nightly", "slow", source, BatchStrategy="SingleRecord", MaxConcurrentTransforms=1
        )
        wait_until(
            lambda: site.describe("nightly")["PenstockProgress"]["Instances"],
            "the job's instance",
            60,
        )
        server.deploy("shop", model_files.affine(tmp_path / "affine"), instance_type=WHOLE_MACHINE)
        assert server.wait_in_service("shop")["EndpointStatus"] == "InService"
        assert site.describe("nightly")["TransformJobStatus"] == "InProgress"
        status, body = server.post(
            "/endpoints/shop/invocations", GOOD.encode(), {"Content-Type": "text/csv"}
        )
        assert (status, body.decode().strip()) == (200, ANSWER)
        server.client("sagemaker").delete_endpoint(EndpointName="shop")
        ended = site.ended("nightly")
        assert ended["TransformJobStatus"] == "Completed", ended["FailureReason"]
        assert site.outputs("nightly") == {"a.csv.out": "".join(f"{one}\n" for one in lines)}

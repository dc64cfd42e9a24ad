"""Transform jobs of a real server: what clients see, what is refused, and what lies there then."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server, penstock
from tests.kit.transform import ANSWER, BAD, GOOD, TransformSite, transform_site
from tests.system.test_clients import SCRIPTS, client_python, run

#: A job is a guest: on a machine that others use it takes what they leave.
pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

ACCOUNT = "arn:aws:sagemaker:us-east-1:123456789012"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformSite]:
    top = tmp_path_factory.mktemp("transform")
    (top / "settings.toml").write_text(f'[control.s3_local]\ndata = "{top / "data"}"\n')
    with transform_site(top, "--config", str(top / "settings.toml")) as made:
        made.put("good/a.csv", [GOOD] * 300)
        made.put("good/deep/b.csv", [GOOD] * 20)
        yield made


@pytest.mark.integration
@pytest.mark.parametrize("version", ["boto3-oldest", "boto3-newest"])
def test_boto3_creates_a_job_and_its_waiter_sees_the_end(site: TransformSite, version: str) -> None:
    name = f"waits-{version}"
    arguments = [site.server.url, "affine", site.uri("good"), site.uri(f"out/{name}"), name]
    script = str(SCRIPTS / "transform_waiter.py")
    seen = json.loads(run([client_python(version), script, *arguments], seconds=300))
    seen.pop("botocore")
    assert seen == {
        "arn": f"{ACCOUNT}:transform-job/{name}",
        "status": "Completed",
        "began_and_ended_in_order": True,
        "listed": [[name, "Completed"]],
        "tags": [{"Key": "team", "Value": "search"}],
    }
    assert site.outputs(name) == {
        "a.csv.out": f"{ANSWER}\n" * 300,
        "deep/b.csv.out": f"{ANSWER}\n" * 20,
    }


@pytest.mark.integration
def test_awscli_waits_for_jobs_that_ended_well_and_badly(site: TransformSite) -> None:
    """Its waiter looks once a minute, and for the first time at once."""
    python = client_python("awscli")
    keys = {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": site.server.url,
    }
    wait = ["sagemaker", "wait", "transform-job-completed-or-stopped", "--transform-job-name"]
    aws = [python, str(Path(python).with_name("aws"))]
    site.begin("cli-good", "affine", site.uri("good"))
    assert site.ended("cli-good")["TransformJobStatus"] == "Completed"
    assert run([*aws, *wait, "cli-good"], **keys) == ""
    site.begin("cli-bad", "affine", site.put("bad/a.csv", [GOOD, BAD]))
    assert site.ended("cli-bad")["TransformJobStatus"] == "Failed"
    with pytest.raises(AssertionError, match="terminal failure state"):
        run([*aws, *wait, "cli-bad"], **keys)


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", ["sagemaker-v2", "sagemaker-v3"])
def test_the_sdks_transformer_runs_a_job_over_a_bucket(site: TransformSite, version: str) -> None:
    """The bucket is a folder of the server's machine: no other service is needed."""
    site.put(f"{version}/a.csv", [GOOD, BAD, GOOD])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    os_keys = {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": site.server.url,
        "HOME": str(site.folder),
    }
    captured = f"s3://data/captured/{version}"
    arguments = ["affine", f"s3://data/{version}", f"s3://data/out/{version}", version, captured]
    script = str(SCRIPTS / "sagemaker_transformer.py")
    printed = run([client_python(version), script, *arguments], seconds=390, **(kept | os_keys))
    assert json.loads(printed.splitlines()[-1]) == {
        "status": "Completed",
        "output": f"s3://data/out/{version}",
    }
    outputs = site.outputs(version)
    lines = [line.rsplit(",", 2) for line in outputs["a.csv.out"].splitlines()]
    assert [line[0] for line in lines] == [f"{GOOD},{ANSWER}"] * 2  # joined to the record, as asked
    assert len({str(uuid.UUID(line[1])) for line in lines}) == 2
    began = datetime.fromisoformat(lines[0][2])
    assert {line[2] for line in lines} == {began.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (refused,) = outputs["a.csv.errors"].splitlines()
    assert json.loads(refused)["record"] == 1
    hour = began.strftime("%Y/%m/%d/%H")
    assert {name: json.loads(text) for name, text in site.below(f"captured/{version}").items()} == {
        f"input/{hour}/{version}.jsonl": [{"prefix": f"s3://data/{version}/"}, "a.csv"],
        f"output/{hour}/{version}.jsonl": [{"prefix": f"s3://data/out/{version}/"}, "a.csv.out"],
    }


@pytest.mark.parametrize(
    ("source", "output", "words"),
    [
        ("nothing", "out/x", "nothing"),
        ("good", "settled/x", "settled"),
    ],
)
def test_places_that_are_wrong_are_refused_before_any_work(
    site: TransformSite, source: str, output: str, words: str
) -> None:
    """AWS accepts the job and ends it as Failed; here whoever asks is told at once."""
    site.put("settled", ["a file where a folder would have to be"])
    request = site.request("never", "affine", site.uri(source))
    request["TransformOutput"]["S3OutputPath"] = site.uri(output)
    client = site.server.client("sagemaker")
    with pytest.raises(ClientError) as told:
        client.create_transform_job(**request)
    assert told.value.response["Error"]["Code"] == "ValidationException"
    assert words in told.value.response["Error"]["Message"]
    with pytest.raises(ClientError, match="Could not find transform job"):
        client.describe_transform_job(TransformJobName="never")


def test_one_refused_record_fails_its_object_and_the_others_have_their_outputs(
    site: TransformSite,
) -> None:
    site.put("mixed/bad.csv", [GOOD, GOOD, BAD, GOOD])
    site.put("mixed/good.csv", [GOOD, GOOD])
    site.begin("mixed", "affine", site.uri("mixed"))
    client = site.server.client("sagemaker")
    with pytest.raises(WaiterError, match="terminal failure state"):
        client.get_waiter("transform_job_completed_or_stopped").wait(
            TransformJobName="mixed", WaiterConfig={"Delay": 1, "MaxAttempts": 300}
        )
    told = site.describe("mixed")
    assert told["FailureReason"].startswith("bad.csv: record 2 at byte 16: "), told
    outputs = site.outputs("mixed")
    assert sorted(outputs) == ["bad.csv.errors", "good.csv.out"]
    assert outputs["good.csv.out"] == f"{ANSWER}\n" * 2
    refused = json.loads(outputs["bad.csv.errors"])
    assert (refused["record"], refused["offset"]) == (2, 16)
    assert refused["error"]["message"] in told["FailureReason"]
    assert set(refused["error"]) <= {"code", "message", "hint"}


def test_refused_records_may_be_skipped_up_to_a_number(site: TransformSite) -> None:
    source = site.put("poor/a.csv", [GOOD, BAD, GOOD, BAD])
    option = "PENSTOCK_TRANSFORM_REFUSED_RECORDS"
    site.begin("skips", "affine", source, Environment={option: "skip:2"})
    told = site.ended("skips")
    assert told["TransformJobStatus"] == "Completed", told
    assert told["PenstockProgress"]["RefusedRecords"] == 2
    outputs = site.outputs("skips")
    assert outputs["a.csv.out"] == f"{ANSWER}\n" * 2
    assert [json.loads(line)["record"] for line in outputs["a.csv.errors"].splitlines()] == [1, 3]
    site.begin("skips-less", "affine", source, Environment={option: "skip:1"})
    told = site.ended("skips-less")
    assert told["TransformJobStatus"] == "Failed"
    assert told["FailureReason"].startswith("2 records were refused, one of a.csv: record 1 at")
    # All that the object has was read: its output is there, and says what it lacks.
    assert sorted(site.outputs("skips-less")) == ["a.csv.errors", "a.csv.out"]


def test_a_model_that_can_not_be_loaded_fails_the_job_with_the_reason(
    site: TransformSite, tmp_path: Path
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.onnx").write_bytes(b"no model")
    site.model("broken", tmp_path / "broken")
    site.begin("hopeless", "broken", site.uri("good"))
    told = site.ended("hopeless")
    assert told["TransformJobStatus"] == "Failed"
    assert "broken" in told["FailureReason"], told
    assert told["PenstockProgress"]["Instances"] == 0
    assert site.outputs("hopeless") == {}


def test_a_job_is_stopped_and_its_capacity_is_given_back(
    site: TransformSite, tmp_path: Path
) -> None:
    """A model that takes a second for each row would need hours."""
    site.put("long/a.csv", [GOOD] * 10_000)
    site.model("slow", slow(tmp_path / "slow"))
    site.begin("stops", "slow", site.uri("long"), BatchStrategy="SingleRecord")
    client = site.server.client("sagemaker")
    wait_until(
        lambda: site.describe("stops")["PenstockProgress"]["Instances"],
        "an instance of the job",
        120,
    )
    client.stop_transform_job(TransformJobName="stops")
    assert site.describe("stops")["TransformJobStatus"] in ("Stopping", "Stopped")
    client.get_waiter("transform_job_completed_or_stopped").wait(
        TransformJobName="stops", WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )
    told = site.describe("stops")
    assert told["TransformJobStatus"] == "Stopped"
    assert "FailureReason" not in told
    assert site.outputs("stops") == {}
    with pytest.raises(ClientError, match="is in status Stopped"):
        client.stop_transform_job(TransformJobName="stops")


def test_a_jobs_capacity_is_no_endpoint(site: TransformSite, tmp_path: Path) -> None:
    """Nobody can invoke it, no list has it, and no metric counts it."""
    site.put("long/a.csv", [GOOD] * 10_000)
    site.model("slow-too", slow(tmp_path / "slow"))
    site.begin("hidden", "slow-too", site.uri("long"), BatchStrategy="SingleRecord")
    wait_until(
        lambda: site.describe("hidden")["PenstockProgress"]["Instances"],
        "an instance of the job",
        120,
    )
    assert site.server.client("sagemaker").list_endpoints()["Endpoints"] == []
    for name in ("transform-job/hidden", "transform-job%2Fhidden", "hidden"):
        status, _ = site.server.post(f"/endpoints/{name}/invocations", b"1,2,3,4")
        assert status in (400, 404)
    assert site.server.get("/admin/copies")["copies"] == []
    site.server.client("sagemaker").stop_transform_job(TransformJobName="hidden")
    assert site.ended("hidden")["TransformJobStatus"] == "Stopped"


def test_status_logs_and_cost_show_a_job(site: TransformSite, tmp_path: Path) -> None:
    site.put("long/a.csv", [GOOD] * 10_000)
    site.model("slow-shown", slow(tmp_path / "slow"))
    site.begin("shown", "slow-shown", site.uri("long"), BatchStrategy="SingleRecord")

    def row() -> Any:
        jobs = json.loads(printed(site, "status", "--json"))["jobs"]
        [one] = [one for one in jobs if one["job"] == "shown"]
        return one if one["instances"] and one["instances"][0]["state"] == "ready" else None

    told = wait_until(row, "an instance of the job that answers", 120)
    [held] = told["instances"]
    assert (told["status"], held["instance_type"]) == ("InProgress", "ml.local.small")
    assert held["memory_bytes"] > 0
    os.kill(held["pid"], 0)  # there is such a process
    assert f" {held['instance']} " in printed(site, "status").replace("│", " ")
    wait_until(
        lambda: "slow as ever" in printed(site, "logs", "shown"), "the model's words in its log", 60
    )
    site.server.client("sagemaker").stop_transform_job(TransformJobName="shown")
    site.ended("shown")
    [cost] = [
        one for one in json.loads(printed(site, "cost", "--json"))["jobs"] if one["job"] == "shown"
    ]
    assert cost["status"] == "Stopped"
    assert cost["dollars"] > 0 < cost["instance_hours"]
    assert "slow as ever" in printed(site, "logs", "--job", "SHOWN")  # its instances are gone
    assert "error[not-found]: there is no endpoint and no transform job named 'nobody'" in (
        printed(site, "logs", "nobody", status=1)
    )


def test_a_job_goes_on_after_the_server_was_killed_and_a_stop_is_remembered(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "state").start()
    site = TransformSite(server, tmp_path)
    try:
        site.model("affine", model_files.affine(tmp_path / "affine"))
        site.model("slow", slow(tmp_path / "slow"))
        site.put("in/a.csv", [GOOD] * 100)
        site.begin("goes-on", "affine", site.uri("in"))
        server.kill()
        server.start()
        assert site.ended("goes-on")["TransformJobStatus"] == "Completed"
        assert site.outputs("goes-on") == {"a.csv.out": f"{ANSWER}\n" * 100}
        site.put("in/a.csv", [GOOD] * 10_000)
        site.begin("stops", "slow", site.uri("in"), BatchStrategy="SingleRecord")
        server.client("sagemaker").stop_transform_job(TransformJobName="stops")
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(10)
        server.start()
        assert site.ended("stops")["TransformJobStatus"] == "Stopped"
    finally:
        server.stop()


def printed(site: TransformSite, *words: str, status: int = 0) -> str:
    done = penstock(*words, server=site.server, status=status)
    return done.stdout if not status else done.stderr


def slow(folder: Path) -> Path:
    """A model of somebody's own code, which takes a second for each request."""
    code = """
        import time

        def model_fn(folder):
            print("slow as ever", flush=True)

        def transform_fn(model, body, content_type, accept):
            time.sleep(1)
            return body, accept
    """
    return python_model(folder, code)

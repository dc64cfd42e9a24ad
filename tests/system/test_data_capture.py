"""Data capture with real processes: boto3 unmodified, and the files that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import EXAMPLES, Server, penstock
from tests.system.test_scaling import settings

pytestmark = pytest.mark.system


@contextmanager
def served(tmp_path: Path, **values: str) -> Iterator[Server]:
    with settings(values):
        server = Server(tmp_path / "state").start()
    try:
        yield server
    finally:
        server.stop()


def capturing(
    server: Server, destination: Path, *, members: dict[str, Any] | None = None, **more: Any
) -> None:
    """An endpoint that echoes, and captures all of its calls. `members`: more of its
    configuration."""
    server.model("echo", EXAMPLES / "echo" / "python")
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": destination.as_uri(),
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    made = {"DataCaptureConfig": capture | more} | (members or {})
    server.endpoint("echo", ModelName="echo", members=made)


#: Answers every fourth call with another number, and fails the one after it.
OTHER = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    number = json.loads(body)[0]
    if number % 4 == 3:
        raise ValueError("no")
    return json.dumps([number + (number % 4 == 2)]), "application/json"
"""


def captured(destination: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in destination.rglob("[0-9]*.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def counted(server: Server, name: str) -> float:
    families = text_string_to_metric_families(server.page())
    return sum(
        sample.value
        for family in families
        if family.name == name
        for sample in family.samples
        if sample.name.endswith("_total")
    )


@pytest.mark.parametrize("gateways", ["1", "2"])
def test_calls_lie_as_lines_below_their_variant(tmp_path: Path, gateways: str) -> None:
    out = tmp_path / "out"
    with served(tmp_path, PENSTOCK_LISTEN_GATEWAYS=gateways) as server:
        capturing(server, out)
        shown = server.client("sagemaker").describe_endpoint(EndpointName="echo")
        assert shown["DataCaptureConfig"] | {"KmsKeyId": ""} == {
            "EnableCapture": True,
            "CaptureStatus": "Started",
            "CurrentSamplingPercentage": 100,
            "DestinationS3Uri": out.as_uri(),
            "KmsKeyId": "",
        }
        runtime = server.client("sagemaker-runtime")
        for number in range(5):
            answer = runtime.invoke_endpoint(
                EndpointName="echo",
                ContentType="application/json",
                Body=f"[{number}]".encode(),
                InferenceId=f"call-{number}",
                CustomAttributes=f"number={number}",
            )
            assert json.loads(answer["Body"].read()) == [number]
        with pytest.raises(runtime.exceptions.ModelError):
            runtime.invoke_endpoint(
                EndpointName="echo", ContentType="application/json", Body=b"no JSON"
            )
        wait_until(lambda: len(captured(out)) == 5, "the lines")
        found = sorted(captured(out), key=lambda one: one["eventMetadata"]["inferenceId"])
        for number, one in enumerate(found):
            told = one["captureData"]
            assert told["endpointInput"] == {
                "observedContentType": "application/json",
                "mode": "INPUT",
                "data": f"[{number}]",
                "encoding": "JSON",
            }
            assert told["endpointOutput"]["mode"] == "OUTPUT"
            assert told["endpointOutput"]["encoding"] == "JSON"
            assert json.loads(told["endpointOutput"]["data"]) == [number]
            assert one["eventMetadata"]["inferenceId"] == f"call-{number}"
            assert one["eventMetadata"]["customAttributes"] == [f"number={number}"]
            assert one["eventVersion"] == "0"
        assert list(out.glob("echo/all/[0-9]*/[0-9]*/[0-9]*/[0-9]*/*.jsonl"))
        wait_until(lambda: counted(server, "penstock_capture_calls") == 5, "the count")
        size = sum(path.stat().st_size for path in out.rglob("*.jsonl"))
        wait_until(lambda: counted(server, "penstock_capture_written_bytes") == size, "the bytes")
        # The last calls are written when the server stops.
        runtime.invoke_endpoint(EndpointName="echo", ContentType="text/csv", Body=b"1,2")
        assert server.stop() == 0
    assert len(captured(out)) == 6


@pytest.mark.parametrize("gateways", ["1", "2"])
def test_of_an_asynchronous_call_what_the_model_got_and_answered_is_captured(
    tmp_path: Path, gateways: str
) -> None:
    """Not where its input lies; a request that fails is not captured, as no such call is."""
    out = tmp_path / "captured"
    later = {"OutputConfig": {"S3OutputPath": (tmp_path / "answers").as_uri()}}
    with served(tmp_path, PENSTOCK_LISTEN_GATEWAYS=gateways) as server:
        capturing(server, out, members={"AsyncInferenceConfig": later})
        runtime = server.client("sagemaker-runtime")
        asked = {"EndpointName": "echo", "ContentType": "application/json"}
        (tmp_path / "in.json").write_text("[2]")
        inputs = [{"Body": b"no JSON"}, {"Body": b"[1]"}]
        inputs.append({"InputLocation": (tmp_path / "in.json").as_uri()})
        for number, given in enumerate(inputs):
            runtime.invoke_endpoint_async(**asked, **given, InferenceId=f"call-{number}")
        wait_until(lambda: len(captured(out)) == 2, "the lines")
        found = sorted(captured(out), key=lambda one: one["eventMetadata"]["inferenceId"])
        for number, one in enumerate(found, 1):
            told = one["captureData"]
            assert told["endpointInput"]["data"] == f"[{number}]"
            assert json.loads(told["endpointOutput"]["data"]) == [number]
            assert one["eventMetadata"]["inferenceId"] == f"call-{number}"
        assert list(out.glob("echo/all/[0-9]*/[0-9]*/[0-9]*/[0-9]*/*.jsonl"))
        assert server.stop() == 0
    assert len(captured(out)) == 2


def test_captured_calls_are_replayed_to_another_model(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with served(tmp_path) as server:
        capturing(server, out)
        for number in range(40):
            server.invoke("echo", [number])
        wait_until(lambda: len(captured(out)) == 40, "the lines")
        (out / "echo" / "torn.jsonl").write_text('{"captureData": 1}\nno JSON\n\n')
        python_model(tmp_path / "other", OTHER)
        server.deploy("other", tmp_path / "other")
        page = tmp_path / "replay.html"
        same = penstock("replay", str(out), "--to", "echo", "--json", server=server)
        told = json.loads(same.stdout)
        assert (told["sent"], told["outcomes"]) == (40, {"agree": 40})
        assert told["unreadable_lines"] == 2
        assert told["took_ms"].keys() == {"p50", "p90", "p99"}
        worse = penstock(
            "replay", str(out), "--to", "other", "--html", str(page), server=server, status=1
        )
        assert "20 agree, 10 differ, 10 failed" in worse.stdout
        assert "answers disagree (sure to 99.99% that it is above 1.00%)" in worse.stdout
        assert "<svg" in page.read_text()
        missing = penstock("replay", str(out), "--to", "nobody", server=server, status=1)
        assert "Could not find endpoint" in missing.stderr


def test_calls_are_answered_while_their_destination_can_not_be_written(tmp_path: Path) -> None:
    """Its folder is a file now: what can't be held is dropped and counted, nobody waits for it."""
    out = tmp_path / "out"
    with served(tmp_path, PENSTOCK_LIMITS_CAPTURE_BYTES_MAX="65536") as server:
        capturing(server, out)
        out.rmdir()
        out.touch()
        body = json.dumps(["x" * 8000])
        for _ in range(12):
            assert server.invoke("echo", ["x" * 8000]) == json.loads(body)
        wait_until(lambda: counted(server, "penstock_capture_dropped") >= 8, "the drops")
        wait_until(lambda: counted(server, "penstock_capture_write_failures"), "the failures")
        [process] = server.get("/admin/capture")["processes"]
        [failing] = process["failing"]
        assert (failing["endpoint"], failing["error"]["code"]) == ("echo", "output-unwritable")
        assert server.log().count("captured calls of endpoint echo can't be written") == 1
        assert server.invoke("echo", [7]) == [7]

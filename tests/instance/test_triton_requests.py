"""A Triton Python model sees the whole request, and its response's parameters and codes go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import triton_files as files
from tests.kit.instances import FrameAnswer, FrameClient, instance
from tests.kit.polling import wait_until

from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

#: Answers with what it sees of its request; `x` of 1 to 8 is an error of that code less one.
SEER = """
import json

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        x = given(request, "x")
        code = int(x.reshape(-1)[0])
        if code:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("so it is", code - 1))
        seen = {
            "id": request.request_id(), "correlation": request.correlation_id(),
            "flags": request.flags(), "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()),
            "trace": request.trace().get_context(),
        }
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("seen", np.array([[json.dumps(seen)]] * len(x), object))],
            parameters={"text": "t", "whole": 7, "yes": True})
"""
ASKER = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            got = pb_utils.InferenceRequest(
                model_name="seer", requested_output_names=["seen"], inputs=request.inputs(),
                request_id="nested", correlation_id="c", flags=2, timeout=5_000_000,
                parameters={"by": "asker"}).exec()
            if got.has_error():
                responses.append(pb_utils.InferenceResponse(error=got.error()))
                continue
            assert got.parameters() == '{"text": "t", "whole": 7, "yes": true}', got.parameters()
            responses.append(answer(seen=got.output_tensors()[0].as_numpy()))
        return responses
"""
X = [("x", "FP32", [1])]
SEEN = [("seen", "STRING", [1]), ("other", "FP32", [1])]
CODES = [400, 500, 404, 400, 503, 501, 400, 400]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    root = tmp_path_factory.mktemp("seer") / "repository"
    files.python(root / "seer", SEER, inputs=X, outputs=SEEN)
    files.python(root / "asker", ASKER, inputs=X, outputs=SEEN[:1])
    files.ensemble(
        root / "chain", ("seer", {"x": "X"}, {"seen": "SEEN"}),
        inputs=[("X", "FP32", [1])], outputs=[("SEEN", "STRING", [1])],
    )  # fmt: skip
    with instance(root.parent) as running:
        made = running.client()
        for copy, model in enumerate(("seer", "asker", "chain"), 1):
            environment = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": model}
            source = {"uri": f"file://{root}", "environment": environment}
            loaded = made.load(copy, root, source=source)
            assert loaded.get("ok"), loaded
        yield made


def ask(client: FrameClient, copy: int, x: float = 0.0, **more: Any) -> FrameAnswer:
    named = "X" if copy == 3 else "x"
    tensor = {"name": named, "datatype": "FP32", "shape": [1, 1], "data": [x]}
    return client.invoke(copy, json.dumps({"inputs": [tensor], **more}).encode(), door="oip")


def seen(answer: FrameAnswer) -> dict[str, Any]:
    (output,) = answer.json["outputs"]
    told: dict[str, Any] = json.loads(output["data"][0])
    return told


SAID = {
    "id": "r7",
    "parameters": {
        "sequence_id": 12, "sequence_start": True, "timeout": 9, "priority": 1, "a": "b", "n": 1.5,
    },
}  # fmt: skip


def test_a_model_sees_what_the_request_says(client: FrameClient) -> None:
    assert seen(ask(client, 1, **SAID)) == {
        "id": "r7", "correlation": 12, "flags": 1, "timeout": 9, "parameters": {"a": "b", "n": 1.5},
        "outputs": ["other", "seen"], "trace": None,
    }  # fmt: skip
    assert seen(ask(client, 1, outputs=[{"name": "seen"}]))["outputs"] == ["seen"]


def test_headers_that_the_server_passes_on_are_among_the_parameters(client: FrameClient) -> None:
    """Through an ensemble, too; the door names them beside the body."""
    tensor = {"datatype": "FP32", "shape": [1, 1], "data": [0.0]}
    for copy, name in ((1, "x"), (3, "X")):
        body = json.dumps({"inputs": [{"name": name, **tensor}], "parameters": {"a": "b"}})
        headers = json.dumps({"headers": {"X-Tenant": "red"}})
        answer = client.invoke(copy, body.encode(), door="oip", parameters=headers)
        assert seen(answer)["parameters"] == {"a": "b", "X-Tenant": "red"}


def test_a_response_s_parameters_are_in_the_answer(client: FrameClient) -> None:
    answered = json.loads(ask(client, 1).body)
    assert answered["parameters"] == {"text": "t", "whole": 7, "yes": True}
    assert [each["name"] for each in answered["outputs"]] == ["seen"]  # it gave no other


def test_they_are_in_grpc_s_too(client: FrameClient) -> None:
    request = ModelInferRequest(model_name="seer", id="g")
    request.inputs.add(name="x", datatype="FP32", shape=(1, 1))
    request.raw_input_contents.append(np.float32(0).tobytes())
    request.parameters["sequence_id"].string_param = "mine"
    request.parameters["sequence_end"].bool_param = True
    answer = client.invoke(
        1, request.SerializeToString(), door="oip-grpc", content_type="application/x-oip-grpc"
    )
    response = ModelInferResponse.FromString(answer.body)
    assert response.parameters["text"].string_param == "t"
    assert response.parameters["whole"].int64_param == 7
    assert response.parameters["yes"].bool_param is True
    told = json.loads(response.raw_output_contents[0][4:])
    assert (told["id"], told["correlation"], told["flags"]) == ("g", "mine", 2)


def test_the_steps_of_an_ensemble_see_the_ensemble_s_request(client: FrameClient) -> None:
    told = seen(ask(client, 3, **SAID))
    assert (told["id"], told["correlation"], told["flags"]) == ("r7", 12, 1)
    assert told["parameters"] == {"a": "b", "n": 1.5}
    assert told["outputs"] == ["seen"]


def test_a_call_of_a_model_says_what_it_was_made_with(client: FrameClient) -> None:
    told = seen(ask(client, 2, **SAID))
    assert told == {
        "id": "nested", "correlation": "c", "flags": 2, "timeout": 5_000_000,
        "parameters": {"by": "asker"}, "outputs": ["seen"], "trace": None,
    }  # fmt: skip


@pytest.mark.parametrize("copy", [1, 2, 3], ids=["itself", "called", "a step"])
@pytest.mark.parametrize("number", range(8))
def test_an_error_has_the_status_of_its_code(client: FrameClient, copy: int, number: int) -> None:
    """Also through a call and through an ensemble, for retries depend on it."""
    error = ask(client, copy, float(number + 1)).error
    assert error["original_status"] == CODES[number]
    assert "so it is" in error["message"]


#: What a model of Triton's examples does with metrics, and one that raises for 13.
METERED = """
class TritonPythonModel:
    def initialize(self, args):
        families = {
            kind: pb_utils.MetricFamily(f"own_{kind.lower()}", f"a {kind}",
                                        getattr(pb_utils.MetricFamily, kind))
            for kind in ("COUNTER", "GAUGE", "HISTOGRAM")}
        labels = {"model": args["model_name"]}
        self.counter = families["COUNTER"].Metric(labels=labels)
        self.gauge = families["GAUGE"].Metric(labels=labels)
        self.histogram = families["HISTOGRAM"].Metric(labels=labels, buckets=[1, 2])

    def execute(self, requests):
        if any((given(request, "x") == 13).any() for request in requests):
            raise RuntimeError("unlucky")
        for request in requests:
            x = float(given(request, "x").reshape(-1)[0])
            self.counter.increment(x)
            self.gauge.set(x)
            self.histogram.observe(x)
        assert self.gauge.value() == x
        return [answer(y=given(request, "x")) for request in requests]
"""


def test_metrics_of_a_model_s_code_are_in_the_status(tmp_path: Path) -> None:
    """And so is that a batch which raised was run again, which the log says too."""
    files.python(
        tmp_path / "r" / "metered", METERED, inputs=X, outputs=[("y", "FP32", [1])],
        more="dynamic_batching { max_queue_delay_microseconds: 200000 }",
    )  # fmt: skip
    with instance(tmp_path) as running:
        client = running.client()
        client.serve(1, tmp_path / "r")
        for x in (1.0, 1.5, 3.0):
            assert ask(client, 1, x).json["outputs"][0]["data"] == [x]
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1]}
        both = b""
        for at, x in enumerate((13.0, 2.0)):
            body = json.dumps({"inputs": [{**tensor, "data": [x]}]}).encode()
            both += FrameClient.frame(900 + at, 1, body, door="oip")
        client.socket.sendall(both)
        assert "unlucky" in FrameAnswer(client.answer(900)).error["message"]
        assert FrameAnswer(client.answer(901)).json["outputs"][0]["data"] == [2.0]

        def series() -> dict[str, Any]:
            (copy,) = client.control(op="status")["copies"]
            return {each["name"]: each for each in copy.get("code_metrics", ())}

        again = "penstock_model_batches_run_again_total"
        wait_until(lambda: again in series() and series()["own_counter"]["value"] == 7.5)
        told = series()
        assert told["own_counter"]["labels"] == [["model", "metered"]]
        assert told["own_gauge"]["value"] == 2.0
        assert told["own_histogram"]["counts"] == [1, 2, 1]
        assert told[again]["value"] == 1
        assert "each is run again alone" in running.log.read_text()

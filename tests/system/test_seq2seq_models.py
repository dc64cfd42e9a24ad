"""An encoder-decoder endpoint as clients meet it: texts in and texts out, over HTTP and gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.kit import seq2seq_models as tiny
from tests.kit.polling import wait_until
from tests.kit.servers import Server

from penstock.wire.oip_messages import SERVICE, method_classes

pytestmark = pytest.mark.system

SOURCES = tiny.SOURCES[2:5]
TEXTS = [" ".join(f"w{token}" for token in source) for source in SOURCES]


def expected(name: str) -> list[str]:
    """What transformers' `generate` answers to TEXTS."""
    answers = tiny.answers()["t5"][name][2:5]
    return [" ".join(f"w{token}" for token in answer if token > 2) for answer in answers]


@pytest.fixture(scope="module")
def endpoint(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("speller") / "artifact"
    tiny.write_artifact(folder, rows_max=4, tokens_new_max=400)
    server.deploy("speller", folder)
    yield "speller"
    server.client("sagemaker").delete_endpoint(EndpointName="speller")


def asked(server: Server, endpoint: str, inputs: Any, **parameters: Any) -> tuple[int, Any]:
    body = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    status, answer = server.post(f"/endpoints/{endpoint}/invocations", body)
    return status, json.loads(answer)


def test_invoke_endpoint_answers_as_the_hugging_face_toolkit(server: Server, endpoint: str) -> None:
    status, answer = asked(server, endpoint, TEXTS, max_new_tokens=20)
    assert status == 200
    assert [each["generated_text"] for each in answer] == expected("greedy")
    runtime = server.client("sagemaker-runtime")
    found = runtime.invoke_endpoint(
        EndpointName=endpoint, ContentType="text/plain", Body=TEXTS[1].encode()
    )
    (one,) = json.loads(found["Body"].read())
    assert one["generated_text"].startswith(expected("greedy")[1])


def test_the_open_inference_protocol_takes_and_gives_bytes(server: Server, endpoint: str) -> None:
    described = server.get(f"/v2/models/{endpoint}")
    assert described["platform"] == "openvino_seq2seq"
    assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    body = {
        "inputs": [{"name": "text", "shape": [3], "datatype": "BYTES", "data": TEXTS}],
        "parameters": {"num_beams": 4, "max_new_tokens": 12},
    }
    status, answer = server.post(f"/v2/models/{endpoint}/infer", json.dumps(body).encode())
    assert status == 200, answer
    (output,) = json.loads(answer)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("generated_text", "BYTES", [3])
    assert output["data"] == expected("beams")


def test_grpc_takes_and_gives_bytes(server: Server, endpoint: str) -> None:
    request_class, response_class = method_classes("ModelInfer")
    request = request_class(model_name=endpoint)
    request.inputs.add(name="text", datatype="BYTES", shape=[3])
    request.parameters["max_new_tokens"].int64_param = 20
    texts = [text.encode() for text in TEXTS]
    request.raw_input_contents.append(
        b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        answer = infer(request, timeout=30)
    assert [(each.name, each.datatype) for each in answer.outputs] == [("generated_text", "BYTES")]
    content, found = answer.raw_output_contents[0], []
    while content:
        size = int.from_bytes(content[:4], "little")
        found.append(content[4 : 4 + size].decode())
        content = content[4 + size :]
    assert found == expected("greedy")


def test_a_parameter_that_cannot_be_is_the_callers_mistake(server: Server, endpoint: str) -> None:
    status, answer = asked(server, endpoint, TEXTS[0], max_new_tokens=0)
    assert status == 424  # SageMaker's ModelError, with the status of the model within
    assert answer["OriginalStatusCode"] == 400
    assert "max_new_tokens" in answer["OriginalMessage"]


def test_a_copy_tells_which_texts_run_and_which_wait(server: Server, endpoint: str) -> None:
    """Four rows, six texts that take hundreds of steps: two of them find no row."""
    (copy,) = [each["copy"] for each in server.copies(endpoint)]
    path = f"/admin/endpoints/{endpoint}/copies/{copy}"
    idle = server.get(path)
    assert (idle["decoding"]["running"], idle["decoding"]["waiting"]) == ({}, [])
    assert (idle["decoding"]["rows_max"], idle["batching"]["rows_max"]) == (4, 4)

    statuses: list[int] = []

    def ask() -> None:
        long = {"max_new_tokens": 400, "min_new_tokens": 400}
        statuses.append(asked(server, endpoint, TEXTS * 2, **long)[0])

    thread = threading.Thread(target=ask)
    thread.start()

    def full() -> Any:
        told = server.get(path)["decoding"]
        return told if told["rows_in_use"] == 4 and told["waiting"] else None

    told = wait_until(full, "a full decode batch", 60)
    assert len(told["running"]) == 4
    assert sorted(row for rows in told["running"].values() for row in rows) == [0, 1, 2, 3]
    assert len(told["waiting"]) <= 2
    thread.join(100)
    assert statuses == [200]


def test_a_copy_that_is_not_there_has_no_story(server: Server, endpoint: str) -> None:
    with pytest.raises(OSError, match="404"):
        server.get(f"/admin/endpoints/{endpoint}/copies/999999")

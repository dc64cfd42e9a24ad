"""The unmodified tritonclient, in its own process, against a gateway with an echoing instance."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
import pytest
from tests.api.door_site import DoorSite, at_door
from tests.environments import python_of

from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

CLIENT = """
import sys
import numpy as np
import tritonclient.{kind} as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("echo")
metadata = client.get_model_metadata("echo"{as_json})
assert metadata["name"] == "echo" and metadata["inputs"][0]["datatype"] == "FP32", metadata
assert client.get_model_config("echo"{as_json})
assert client.get_model_repository_index({as_json_only})
assert client.get_inference_statistics("echo"{as_json})["model_stats"][0]["name"] == "echo"
given = np.arange(8, dtype=np.float32).reshape(2, 4)
tensor = triton.InferInput("x", given.shape, "FP32")
tensor.set_data_from_numpy(given)
for options in ({options}):
    answer = client.infer("echo", [tensor], request_id="r1", **options)
    assert (answer.as_numpy("y") == given).all(), answer.as_numpy("y")
try:
    client.infer("nobody", [tensor])
    raise SystemExit("an unknown model answered")
except InferenceServerException as error:
    assert "unknown model" in str(error), error
print("served")
"""


def echo_tensor_http(connection: Any, ident: int, invoke: frames.Invoke) -> None:
    size = frames.decode_request_meta(invoke.meta).json_header_bytes
    head, raw = orjson.loads(invoke.body[:size]), invoke.body[size:]
    shape = head["inputs"][0]["shape"]
    output = {"name": "y", "datatype": "FP32", "shape": shape}
    output["parameters"] = {"binary_data_size": len(raw)}
    text = orjson.dumps({"model_name": "echo", "model_version": "1", "outputs": [output]})
    meta = frames.encode_reply_meta(
        frames.ReplyMeta("application/octet-stream", json_header_bytes=len(text))
    )
    connection.write(frames.encode_reply(ident, meta=meta, body=text + raw))


def echo_tensor_grpc(connection: Any, ident: int, invoke: frames.Invoke) -> None:
    request = ModelInferRequest.FromString(invoke.body)
    answer = ModelInferResponse(model_name="echo", id=request.id)
    answer.outputs.add(name="y", datatype="FP32", shape=list(request.inputs[0].shape))
    answer.raw_output_contents.append(request.raw_input_contents[0])
    connection.write(frames.encode_reply(ident, body=answer.SerializeToString()))


@pytest.mark.parametrize("kind", ["http", "grpc"])
@at_door()
async def test_tritonclient_works_unmodified(served: DoorSite, kind: str) -> None:
    python = str(python_of("client-tritonclient"))
    http = kind == "http"
    served.instance.on_invoke = echo_tensor_http if http else echo_tensor_grpc
    compressions = "{}, {'request_compression_algorithm': 'gzip'}, "
    compressions += "{'request_compression_algorithm': 'deflate'}"
    program = CLIENT.format(
        kind=kind,
        as_json="" if http else ", as_json=True",
        as_json_only="" if http else "as_json=True",
        options=compressions if http else "{}, {'client_timeout': 10}",
    )
    port = served.server.port if http else served.grpc_port
    process = await asyncio.create_subprocess_exec(
        python, "-c", program, str(port),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert output.decode().splitlines()[-1:] == ["served"], output.decode()


def test_the_echo_of_this_file_is_exact() -> None:
    """Guards the two fakes above: they must hand back the very bytes that came."""
    raw = np.arange(4, dtype=np.float32).tobytes()
    request = ModelInferRequest(model_name="echo", raw_input_contents=[raw])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    sent: list[bytes] = []
    connection = type("Connection", (), {"write": staticmethod(sent.append)})
    invoke = frames.Invoke(1, 0, 0, b"", request.SerializeToString())
    echo_tensor_grpc(connection, 1, invoke)
    [frame] = frames.FrameDecoder().feed(sent[0])
    reply = frames.decode_reply(frame.payload, frame.meta_bytes)
    assert ModelInferResponse.FromString(reply.body).raw_output_contents[0] == raw

"""An unmodified tritonclient over HTTP and gRPC: triton_tour.py HTTP_ADDRESS GRPC_ADDRESS NAME."""

import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

http_address, grpc_address, name = sys.argv[1:4]
seen = {}
for door, module, address in (
    ("http", triton_http, http_address),
    ("grpc", triton_grpc, grpc_address),
):
    client = module.InferenceServerClient(address)
    text = np.array(["where is my order", "red running shoes size 42"], dtype=object)
    tensor = module.InferInput("text", [2], "BYTES")
    tensor.set_data_from_numpy(text)
    result = client.infer(name, [tensor], request_id="seven")
    wrong = module.InferInput("no-such-input", [1], "FP32")
    wrong.set_data_from_numpy(np.zeros([1], dtype=np.float32))
    errors = {}
    for label, model, inputs in (
        ("unknown model", "missing-model", [tensor]),
        ("wrong input", name, [wrong]),
    ):
        try:
            client.infer(model, inputs)
        except InferenceServerException as error:
            errors[label] = [error.status(), error.message()]
    if door == "http":
        metadata = client.get_model_metadata(name)
        server_name = client.get_server_metadata()["name"]
    else:
        metadata = client.get_model_metadata(name, as_json=True)
        server_name = client.get_server_metadata(as_json=True)["name"]
    seen[door] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(name),
        "missing_ready": client.is_model_ready("missing-model"),
        "server": server_name,
        "inputs": [item["name"] for item in metadata["inputs"]],
        "labels": [label.decode() for label in result.as_numpy("label").ravel().tolist()],
        "errors": errors,
    }
    client.close()
print(json.dumps(seen))

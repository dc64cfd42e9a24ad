"""An unmodified tritonclient asks models by name: HTTP_ADDRESS GRPC_ADDRESS NAME..."""

import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

http_address, grpc_address, *names = sys.argv[1:]
seen = {}
for door, module, address in (
    ("http", triton_http, http_address),
    ("grpc", triton_grpc, grpc_address),
):
    client = module.InferenceServerClient(address)
    more = {"as_json": True} if door == "grpc" else {}
    given = module.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(np.array([[1, 0, 0, 0]], np.float32))
    index = client.get_model_repository_index(**more)
    rows = index.get("models", []) if door == "grpc" else index
    told = {"index": sorted({row["name"] for row in rows})}
    for name in names:
        try:
            result = client.infer(name, [given])
            config = client.get_model_config(name, **more)
            counted = client.get_inference_statistics(name, **more)["model_stats"]
            told[name] = {
                "answer": result.as_numpy("y").tolist(),
                "answered": result.get_response(**more)["model_name"],
                "metadata": client.get_model_metadata(name, **more)["name"],
                "config": config.get("config", config)["name"],
                "statistics": [each["name"] for each in counted],
                "ready": client.is_model_ready(name),
            }
        except InferenceServerException as error:
            told[name] = {"error": error.message()}
    seen[door] = told
    client.close()
print(json.dumps(seen))

"""An unmodified tritonclient asks a model in several versions: HTTP_ADDRESS GRPC_ADDRESS NAME."""

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
    more = {"as_json": True} if door == "grpc" else {}
    given = module.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(np.array([[1, 0, 0, 0]], np.float32))
    answers = {}
    for version in ("", "1", "3", "7"):
        classes = module.InferRequestedOutput("y", class_count=1)
        try:
            result = client.infer(name, [given], model_version=version, outputs=[classes])
        except InferenceServerException as error:
            answers[version] = error.message()
            continue
        told = result.get_response(**more)
        best = [each.decode() for each in result.as_numpy("y").ravel().tolist()]
        answers[version] = [told["model_version"], *best]
    config = client.get_model_config(name, **more)
    config = config.get("config", config)
    index = client.get_model_repository_index(**more)
    rows = index["models"] if door == "grpc" else index
    seen[door] = {
        "answers": answers,
        "versions": client.get_model_metadata(name, **more)["versions"],
        "index": [[row["version"], row["state"]] for row in rows if row["name"] == name],
        "ready": [client.is_model_ready(name, version) for version in ("2", "3")],
        "policy": config["version_policy"],
        "input": [[each["name"], each["data_type"], each["dims"]] for each in config["input"]],
        "groups": [[each["name"], each["count"]] for each in config["instance_group"]],
        "rows_max": config["max_batch_size"],
    }
    client.close()
print(json.dumps(seen))

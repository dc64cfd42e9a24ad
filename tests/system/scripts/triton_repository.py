"""An unmodified tritonclient and a repository of several models: HTTP_ADDRESS GRPC_ADDRESS."""

import json
import sys
import time

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

http_address, grpc_address = sys.argv[1:]
X = np.array([[1, 0, 0, 2]], np.float32)


def refusal(call):
    try:
        call()
    except InferenceServerException as error:
        return [error.status(), error.message()]
    return None


def asked(client, module, model, what=""):
    given = module.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(X)
    inputs = [given]
    if what:
        inputs.append(module.InferInput("what", [1, 1], "BYTES"))
        inputs[1].set_data_from_numpy(np.array([[what]], np.object_))
    return client.infer(model, inputs)


def index(client, **more):
    rows = client.get_model_repository_index(**more)
    rows = rows if isinstance(rows, list) else rows.get("models", [])
    return {row["name"]: row["state"] for row in rows}


def toured(module, address):
    client = module.InferenceServerClient(address)
    more = {"as_json": True} if module is triton_grpc else {}
    told = {}
    client.unload_model("affine")
    told["unloaded"] = [client.is_model_ready("affine"), index(client, **more)["affine"]]
    told["called"] = asked(client, module, "asker", "call affine").as_numpy("y").tolist()
    told["by a call"] = [client.is_model_ready("affine"), index(client, **more)["affine"]]
    client.unload_model("affine")
    answer = asked(client, module, "chain")
    told["chain"] = [answer.as_numpy("y").tolist(), answer.get_response(**more)["model_name"]]
    client.unload_model("affine")
    client.unload_model("chain")
    client.load_model("chain")
    told["with its steps"] = [client.is_model_ready(name) for name in ("chain", "affine")]
    client.unload_model("chain", unload_dependents=True)
    deadline = time.monotonic() + 30
    while client.is_model_ready("affine") and time.monotonic() < deadline:
        time.sleep(0.01)  # the news of it may come a moment later than that of the ensemble
    told["without its steps"] = [client.is_model_ready(name) for name in ("chain", "affine")]
    client.load_model("affine")
    metadata = client.get_model_metadata("asker", **more)
    config = client.get_model_config("affine", **more)
    config = config.get("config", config)
    told["metadata"] = [metadata["name"], [each["name"] for each in metadata["outputs"]]]
    told["config"] = [config["name"], config["instance_group"][0]["name"]]
    counts = client.get_inference_statistics("affine", **more)["model_stats"]
    told["statistics"] = [each["name"] for each in counts]
    told["streamed"] = (
        asked(client, module, "asker", "stream affine").as_numpy("said")[0, 0].decode()
    )
    told["refusals"] = [
        refusal(lambda: asked(client, module, "asker", "call nobody")),
        refusal(lambda: asked(client, module, "asker", "call asker")),
        refusal(lambda: asked(client, module, "short")),
        refusal(lambda: client.load_model("short")),
        refusal(lambda: asked(client, module, "nobody")),
    ]
    told["index"] = sorted(index(client, **more))
    client.close()
    return told


seen = {"http": toured(triton_http, http_address), "grpc": toured(triton_grpc, grpc_address)}
print(json.dumps(seen))

"""A repository of models, and what is asked of it through each door.

A `Case` is one folder with models, deployed alone. Its asks are put one after the other. An `Ask`
is plain data that `bench/peers/triton_asker.py` carries out in the environment of NVIDIA's clients.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HEAD = """
import json, time
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def given(request, name="x"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def answer(**tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in tensors.items()])

class TritonPythonModel:
"""
EACH = """
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
"""
#: Answers `x` as `y`.
SAME = EACH + "        return answer(y=given(request))\n"


def tensors(kind: str = "FP32", dims: str = "-1", out: str = "") -> str:
    """An input `x` and an output `y`, as config.pbtxt writes them."""
    one = 'name: "{}" data_type: TYPE_{} dims: [{}]'
    return (
        f"input {{ {one.format('x', kind, dims)} }} "
        f"output {{ {one.format('y', out or kind, dims)} }} "
    )


BATCHED = "max_batch_size: 4 " + tensors()
PLAIN = tensors()
#: `y` is a text.
TOLD = "max_batch_size: 4 " + tensors(out="STRING")
DECOUPLED = "model_transaction_policy { decoupled: true } "


def seen(expression: str) -> str:
    """A model that answers with what an expression of the request gives, as JSON."""
    made = f"        told = json.dumps({expression}, sort_keys=True)\n"
    return EACH + made + "        return answer(y=np.array([[told]], object))\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, or several, through one door."""

    label: str
    door: str  #: a function of the asker
    what: Mapping[str, Any]
    view: str = ""  #: what of the answer is compared; a key of `rows.VIEWS`
    #: What NVIDIA's documents say is answered, and where; None: their server is asked.
    documented: tuple[Any, str] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Models of one repository; the one that bears the case's name is deployed."""

    name: str
    config: str | None  #: without the backend's name; None: no config.pbtxt
    code: str | None  #: of version 1, after HEAD; None: no model.py
    asks: Sequence[Ask] = ()
    #: Beside: path below the case's folder -> content.
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    others: Mapping[str, tuple[str, str]] = field(default_factory=dict)  #: name -> config, code
    backend: str = "python"
    documented: str = ""  #: the backend is not NVIDIA's here: the answers stand in documents


def tensor(data: list[Any], shape: list[int], kind: str = "FP32", name: str = "x") -> Any:
    return {"name": name, "datatype": kind, "shape": shape, "data": data}


ONE = tensor([1.0], [1, 1])


def http(label: str, path: str, body: Any = None, **more: Any) -> Ask:
    """A request of HTTP. A path that begins with `/` is below /v2, any other below the model."""
    view = more.pop("view", "")
    method = more.pop("method", "GET" if body is None and "raw" not in more else "POST")
    return Ask(label, "http", {"method": method, "path": path, "body": body, **more}, view)


def grpc(label: str, call: str, request: Any, view: str = "", **more: Any) -> Ask:
    """A call of gRPC, with its message as JSON; a list of messages makes a stream."""
    return Ask(label, "grpc", {"call": call, "request": request, **more}, view)


def infer(label: str, *inputs: Any, **more: Any) -> list[Ask]:
    """One inference by JSON over HTTP and by contents over gRPC."""
    body = {"inputs": list(inputs), **more}
    return [
        http(label, "infer", body),
        grpc(label, "ModelInfer", message(body)),
    ]


def client(label: str, *inputs: Any, **more: Any) -> list[Ask]:
    """One inference by the classes of tritonclient, over HTTP and gRPC."""
    what = {"inputs": list(inputs), **more}
    return [Ask(label, f"{kind}-client", what) for kind in ("http", "grpc")]


def everywhere(label: str, *inputs: Any) -> list[Ask]:
    return [*infer(label, *inputs), *client(label, *inputs)]


def generate(label: str, body: Any) -> list[Ask]:
    return [http(label, "generate", body), http(f"{label}, streamed", "generate_stream", body)]


_CONTENTS = {
    "BOOL": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64",
    "UINT8": "uint", "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64", "FP32": "fp32",
    "FP64": "fp64", "BYTES": "bytes",
}  # fmt: skip


def message(body: Mapping[str, Any]) -> dict[str, Any]:
    """ModelInferRequest of an inference in JSON, as JSON of protobuf."""
    made: dict[str, Any] = {"inputs": [_input(each) for each in body["inputs"]]}
    if "id" in body:
        made["id"] = str(body["id"])
    if "outputs" in body:
        made["outputs"] = [
            {**each, "parameters": parameters(each.get("parameters", {}))}
            for each in body["outputs"]
        ]
    made["parameters"] = parameters(body.get("parameters", {}))
    return made


def _input(one: Mapping[str, Any]) -> dict[str, Any]:
    field_name = f"{_CONTENTS.get(one['datatype'], 'fp32')}_contents"
    values = [base64.b64encode(v.encode()).decode() for v in one["data"]] if (
        one["datatype"] == "BYTES"
    ) else one["data"]  # fmt: skip
    return {
        "name": one["name"], "datatype": one["datatype"],
        "shape": [str(each) for each in one["shape"]], "contents": {field_name: values},
    }  # fmt: skip


def parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    return {name: {kinds[type(value)]: value} for name, value in given.items()}


def packed(*values: float, kind: str = "<f4") -> str:
    """The bytes of a tensor, in base64."""
    return base64.b64encode(np.array(values, kind).tobytes()).decode()


def stream(label: str, *messages: Mapping[str, Any], view: str = "") -> Ask:
    return grpc(label, "ModelStreamInfer", list(messages), view)

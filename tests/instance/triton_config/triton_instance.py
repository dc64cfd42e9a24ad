"""Short words for calls to an instance that serves models of Triton repositories."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.kit.instances import FrameClient

from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse


class TritonInstance:
    """Loads model folders, and asks them by JSON."""

    def __init__(self, client: FrameClient) -> None:
        self.client = client
        self._numbers = itertools.count(1)
        self.copy = 0  #: the one loaded last

    def load(self, folder: Path, **more: Any) -> dict[str, Any]:
        """The description for gateways."""
        self.copy = next(self._numbers)
        description: dict[str, Any] = self.client.serve(self.copy, folder, **more)["description"]
        return description

    def refusal(self, folder: Path, **more: Any) -> dict[str, Any]:
        """The error of a model that does not load."""
        loaded = self.client.load(next(self._numbers), folder, **more)
        assert not loaded.get("ok"), loaded
        error: dict[str, Any] = loaded["error"]
        return error

    def ask(
        self, outputs: Sequence[dict[str, Any]] = (), **inputs: np.ndarray
    ) -> dict[str, np.ndarray]:
        answer = self.client.invoke(self.copy, body(outputs, inputs), door="oip")
        return {
            each["name"]: np.array(each["data"]).reshape(each["shape"])
            for each in answer.json["outputs"]
        }

    def error(self, **inputs: np.ndarray) -> dict[str, Any]:
        return self.client.invoke(self.copy, body((), inputs), door="oip").error

    def ask_grpc(self, request: Any) -> Any:
        answer = self.client.invoke(
            self.copy,
            request.SerializeToString(),
            door="oip-grpc",
            content_type="application/x-oip-grpc",
        )
        return ModelInferResponse.FromString(answer.body)


def body(outputs: Sequence[dict[str, Any]], inputs: dict[str, np.ndarray]) -> bytes:
    tensors = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": DTYPES[array.dtype.kind + str(array.itemsize)],
            "data": array.reshape(-1).tolist(),
        }
        for name, array in inputs.items()
    ]
    asked: dict[str, Any] = {"inputs": tensors}
    if outputs:
        asked["outputs"] = list(outputs)
    return json.dumps(asked).encode()


DTYPES = {"f4": "FP32", "f8": "FP64", "i8": "INT64", "i4": "INT32", "O8": "BYTES", "b1": "BOOL"}


def grpc_request(**inputs: np.ndarray) -> Any:
    request = ModelInferRequest(model_name="e")
    for name, array in inputs.items():
        kind = DTYPES[array.dtype.kind + str(array.itemsize)]
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request

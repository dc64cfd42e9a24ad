"""Models that keep the state of sequences: each adds up what a sequence is sent. Their requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tests.kit import triton_files
from tests.kit.model_files import value, write_onnx

#: What a Python model is told: whether a row is one, where its sequence is, whose it is.
CONTROLS = """
  control_input [
    { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } },
    { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } },
    { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } },
    { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_%s } }
  ]
"""
#: `total` is the sum of the sequence's `x`; `seen` is (rows of the batch, row, which are padding as
#: bits, process). The model tells sequences apart by their ids alone, so a mixed up one shows.
#: An `x` of -13 raises once it is counted; -100 ends the process.
ADDS = """
class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        ready = [given(each, "READY").item() > 0 for each in requests]
        padding = sum(1 << row for row, it in enumerate(ready) if not it)
        return [
            self.one(each, (len(requests), row, padding, os.getpid()), ready[row])
            for row, each in enumerate(requests)
        ]

    def one(self, request, seen, ready):
        x = given(request, "x").item()
        if not ready:
            return answer(total=np.full((1, 1), -1, np.int64), seen=np.array([seen], np.int64))
        if x == -100:
            os._exit(3)
        who = given(request, "CORRID").item()
        if given(request, "START").item():
            self.totals[who] = 0
        if who not in self.totals:
            raise RuntimeError(f"no state of {who}")
        self.totals[who] += x
        total = self.totals[who]
        if given(request, "END").item():
            del self.totals[who]
        if x == -13:
            raise RuntimeError("13 is bad luck")
        return answer(total=np.full((1, 1), total, np.int64), seen=np.array([seen], np.int64))
"""


def adding(
    folder: Path, *, batching: str = "direct { }", rows_max: int = 4, lanes: int = 1,
    idle_s: float = 60.0, corrid: str = "UINT64", source: str = ADDS, more: str = "",
) -> Path:  # fmt: skip
    """A Python model: `x` INT64 [1] -> `total` INT64 [1], `seen` INT64 [4]."""
    return triton_files.python(
        folder, source,
        inputs=[("x", "INT64", [1])],
        outputs=[("total", "INT64", [1]), ("seen", "INT64", [4])],
        rows_max=rows_max,
        more=f"sequence_batching {{ {batching} {CONTROLS % corrid}"
        f"max_sequence_idle_microseconds: {round(idle_s * 1e6)} }}\n"
        f"instance_group {{ count: {lanes} }}\n{more}",
    )  # fmt: skip


def adding_onnx(
    folder: Path, *, batching: str = "direct { }", rows_max: int = 4, initial: str = "",
    backend: str = "onnxruntime",
) -> Path:  # fmt: skip
    """`x` FP32 [1] -> `total` FP32 [1]: the sum of its sequence, which goes around as a state.

    The graph knows of no beginning: that the state is new then is the server's doing. A row that is
    none (READY) is multiplied away.
    """
    write_onnx(
        folder / "1" / "model.onnx",
        [
            helper.make_node("Mul", ["x", "READY"], ["added"]),
            helper.make_node("Add", ["added", "before"], ["total"]),
            helper.make_node("Identity", ["total"], ["after"]),
        ],
        [value(name, TensorProto.FLOAT, ["n", 1]) for name in ("x", "READY", "before")],
        [value(name, TensorProto.FLOAT, ["n", 1]) for name in ("total", "after")],
    )
    return triton_files.config(
        folder,
        inputs=[("x", "FP32", [1])],
        outputs=[("total", "FP32", [1])],
        rows_max=rows_max,
        backend=backend,
        more=f"sequence_batching {{ {batching} max_sequence_idle_microseconds: 60000000\n"
        'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY'
        " fp32_false_true: [ 0, 1 ] } }\n"
        'state { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: 1'
        f" {initial} }} }}",
    )


def step(x: float, sequence: int | str | None, marks: str = "", *, dtype: str = "INT64") -> bytes:
    """A request. `marks`: "(" where it begins the sequence, ")" where it ends it."""
    told: dict[str, Any] = {"inputs": [one_value("x", x, dtype)]}
    if sequence is not None:
        told["parameters"] = {"sequence_id": sequence}
        told["parameters"] |= {"sequence_start": True} if "(" in marks else {}
        told["parameters"] |= {"sequence_end": True} if ")" in marks else {}
    return json.dumps(told).encode()


def one_value(name: str, x: float, dtype: str) -> dict[str, Any]:
    return {"name": name, "datatype": dtype, "shape": [1, 1], "data": [x]}


def outputs_of(answer: dict[str, Any]) -> dict[str, np.ndarray]:
    return {
        each["name"]: np.array(each["data"]).reshape(each["shape"]) for each in answer["outputs"]
    }


def total_of(answer: dict[str, Any]) -> float:
    return float(outputs_of(answer)["total"].item())

"""Writes the echo as an ONNX graph: one Identity over FP32 [batch, 4]. Needs the package `onnx`.

    python examples/echo/onnx_identity.py DIRECTORY

makes DIRECTORY/model.onnx and DIRECTORY/model.yaml, which `penstock serve DIRECTORY` deploys.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

DESCRIPTION = """\
schema: 1
runtime: openvino
file: model.onnx
batching:
  rows_max: 64
"""


def write(folder: Path) -> Path:
    """Returns the model file."""
    shape = ["batch", 4]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "echo",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    (folder / "model.yaml").write_text(DESCRIPTION)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))

"""Writes the example's artifacts: `python make.py DIRECTORY` (needs the package `onnx`).

The encoders are fixed random projections, and `next_letter` counts which letter follows three
others in a few phrases: models without training, that run as real ones do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
LETTERS = "\0 abcdefghijklmnopqrstuvwxyz"  #: the first one ends a text
PHRASES = (
    "how do i reset my password",
    "how do i cancel my order",
    "where is my order",
    "thank you for your help",
)
TOKENS = 256  #: size of `tokens`' answer


def save(path: Path, nodes: list[onnx.NodeProto], x: tuple[str, int, int], y: tuple[str, int],
         constants: dict[str, np.ndarray]) -> None:  # fmt: skip
    graph = helper.make_graph(
        nodes, path.parent.name,
        [helper.make_tensor_value_info(x[0], x[1], ["rows", x[2]])],
        [helper.make_tensor_value_info(y[0], TensorProto.FLOAT, ["rows", y[1]])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


def encoder(path: Path, size: int) -> None:
    """`counts` FP32 [rows, TOKENS] -> `vector` FP32 [rows, size], of length 1."""
    weights = np.random.default_rng(size).normal(size=(TOKENS, size)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["counts", "weights"], ["sums"]),
        helper.make_node("ReduceL2", ["sums"], ["length"], axes=[1]),
        helper.make_node("Max", ["length", "least"], ["at_least"]),
        helper.make_node("Div", ["sums", "at_least"], ["vector"]),
    ]
    constants = {"weights": weights, "least": np.array([1e-6], np.float32)}
    save(path, nodes, ("counts", TensorProto.FLOAT, TOKENS), ("vector", size), constants)


def next_letter(path: Path) -> None:
    """`last` INT64 [rows, 1], three letters as one number -> `scores` FP32 [rows, letters]."""
    size = len(LETTERS)
    scores = np.zeros((size**3, size), np.float32)
    for phrase in PHRASES:
        codes = [LETTERS.index(letter) for letter in phrase + "\0"]
        for a, b, c, following in zip(codes, codes[1:], codes[2:], codes[3:], strict=False):
            scores[(a * size + b) * size + c, following] += 1
    nodes = [
        helper.make_node("Squeeze", ["last", "axis"], ["number"]),
        helper.make_node("Gather", ["table", "number"], ["scores"]),
    ]
    constants = {"table": scores, "axis": np.array([1], np.int64)}
    save(path, nodes, ("last", TensorProto.INT64, 1), ("scores", size), constants)


def main(folder: Path) -> None:
    for name in ("repository", "pipeline"):
        shutil.copytree(HERE / name, folder / name, dirs_exist_ok=True)
    for name, size in (("small", 4), ("large", 16)):
        encoder(folder / "repository" / name / "1" / "model.onnx", size)
        encoder(folder / "pipeline" / "models" / name / "model.onnx", size)
    next_letter(folder / "repository" / "next_letter" / "1" / "model.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

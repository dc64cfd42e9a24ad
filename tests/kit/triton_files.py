"""Small Triton repositories on disk: models of ONNX and Python, ensembles of them, and callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from tests.kit.model_files import value, weights, write_onnx

Tensors = Sequence[tuple[str, str, Sequence[int]]]  #: name, data type without TYPE_, dims


def config(
    folder: Path,
    *,
    inputs: Tensors,
    outputs: Tensors,
    rows_max: int = 8,
    backend: str = "",
    more: str = "",
) -> Path:
    """config.pbtxt of a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'backend: "{backend}"'] if backend else []
    lines.append(f"max_batch_size: {rows_max}")
    for kind, tensors in (("input", inputs), ("output", outputs)):
        lines += [
            f'{kind} {{ name: "{name}" data_type: TYPE_{dtype} dims: {list(dims)} }}'
            for name, dtype, dims in tensors
        ]
    (folder / "config.pbtxt").write_text("\n".join([*lines, more]))
    return folder


def python(folder: Path, source: str, **about: object) -> Path:
    config(folder, backend="python", **about)  # type: ignore[arg-type]
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "model.py").write_text(HEAD + source)
    return folder


HEAD = """
import asyncio, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

def given(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def answer(**tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in tensors.items()])

def call(model, outputs, **tensors):
    return pb_utils.InferenceRequest(
        model_name=model, requested_output_names=outputs,
        inputs=[pb_utils.Tensor(n, a) for n, a in tensors.items()])
"""


def affine(
    folder: Path, *, rows_max: int = 8, delay_us: int = 0, lanes: int = 1, factor: float = 1.0
) -> Path:
    """`x` FP32 [n, 4] -> `y` FP32 [n, 3] = x @ weights() * factor, by ONNX Runtime."""
    write_onnx(
        folder / "1" / "model.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, ["n", 3])],
        [("w", (weights() * factor).astype(np.float32))],
    )
    return config(
        folder,
        inputs=[("x", "FP32", [4])],
        outputs=[("y", "FP32", [3])],
        rows_max=rows_max,
        backend="onnxruntime",
        more=f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}\n"
        f"instance_group {{ count: {lanes} }}",
    )


def steps(*each: tuple[str, Mapping[str, str], Mapping[str, str]]) -> str:
    """`ensemble_scheduling` of (model, input map, output map)."""
    made = []
    for model, inputs, outputs in each:
        maps = [
            f'{kind}_map {{ key: "{key}" value: "{to}" }}'
            for kind, entries in (("input", inputs), ("output", outputs))
            for key, to in entries.items()
        ]
        made.append(f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}')
    return "ensemble_scheduling { " + "\n".join(made) + " }"


def ensemble(
    folder: Path,
    *each: tuple[str, Mapping[str, str], Mapping[str, str]],
    inputs: Tensors,
    outputs: Tensors,
    rows_max: int = 8,
) -> Path:
    (folder / "1").mkdir(parents=True, exist_ok=True)
    scheduling = steps(*each)
    return config(
        folder, inputs=inputs, outputs=outputs, rows_max=rows_max,
        more=f'platform: "ensemble"\n{scheduling}',
    )  # fmt: skip


#: A text's first four letters as numbers; "!" ends the process, "?" is refused.
LETTERS = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = given(request, "text").reshape(-1)
            if b"!" in texts:
                os._exit(3)
            if b"?" in texts:
                error = pb_utils.TritonError("no questions", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            rows = [[float(c - 96) for c in text.ljust(4, b"`")[:4]] for text in texts]
            responses.append(answer(letters=np.array(rows, np.float32)))
        return responses
"""


def embeddings(root: Path, *, delay_us: int = 0) -> Path:
    """`TEXT` [n, 1] -> letters (Python) -> two encoders side by side -> `SMALL`, `LARGE` [n, 3]."""
    python(
        root / "letters", LETTERS,
        inputs=[("text", "STRING", [1])], outputs=[("letters", "FP32", [4])],
    )  # fmt: skip
    affine(root / "small", delay_us=delay_us)
    affine(root / "large", factor=10.0)
    ensemble(
        root / "embed",
        ("small", {"x": "numbers"}, {"y": "SMALL"}),
        ("letters", {"text": "TEXT"}, {"letters": "numbers"}),
        ("large", {"x": "numbers"}, {"y": "LARGE"}),
        inputs=[("TEXT", "STRING", [1])],
        outputs=[("SMALL", "FP32", [3]), ("LARGE", "FP32", [3])],
    )
    return root


def letters(*texts: str) -> np.ndarray:
    rows = [[float(ord(c) - 96) for c in text.ljust(4, "`")[:4]] for text in texts]
    return np.array(rows, np.float32)

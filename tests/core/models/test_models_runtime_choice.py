"""Which runtime serves a file that several read: literal tables of what was tried."""

from __future__ import annotations

import pytest

from penstock.core.models.runtime_choice import RefuseFile, TakeRuntime, TryRuntime, decide

FIRST = "openvino does not take m.onnx: no TreeEnsemble"


@pytest.mark.parametrize(
    ("runtimes", "refusals", "choice"),
    [
        # who names a runtime gets that one, untried
        ("openvino", [], TakeRuntime("openvino", "")),
        # the preferred one is tried first, and taken where it takes the file
        ("openvino onnxruntime", [], TryRuntime("openvino")),
        ("openvino onnxruntime", [""], TakeRuntime("openvino", "")),
        # refused there, the next one is tried; who gets it is told why
        ("openvino onnxruntime", ["no TreeEnsemble"], TryRuntime("onnxruntime")),
        ("openvino onnxruntime", ["no TreeEnsemble", ""], TakeRuntime("onnxruntime", FIRST)),
        ("openvino onnxruntime third", ["no TreeEnsemble", "no opset 99"], TryRuntime("third")),
        # refused by all, the reasons of all are told
        (
            "openvino onnxruntime",
            ["no TreeEnsemble", "no opset 99"],
            RefuseFile(f"{FIRST}; and onnxruntime does not take it either: no opset 99"),
        ),
    ],
)
def test_the_first_runtime_that_takes_the_file_serves_it(
    runtimes: str, refusals: list[str], choice: object
) -> None:
    assert decide("m.onnx", runtimes.split(), refusals) == choice

"""Several versions of one model, served at once and named by requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import triton_files
from tests.kit.model_files import value, weights, write_onnx
from triton_instance import TritonInstance, body

from penstock.instance.engines.versions import VersionedEngine

X = np.array([[1.0, 0.0, 0.0, 2.0]], np.float32)


def versions(folder: Path, policy: str, numbers: tuple[int, ...] = (1, 3, 10)) -> Path:
    """Each multiplies by its number."""
    for number in numbers:
        made = triton_files.affine(folder.with_name(f"v{number}"), factor=number)
        (folder / str(number)).mkdir(parents=True)
        (made / "1" / "model.onnx").rename(folder / str(number) / "model.onnx")
    tensors = [("x", "FP32", [4])], [("y", "FP32", [3])]
    return triton_files.config(
        folder, inputs=tensors[0], outputs=tensors[1], more=f"version_policy {{ {policy} }}"
    )


def ask(served: TritonInstance, version: str) -> Any:
    parameters = json.dumps({"version": version}) if version else None
    answer = served.client.invoke(
        served.copy, body((), {"x": X}), door="oip", parameters=parameters
    )
    return answer.json


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["10"]),
        ("latest { }", ["10"]),
        ("latest { num_versions: 2 }", ["3", "10"]),
        ("latest { num_versions: 9 }", ["1", "3", "10"]),
        ("latest { num_versions: -1 }", ["1", "3", "10"]),
        ("all { }", ["1", "3", "10"]),
        ("specific { versions: [ 1, 3, 7 ] }", ["1", "3"]),
    ],
)
def test_the_policy_says_which_versions_are_served(
    served: TritonInstance, tmp_path: Path, policy: str, expected: list[str]
) -> None:
    described = served.load(versions(tmp_path / "m", policy))
    assert described["versions"] == expected
    for version in expected:
        answer = ask(served, version)
        assert answer["model_version"] == version
        made = np.array(answer["outputs"][0]["data"])
        np.testing.assert_allclose(made, (X @ weights())[0] * int(version))
    assert ask(served, "")["model_version"] == expected[-1], "the highest is the default"


def test_a_version_that_is_not_served_is_not_found(served: TritonInstance, tmp_path: Path) -> None:
    served.load(versions(tmp_path / "m", "latest { num_versions: 2 }"))
    answer = served.client.invoke(
        served.copy, body((), {"x": X}), door="oip", parameters='{"version": "1"}'
    )
    assert answer.error["code"] == "model-version-not-found"
    assert answer.error["original_status"] == 404


def test_a_version_that_does_not_load_fails_the_model_and_is_named(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = versions(tmp_path / "m", "all { }")
    write_onnx(
        folder / "3" / "model.onnx",
        [helper.make_node("Abs", ["z"], ["y"])],
        [value("z", TensorProto.FLOAT, ["n", 3])],
        [value("y", TensorProto.FLOAT, ["n", 3])],
    )
    error = served.refusal(folder)
    assert error["message"].startswith("version 3: config.pbtxt names the input 'x'")


def test_an_ensemble_names_a_version_of_its_model(served: TritonInstance, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    versions(root / "m", "all { }")
    for number in (1, 3, 10):
        (root / f"v{number}" / "config.pbtxt").unlink()
    triton_files.ensemble(
        root / "both",
        ("m", {"x": "X"}, {"y": "NEW"}),
        ("m", {"x": "X"}, {"y": "OLD"}),
        inputs=[("X", "FP32", [4])],
        outputs=[("NEW", "FP32", [3]), ("OLD", "FP32", [3])],
    )
    config = root / "both" / "config.pbtxt"
    head, _, tail = config.read_text().rpartition("model_version: -1")
    config.write_text(f"{head}model_version: 3{tail}")
    served.load(root)
    made = served.ask(X=X)
    np.testing.assert_allclose(made["NEW"], X @ weights() * 10)
    np.testing.assert_allclose(made["OLD"], X @ weights() * 3)


class RecordingEngine:
    """An engine that answers what it was given, later."""

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def run(self, lane: int, items: list[Any], bucket: int, done: Any) -> None:
        self.runs.append((lane, [item.data for item in items], done))


class WaitingItem:
    def __init__(self, data: Any) -> None:
        self.data = data


def test_a_batch_of_two_versions_is_done_when_both_are() -> None:
    old, new = RecordingEngine(), RecordingEngine()
    engine = VersionedEngine({"1": old, "2": new}, "2")
    ended: list[Any] = []
    items: list[Any] = [WaitingItem(("1", "a")), WaitingItem(("2", "b")), WaitingItem(("1", "c"))]
    engine.run(0, items, 0, ended.append)
    (lane, data, done), (_, other, other_done) = old.runs[0], new.runs[0]
    assert (lane, data, other) == (0, ["a", "c"], ["b"])
    done(["A", "C"])
    assert ended == []
    other_done(ValueError("b failed"))
    assert [str(each) for each in ended[0]] == ["A", "b failed", "C"]

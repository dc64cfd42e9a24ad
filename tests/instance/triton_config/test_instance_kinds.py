"""On what each instance group is, and what a Python model is told of its own instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit import triton_files as files
from triton_instance import TritonInstance

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.description.triton_facts import TritonFacts
from penstock.errors import ModelError
from penstock.instance.loading.triton_tensors import with_kinds
from penstock.runtimes.python.triton_backend_utils import instance_of

#: Answers with what `initialize` was told of its instance.
TOLD = """
import json

class TritonPythonModel:
    def initialize(self, args):
        self.told = {key: args["model_instance_" + key] for key in ("kind", "name", "device_id")}

    def execute(self, requests):
        told = np.array([[json.dumps(self.told)]], object)
        return [answer(told=told) for _ in requests]
"""


def group(kind: str, *gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": "g", "kind": f"KIND_{kind}", "gpus": list(gpus), "count": 1, **more}


def described(*groups: dict[str, Any]) -> ModelDescription:
    facts = TritonFacts(config={"instance_group": list(groups)})
    return ModelDescription(runtime="onnxruntime", file="model.onnx", triton=facts)


@pytest.mark.parametrize(
    ("given", "accelerators", "found"),
    [
        (group("AUTO"), 0, group("CPU")),
        (group("AUTO"), 2, group("GPU", 0, 1)),
        (group("AUTO", 1), 2, group("GPU", 1)),
        (group("AUTO", 5), 2, group("CPU")),  # one that it names is not there
        (group("GPU"), 2, group("GPU", 0, 1)),
        (group("GPU", 1), 2, group("GPU", 1)),
        (group("CPU"), 2, group("CPU")),
        (group("MODEL"), 2, group("MODEL")),
    ],
)
def test_a_group_has_the_kind_and_the_gpus_that_triton_gives_it(
    given: dict[str, Any], accelerators: int, found: dict[str, Any]
) -> None:
    facts = with_kinds(described(given), accelerators).triton
    assert facts is not None
    assert facts.config["instance_group"] == [found]


@pytest.mark.parametrize(
    ("given", "accelerators", "words"),
    [
        (group("GPU"), 0, "has kind KIND_GPU, and the instance has no GPU"),
        (group("GPU", 0), 0, "has kind KIND_GPU, and the instance has no GPU"),
        (group("GPU", 0, 2), 2, "asks for GPU 2, and the instance has GPUs 0 to 1"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(
    given: dict[str, Any], accelerators: int, words: str
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        with_kinds(described(given), accelerators)
    assert caught.value.code == "gpu-missing"


def test_lanes_are_the_instances_of_the_groups_in_their_order() -> None:
    config = {
        "instance_group": [
            group("GPU", 0, 1, count=3),
            group("CPU", count=2, passive=True),
            group("MODEL", name="h"),
        ]
    }
    assert [instance_of(config, lane, "m") for lane in range(5)] == [
        ("GPU", "g_0", 0), ("GPU", "g_1", 1), ("GPU", "g_2", 0), ("MODEL", "h_0", 0),
        ("CPU", "m_0", 0),
    ]  # fmt: skip
    assert instance_of({}, 0, "m") == ("CPU", "m_0", 0)


def test_a_python_model_is_told_of_its_instance_and_config_shows_it(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = files.python(
        tmp_path / "told", TOLD, inputs=[("x", "FP32", [1])], outputs=[("told", "STRING", [1])],
        more="instance_group { count: 2 }",
    )  # fmt: skip
    shown = served.load(folder)["config"]["instance_group"]
    assert [(each["name"], each["kind"], each["count"]) for each in shown] == [
        (f"{shown[0]['name']}", "KIND_CPU", 2)
    ]
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    answer = served.client.invoke(served.copy, body, door="oip")
    told = json.loads(answer.json["outputs"][0]["data"][0])
    assert (told["kind"], told["device_id"]) == ("CPU", "0")
    assert told["name"] in {f"{shown[0]['name']}_{lane}" for lane in range(2)}

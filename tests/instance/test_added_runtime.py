"""A runtime is added from one folder: a record and a loader, and nothing else knows of it.

The folder is `tests/runtimes/toy_runtime`, added by the call that adds those of Penstock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, instance

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.detection.detect import detect
from penstock.core.models.memory_need import MemoryRule
from penstock.errors import CallerError
from penstock.instance.memory.facts import facts_of
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext

ROOT = Path(__file__).resolve().parents[2]
TOY = "tests.runtimes.toy_runtime"
SQUARE = "polynomial 1 0 2\n"
#: An instance that has it: what a line in `registry` does for Penstock's own.
WITH_TOY = (
    "import runpy; from penstock.runtimes import registry;"
    f"registry.add({TOY!r}); runpy.run_module('penstock.instance', run_name='__main__')"
)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RECORDS", dict(registry._RECORDS))
    registry.add(TOY)


def artifact(folder: Path, **texts: str) -> Path:
    """`model_txt="..."` is model.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".", 1)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.usefixtures("added")
def test_its_files_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    found = detect(artifact(tmp_path / "m", sums_txt=SQUARE, notes_txt="polynomials, and more"))
    described = found.description
    assert (described.runtime, described.file, described.task) == (
        "polynomial", "sums.txt", "tensor",
    )  # fmt: skip
    assert described.batching.rows_max == 8
    with pytest.raises(CallerError, match="cut short"):
        detect(artifact(tmp_path / "torn", model_txt="polynomial 1 0"))
    with pytest.raises(CallerError, match="is a model for openvino"):
        detect(model_files.affine(tmp_path / "onnx"), runtime="polynomial")
    with pytest.raises(CallerError) as caught:
        detect(artifact(tmp_path / "other", notes_txt="notes"))
    assert caught.value.hint.endswith("; *.txt of a polynomial.")


@pytest.mark.usefixtures("added")
def test_it_may_be_named_by_the_user_by_a_model_yaml_and_by_triton(tmp_path: Path) -> None:
    texts = {"sums_txt": SQUARE, "model_yaml": "schema: 1\nruntime: polynomial\n"}
    assert detect(artifact(tmp_path / "m", **texts)).description.file == "sums.txt"
    image = detect(artifact(tmp_path / "i", sums_txt=SQUARE), image="local://polynomial")
    assert image.description.runtime == "polynomial"
    config = (
        'input [{name: "x" data_type: TYPE_FP32 dims: [1]}]\n'
        'output [{name: "y" data_type: TYPE_FP32 dims: [1]}]\n'
    )
    for backend in ("", 'backend: "polynomial"\n'):
        folder = artifact(tmp_path / f"t{len(backend)}", config_pbtxt=backend + config,
                          **{"1__model_txt": SQUARE})  # fmt: skip
        triton = detect(folder)
        assert (triton.description.runtime, triton.description.file) == (
            "polynomial", "1/model.txt",
        )  # fmt: skip


@pytest.mark.usefixtures("added")
def test_the_rules_of_model_yaml_hold_for_it(tmp_path: Path) -> None:
    for line, allowed in (
        ("task: payload", "one of tensor"),
        ("task: text2text-generation\ntokenizer: {}", "seq2seq or torch"),
        ("precision: f32", "runtime: openvino, torch"),
        ("command: [serve]", "runtime: process, and only there"),
        ("file: other.onnx", "ends in .txt"),
    ):
        text = f"schema: 1\nruntime: polynomial\n{line}\n"
        with pytest.raises(CallerError) as caught:
            detect(artifact(tmp_path / "m", model_yaml=text, sums_txt=SQUARE))
        assert allowed in caught.value.hint
    text = "schema: 1\nruntime: polynomial\npinned: true\nlanes: 2\n"
    found = detect(artifact(tmp_path / "m", model_yaml=text)).description
    assert (found.pinned, found.lanes) == (True, 2)


@pytest.mark.usefixtures("added")
def test_its_memory_is_estimated_by_its_rule(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "m", sums_txt=SQUARE)
    context = LoadContext(
        model_dir=folder, description=ModelDescription(runtime="polynomial", file="sums.txt"),
        endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0,
    )  # fmt: skip
    facts = facts_of(context)
    assert (facts.rule, facts.file_bytes) == (MemoryRule(factor=4.0), len(SQUARE))


def test_without_it_its_files_are_nothing_that_is_understood(tmp_path: Path) -> None:
    with pytest.raises(CallerError) as caught:
        detect(artifact(tmp_path / "m", sums_txt=SQUARE))
    assert caught.value.code == "artifact-layout-unknown"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FrameClient]:
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = (sys.executable, "-c", WITH_TOY)
    with instance(tmp_path / "i", environment=environment, command=command) as running:
        made = running.client()
        yield made
        made.close()


def test_an_instance_serves_it(client: FrameClient, tmp_path: Path) -> None:
    loaded = client.load(1, artifact(tmp_path / "m", sums_txt=SQUARE))
    described = loaded["description"]
    assert (described["runtime"], described["platform"]) == ("polynomial", "toy_polynomial")
    assert described["lane_rows_max"] == 8
    json_type = {"content_type": "application/json", "accept": "application/json"}
    idents = [client.send(1, b"[%d]" % x, **json_type) for x in range(4)]
    answers = [FrameAnswer(client.answer(ident)).json for ident in idents]
    assert [answer["predictions"] for answer in answers] == [[1.0], [3.0], [9.0], [19.0]]

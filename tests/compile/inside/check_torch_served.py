"""Models of runtime `torch` behind a real instance, on the CPU: texts in, answers out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from check_torch_seq2seq import artifact
from tests.kit import seq2seq_models as tiny
from tests.kit.instances import FrameClient, instance
from torch_artifacts import encoder, export

INTENT, WRITER, BARE = 1, 2, 3
SOURCES = tiny.SOURCES[2:5]
TEXTS = [" ".join(f"w{token}" for token in source) for source in SOURCES]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("torch")
    tiny_models.save(folder / "saved", "bert", id2label={0: "buy", 1: "track", 2: "return"})
    encoder(folder / "intent", folder / "saved", "cuda-fp32")
    artifact(folder / "writer", "t5")
    (folder / "bare").mkdir()
    export(folder / "bare" / "double.pt2")
    with instance(folder) as running:
        client = running.client()
        for copy, name in ((INTENT, "intent"), (WRITER, "writer"), (BARE, "bare")):
            loaded = client.load(copy, folder / name)
            assert loaded.get("ok"), loaded
            assert loaded["description"]["platform"] == "pytorch_pt2"
        yield client
        client.close()


def ask(served: FrameClient, copy: int, body: Any) -> Any:
    return served.invoke(copy, json.dumps(body).encode(), content_type="application/json")


def test_a_text_classifier_answers_labels(served: FrameClient) -> None:
    (first,) = ask(served, INTENT, {"inputs": "red running shoes"}).json
    assert first["label"] in ("buy", "track", "return")
    assert 0.0 < first["score"] <= 1.0


def test_texts_are_written_as_generate_writes_them(served: FrameClient) -> None:
    body = {"inputs": TEXTS, "parameters": {"max_new_tokens": 20}}
    wanted = [
        {"generated_text": " ".join(f"w{token}" for token in tokens if token > 2)}
        for tokens in tiny.answers()["t5"]["greedy"][2:5]
    ]
    assert ask(served, WRITER, body).json == wanted


def test_tensors_go_through_a_bare_program(served: FrameClient) -> None:
    x = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
    answer = served.invoke(BARE, json.dumps({"inputs": [x]}).encode(), door="oip").json
    (output,) = answer["outputs"]
    assert output["data"] == [2.0, 4.0, 6.0, 8.0]


def test_a_damaged_program_does_not_start_and_disturbs_nobody(
    served: FrameClient, tmp_path: Path
) -> None:
    export(tmp_path / "model.pt2")
    content = (tmp_path / "model.pt2").read_bytes()
    (tmp_path / "model.pt2").write_bytes(content[: len(content) // 2])
    loaded = served.load(9, tmp_path)
    assert loaded["error"]["code"] == "model-file-invalid"
    assert ask(served, INTENT, {"inputs": "a"}).json[0]["label"] in ("buy", "track", "return")

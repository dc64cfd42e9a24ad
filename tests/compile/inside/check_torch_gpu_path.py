"""What is done with streams and CUDA graphs, on an emulation of them (see `emulated_cuda`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from check_torch_seq2seq import artifact, decode, everything
from emulated_cuda import Emulated
from tests.kit import seq2seq_models as tiny
from torch_artifacts import Scaled, context, encoder, export

from penstock.runtimes.loader import load_seq2seq_model, load_tensor_runtime
from penstock.runtimes.pytorch import runtime as torch_runtime
from penstock.runtimes.pytorch import seq2seq as torch_seq2seq
from penstock.runtimes.pytorch.library import Graphs
from penstock.runtimes.seq2seq.request import GenerationRequest


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Emulated:
    library = Emulated()
    for module in (torch_runtime, torch_seq2seq):
        monkeypatch.setattr(module, "torch_library", lambda: library)
        monkeypatch.setattr(module, "is_gpu", lambda device: True)
        monkeypatch.setattr(module, "shown", lambda torch, device: "emulated")
    return library


def batch(rows: int, tokens: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(rows)
    ids = random.integers(5, 90, (rows, tokens))
    return {"input_ids": ids, "attention_mask": np.ones((rows, tokens), dtype=np.int64)}


def test_every_declared_shape_is_captured_and_other_shapes_run_without(
    emulated: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_models.save(tmp_path / "saved", "bert", id2label={0: "buy", 1: "track"})
    graph = encoder(tmp_path / "made", tmp_path / "saved", "cuda-fp32")
    told: list[str] = []
    runtime = load_tensor_runtime(context(tmp_path / "made", log=told.append, lanes=2))
    # rows 1, 2, 4, 8 in the buckets 8, 16, 32, on each of two lanes
    assert told == ["emulated", *["12 CUDA graphs for 12 shapes"] * 2]
    for rows, tokens, captured in ((1, 8, True), (3, 16, True), (8, 32, True), (3, 9, False)):
        before = sum(each.replays for each in emulated.graphs)
        inputs = batch(rows, tokens)
        for lane in (0, 1):
            given = runtime.run(lane, inputs)["logits"]
            assert given.shape == (rows, 2)
            assert np.abs(given - graph.run(inputs)["logits"]).max() < 1e-5
        assert sum(each.replays for each in emulated.graphs) - before == (2 if captured else 0)


def test_an_answer_stays_as_it_is_when_the_next_batch_runs(
    emulated: Emulated, tmp_path: Path
) -> None:
    export(tmp_path / "double.pt2")
    (tmp_path / "model.yaml").write_text(
        "schema: 1\nruntime: torch\nbatching: {rows_max: 4}\n"
        "outputs: [{name: y, dtype: FP32, shape: [-1, 4]}]\n"
    )
    runtime = load_tensor_runtime(context(tmp_path))
    first = runtime.run(0, {"x": np.full((3, 4), 1.5, dtype=np.float32)})["y"]
    second = runtime.run(0, {"x": np.full((2, 4), -1.0, dtype=np.float32)})["y"]
    assert (first.tolist(), second.tolist()) == ([[3.0] * 4] * 3, [[-2.0] * 4] * 2)
    assert sum(each.replays for each in emulated.graphs) == 2


def test_work_that_waits_for_the_gpu_is_not_captured_and_the_reason_is_kept() -> None:
    library = Emulated()
    graphs = Graphs(library, library.cuda.Stream())
    value = torch.ones(3)
    assert graphs.captured(lambda: value * float(value.sum().item())) is None
    assert "not permitted when stream is capturing" in graphs.reason
    assert graphs.captured(lambda: value * 2.0) is None  # nothing more is tried


def test_a_model_that_cannot_be_captured_answers_all_the_same(
    emulated: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(emulated.cuda, "graph", refuse)
    export(tmp_path / "double.pt2", Scaled())
    (tmp_path / "model.yaml").write_text("schema: 1\nruntime: torch\nbatching: {rows_max: 2}\n")
    told: list[str] = []
    runtime = load_tensor_runtime(context(tmp_path, log=told.append))
    assert told[1].startswith("0 CUDA graphs for 2 shapes: CUDA error: operation not permitted")
    answer = runtime.run(0, {"x": np.ones((2, 4), dtype=np.float32)})
    assert answer["output_0"].tolist() == [[2.0] * 4] * 2


def test_t5_with_captured_steps_answers_as_generate_does(
    emulated: Emulated, tmp_path: Path
) -> None:
    """Beams fork and rows move between replays; the caches stay where the graphs read them."""
    told: list[str] = []
    model = load_seq2seq_model(context(artifact(tmp_path / "a", "t5"), log=told.append))
    # rows 1, 2, 4, 8 by answers of 16, 32, 64 and sources of 16, 32, 64 tokens; prefills likewise
    assert told == [f"emulated: {4 * 3 * 3 + 4 * 3} CUDA graphs"]
    captured = len(emulated.graphs)
    asked = [
        (tiny.SOURCES[at], GenerationRequest(**tiny.REQUESTS[name])) for at, name in everything()
    ]
    wanted = [tiny.answers()["t5"][name][at] for at, name in everything()]
    assert decode(model, asked) == wanted
    assert len(emulated.graphs) == captured
    assert sum(each.replays for each in emulated.graphs) > 100
    model.close()

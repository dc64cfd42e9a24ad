"""Runtime `torch`: answers of exported programs on the CPU, and on a GPU where there is one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from torch_artifacts import Scaled, context, encoder, export

from penstock.artifacts.description.description import Batching, TensorSpec
from penstock.artifacts.detection.detect import detect
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.loader import load_tensor_runtime
from penstock.runtimes.pytorch.library import Graphs
from penstock.runtimes.pytorch.runtime import declared
from penstock.runtimes.tensor_bytes import row_steps

LABELS = {0: "buy", 1: "track", 2: "return"}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "intent"
    tiny_models.save(folder, "bert", id2label=LABELS)
    return folder


@pytest.fixture(scope="module", params=["cuda-fp32", "cuda-fp16", "cuda-bf16"])
def served(request: pytest.FixtureRequest, source: Path, tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("made") / request.param
    graph = encoder(root, source, request.param)
    return request.param, graph, load_tensor_runtime(context(root))


def batch(rows: int, tokens: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    mask = np.ones((rows, tokens), dtype=np.int64)
    mask[-1, tokens // 2 + 1 :] = 0
    return {"input_ids": random.integers(5, 90, (rows, tokens)), "attention_mask": mask}


def probabilities(logits: np.ndarray) -> np.ndarray:
    return np.asarray(torch.softmax(torch.from_numpy(logits), -1))


APART = {"cuda-fp32": 1e-5, "cuda-fp16": 0.02, "cuda-bf16": 0.06}


@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (1, 9), (8, 16), (5, 33)])
def test_answers_are_the_sources_in_every_shape(served: Any, rows: int, tokens: int) -> None:
    target, graph, runtime = served
    inputs = batch(rows, tokens)
    ours = runtime.run(0, inputs)["logits"]
    assert (ours.dtype, ours.shape) == (np.float32, (rows, 3))
    apart = np.abs(probabilities(ours) - probabilities(graph.run(inputs)["logits"])).max()
    assert apart <= APART[target]


def test_batch_mates_and_padding_change_no_answer(served: Any) -> None:
    """Other rows, other numbers of them, and a longer bucket: the first row's label and
    probabilities stay, up to the rounding of another order of additions."""
    target, _, runtime = served
    inputs = batch(8, 9)
    alone = probabilities(runtime.run(0, {k: v[:1] for k, v in inputs.items()})["logits"])
    for rows, bucket in ((2, 9), (8, 9), (8, 16), (3, 32)):
        padded = {k: np.pad(v[:rows], ((0, 0), (0, bucket - 9))) for k, v in inputs.items()}
        beside = probabilities(runtime.run(0, padded)["logits"])[:1]
        assert np.abs(beside - alone).max() <= APART[target] / 2
        assert beside.argmax() == alone.argmax()


def test_tensors_have_the_descriptions_names(served: Any) -> None:
    runtime = served[2]
    assert runtime.inputs == (
        TensorSpec(name="input_ids", dtype="INT64", shape=(-1, -1)),
        TensorSpec(name="attention_mask", dtype="INT64", shape=(-1, -1)),
    )
    assert [spec.name for spec in runtime.outputs] == ["logits"]


def test_an_id_that_the_model_does_not_know_is_refused_before_it_runs(served: Any) -> None:
    """A GPU would lose its context, and every model in the process with it."""
    runtime = served[2]
    for wrong in (200, -1):
        inputs = batch(2, 9)
        inputs["input_ids"][1, 3] = wrong
        with pytest.raises(ModelError, match=str(wrong)) as caught:
            runtime.run(0, inputs)
        assert (caught.value.code, caught.value.original_status) == ("input-out-of-range", 400)


def test_a_text_that_is_longer_than_the_models_positions_is_refused(served: Any) -> None:
    with pytest.raises(ModelError, match="66") as caught:
        served[2].run(0, batch(1, 67))
    assert caught.value.code == "model-failed"


def test_a_bare_program_is_detected_and_runs_one_request_at_a_time(tmp_path: Path) -> None:
    export(tmp_path / "double.pt2")
    loaded = context(tmp_path)
    assert (loaded.description.runtime, loaded.description.file) == ("torch", "double.pt2")
    assert loaded.description.batching.rows_max == 0
    runtime = load_tensor_runtime(loaded)
    answer = runtime.run(0, {"x": np.full((2, 4), 1.5, dtype=np.float32)})
    assert answer["output_0"].tolist() == [[3.0] * 4] * 2


def test_answers_do_not_share_memory_with_inputs(tmp_path: Path) -> None:
    class Same(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    export(tmp_path / "same.pt2", Same())
    runtime = load_tensor_runtime(context(tmp_path))
    x = np.ones((2, 4), dtype=np.float32)
    answer = runtime.run(0, {"x": x})["output_0"]
    x[:] = 7.0
    assert answer.tolist() == [[1.0] * 4] * 2


def test_bfloat16_at_the_edges_is_float32_for_callers(tmp_path: Path) -> None:
    export(tmp_path / "double.pt2", example=torch.ones(3, 4, dtype=torch.bfloat16))
    runtime = load_tensor_runtime(context(tmp_path))
    assert [spec.dtype for spec in (*runtime.inputs, *runtime.outputs)] == ["BF16", "BF16"]
    answer = runtime.run(0, {"x": np.full((1, 4), 1.5, dtype=np.float32)})["output_0"]
    assert (answer.dtype, answer.tolist()) == (np.float32, [[3.0] * 4])


def test_inputs_may_be_read_only_and_answers_come_from_every_lane(tmp_path: Path) -> None:
    export(tmp_path / "double.pt2")
    runtime = load_tensor_runtime(context(tmp_path, lanes=2))
    x = np.ones((1, 4), dtype=np.float32)
    x.flags.writeable = False
    assert runtime.lanes == 2
    assert [runtime.run(lane, {"x": x})["output_0"][0, 0] for lane in (0, 1)] == [2.0, 2.0]


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cpu:1", "cuda:-1"])
def test_an_unknown_device_is_refused_by_name(device: str, tmp_path: Path) -> None:
    export(tmp_path / "double.pt2")
    with pytest.raises(ModelError, match=device) as caught:
        load_tensor_runtime(context(tmp_path, parameters={"torch_device": device}))
    assert caught.value.code == "device-unknown"
    assert "cuda:N" in caught.value.hint


def test_a_gpu_that_is_not_there_is_said_to_be_absent(tmp_path: Path) -> None:
    export(tmp_path / "double.pt2")
    with pytest.raises(ModelError, match="cuda:999") as caught:
        load_tensor_runtime(context(tmp_path, parameters={"torch_device": "cuda:999"}))
    assert caught.value.code == "device-absent"
    assert "GPU" in caught.value.hint


def test_a_wrong_number_of_described_tensors_is_an_error(tmp_path: Path) -> None:
    export(tmp_path / "double.pt2")
    specs = tuple(TensorSpec(name=name, dtype="FP32", shape=(-1, 4)) for name in ("a", "b"))
    with pytest.raises(ModelError, match="2 inputs") as caught:
        load_tensor_runtime(context(tmp_path, inputs=specs))
    assert caught.value.code == "tensor-mismatch"


def test_a_program_compiled_when_it_is_loaded_answers_the_same(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    export(tmp_path / "double.pt2")
    runtime = load_tensor_runtime(
        context(tmp_path, parameters={"torch_compile": "true", "torch_device": "cpu"})
    )
    answer = runtime.run(0, {"x": np.full((3, 4), 1.5, dtype=np.float32)})["output_0"]
    assert answer.tolist() == [[3.0] * 4] * 3


def test_a_package_of_machine_code_needs_trust_and_names_for_its_tensors(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    program = torch.export.export(
        Scaled(), (torch.ones(3, 4),), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}}
    )
    path = str(tmp_path / "double.pt2")
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=path,
        inductor_configs={"aot_inductor.precompile_headers": False},  # it is one kernel
    )
    with pytest.raises(PenstockError) as caught:
        detect(tmp_path)
    assert caught.value.code == "artifact-untrusted"
    given: dict[str, Any] = {"trusted": True, "parameters": {"torch_device": "cpu"}}
    with pytest.raises(ModelError) as unnamed:
        load_tensor_runtime(context(tmp_path, **given))
    assert unnamed.value.code == "tensors-missing"
    spec = TensorSpec(name="x", dtype="FP32", shape=(-1, 4))
    runtime = load_tensor_runtime(context(tmp_path, inputs=(spec,), outputs=(spec,), **given))
    answer = runtime.run(0, {"x": np.full((2, 4), 1.5, dtype=np.float32)})["x"]
    assert answer.tolist() == [[3.0] * 4] * 2


def test_shapes_to_capture_are_those_that_the_description_promises() -> None:
    ids = TensorSpec(name="ids", dtype="INT64", shape=(-1, -1))
    size = TensorSpec(name="size", dtype="FP32", shape=(-1, 4))
    assert row_steps(0) == ()
    assert row_steps(6) == (1, 2, 4, 6)
    assert list(declared((ids, size), Batching(rows_max=2, buckets=(8, 16)))) == [
        ((2, 16), (2, 4)),
        ((1, 16), (1, 4)),
        ((2, 8), (2, 4)),
        ((1, 8), (1, 4)),
    ]
    assert list(declared((size,), Batching(rows_max=3))) == [((3, 4),), ((2, 4),), ((1, 4),)]
    assert list(declared((ids,), Batching(rows_max=2))) == []  # a free length that nothing bounds
    cut = list(declared((ids,), Batching(rows_max=1, buckets=(8, 16, 32)), 12))
    assert cut == [((1, 12),), ((1, 8),)]  # no text is longer than the tokenizer cuts it


# on a GPU


@needs_cuda
def test_captured_and_uncaptured_shapes_give_the_same_answers(source: Path, tmp_path: Path) -> None:
    encoder(tmp_path / "out", source, "cuda-fp32")
    told: list[str] = []
    runtime: Any = load_tensor_runtime(
        context(tmp_path / "out", parameters={"torch_device": "cuda"}, log=told.append, lanes=2)
    )
    assert [line for line in told if "12 CUDA graphs for 12 shapes" in line] == told[1:]
    on_cpu = load_tensor_runtime(context(tmp_path / "out", parameters={"torch_device": "cpu"}))
    for rows, tokens in ((1, 8), (3, 16), (8, 32), (3, 9)):  # the last is no bucket
        inputs = batch(rows, tokens)
        wanted = on_cpu.run(0, inputs)["logits"]
        for lane in (0, 1):
            given = runtime.run(lane, inputs)["logits"]
            assert np.abs(given - wanted).max() < 1e-3
    runtime.close()


@needs_cuda
def test_work_that_cannot_be_captured_runs_without_and_says_why() -> None:
    stream = torch.cuda.Stream()
    graphs = Graphs(torch, stream)
    value = torch.ones(3, device="cuda")
    assert graphs.captured(lambda: value.sum().item()) is None  # waits for the GPU
    assert graphs.reason != ""
    with torch.cuda.stream(stream):
        assert (value * 2).sum().item() == 6.0  # and the stream is as it was

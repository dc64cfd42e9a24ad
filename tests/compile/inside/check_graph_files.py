"""Graph files: exported programs, TorchScript and ONNX, with and without a description."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import onnx
import openvino
import pytest
import tiny_models
import torch
from onnx import TensorProto, helper, numpy_helper
from served import ServedModel

from penstock.artifacts.description import model_yaml
from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.errors import CallerError

FP32 = Options(target="cpu-fp32", measure_s=0.0, threads=1)


class TwoHeads(torch.nn.Module):
    """A backbone with two heads over a shared body."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = torch.nn.Embedding(200, 16)
        self.same = torch.nn.Linear(16, 2)
        self.price = torch.nn.Linear(16, 1)

    def forward(self, input_ids, attention_mask):
        weights = attention_mask.unsqueeze(-1).float()
        body = (self.words(input_ids) * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        return self.same(body), self.price(body)


class Sum(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x, y):
        return self.layer(x) + y


def export(module: torch.nn.Module, example: tuple, path: Path) -> None:
    free = torch.export.Dim.DYNAMIC
    shapes = tuple(
        {0: free, 1: free} if each.dtype == torch.int64 else {0: free} for each in example
    )
    torch.export.save(torch.export.export(module, example, dynamic_shapes=shapes), path)


def answers(out: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    compiled = openvino.Core().compile_model(
        out / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return {port.any_name: np.array(value) for port, value in compiled(inputs).items()}


def test_an_exported_program_keeps_its_names_and_free_rows(tmp_path: Path) -> None:
    module = Sum()
    export(module, (torch.randn(2, 4), torch.randn(2, 1)), tmp_path / "sum.pt2")
    compile_model(tmp_path / "sum.pt2", tmp_path / "out", FP32)
    x, y = np.ones((5, 4), np.float32), np.full((5, 1), 2.0, np.float32)
    (given,) = answers(tmp_path / "out", {"x": x, "y": y}).values()
    expected = module(torch.from_numpy(x), torch.from_numpy(y)).detach().numpy()
    np.testing.assert_allclose(given, expected, atol=1e-5)
    description = model_yaml.load(tmp_path / "out")
    assert [(each.name, each.shape) for each in description.inputs] == [
        ("x", (-1, 4)),
        ("y", (-1, 1)),
    ]
    assert description.task == "tensor"
    assert description.batching.rows_max == 32


def test_several_heads_over_one_backbone_by_a_description(tmp_path: Path) -> None:
    module = TwoHeads().eval()
    ids = torch.randint(0, 90, (2, 7))
    export(module, (ids, torch.ones_like(ids)), tmp_path / "heads.pt2")
    tiny_models.word_pieces().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "described.yaml").write_text(
        "schema: 1\nruntime: openvino\ntask: multi-head\n"
        "outputs:\n"
        "  - {name: same, dtype: FP32, shape: [-1, 2]}\n"
        "  - {name: price, dtype: FP32, shape: [-1, 1]}\n"
        "heads:\n"
        "  - {name: same, task: classification, output: same, labels: [differs, same]}\n"
        "  - {name: price, task: regression, output: price}\n"
        "tokenizer: {tokens_max: 32}\n"
    )
    options = Options(target="cpu-fp32", description=tmp_path / "described.yaml", measure_s=0.0)
    report = compile_model(tmp_path / "heads.pt2", tmp_path / "out", options)
    served = ServedModel(tmp_path / "out")
    arrays = served.encoded(tiny_models.TEXTS)
    inputs = {name: arrays[name] for name in ("input_ids", "attention_mask")}
    given = answers(tmp_path / "out", inputs)
    same, price = module(*(torch.from_numpy(each) for each in inputs.values()))
    np.testing.assert_allclose(given["same"], same.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(given["price"], price.detach().numpy(), atol=1e-5)
    assert [head.name for head in served.description.heads] == ["same", "price"]
    assert served.description.batching.buckets == (8, 16, 32)
    assert report["parity"]["compared"] == "probability, relative"


def test_torchscript_is_told_what_it_takes(tmp_path: Path) -> None:
    module = Sum()
    torch.jit.trace(module, (torch.randn(2, 4), torch.randn(2, 1))).save(str(tmp_path / "sum.pt"))
    with pytest.raises(CallerError, match="does not say what it takes") as caught:
        compile_model(tmp_path / "sum.pt", tmp_path / "out", FP32)
    assert caught.value.code == "inputs-needed"
    inputs = ("x:FP32:-1,4", "y:FP32:-1,1")
    options = Options(target="cpu-fp32", inputs=inputs, measure_s=0.0)
    compile_model(tmp_path / "sum.pt", tmp_path / "out", options)
    x, y = np.ones((5, 4), np.float32), np.full((5, 1), 2.0, np.float32)
    (given,) = answers(tmp_path / "out", {"x": x, "y": y}).values()
    expected = module(torch.from_numpy(x), torch.from_numpy(y)).detach().numpy()
    np.testing.assert_allclose(given, expected, atol=1e-5)


@pytest.mark.parametrize("text", ["x", "x:FP31:4", "x:FP32:a", ":FP32:4", "x:BYTES:1", "x:FP32:-3"])
def test_a_malformed_input_is_shown_how_to_be_written(text: str, tmp_path: Path) -> None:
    torch.jit.trace(Sum(), (torch.randn(2, 4), torch.randn(2, 1))).save(str(tmp_path / "sum.pt"))
    options = Options(target="cpu-fp32", inputs=(text,))
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "sum.pt", tmp_path / "out", options)
    assert caught.value.code == "inputs-invalid"


def onnx_file(path: Path) -> np.ndarray:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    return weights


@pytest.mark.parametrize("target", ["cpu-fp32", "cpu-bf16", "cpu-int8"])
def test_onnx_is_compared_with_onnx_runtime(target: str, tmp_path: Path) -> None:
    weights = onnx_file(tmp_path / "linear.onnx")
    options = Options(target=target, measure_s=0.0)
    report = compile_model(tmp_path / "linear.onnx", tmp_path / "out", options)
    x = np.ones((3, 4), np.float32)
    given = answers(tmp_path / "out", {"x": x})["logits"]
    np.testing.assert_allclose(given, x @ weights, rtol=0.02)
    assert report["before"] == "ONNX Runtime FP32"


def test_a_damaged_onnx_file_is_refused(tmp_path: Path) -> None:
    onnx_file(tmp_path / "linear.onnx")
    whole = (tmp_path / "linear.onnx").read_bytes()
    (tmp_path / "linear.onnx").write_bytes(whole[:-20])
    with pytest.raises(CallerError, match=r"linear\.onnx"):
        compile_model(tmp_path / "linear.onnx", tmp_path / "out", FP32)
    assert not (tmp_path / "out").exists()


def test_a_truncated_program_is_refused(tmp_path: Path) -> None:
    export(Sum(), (torch.randn(2, 4), torch.randn(2, 1)), tmp_path / "sum.pt2")
    whole = (tmp_path / "sum.pt2").read_bytes()
    (tmp_path / "sum.pt2").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "sum.pt2", tmp_path / "out", FP32)
    assert caught.value.code == "source-damaged"


class _GraphBomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was loaded')",))


def _rewritten(path: Path, change) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    path.write_bytes(made.getvalue())


def test_a_program_with_a_pickled_constant_is_refused_before_it_is_read(tmp_path: Path) -> None:
    export(Sum(), (torch.randn(2, 4), torch.randn(2, 1)), tmp_path / "sum.pt2")

    def plant(parts: dict[str, bytes]) -> None:
        name = next(each for each in parts if each.endswith("model_constants_config.json"))
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        parts[name] = json.dumps({"config": {"bomb": entry}}).encode()
        folder = name.rpartition("/")[0]
        parts[f"{folder}/opaque_obj_0"] = pickle.dumps(_GraphBomb())

    _rewritten(tmp_path / "sum.pt2", plant)
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "sum.pt2", tmp_path / "out", FP32)
    assert caught.value.code == "source-untrusted"


def test_pickled_sample_inputs_of_a_program_run_nothing(tmp_path: Path) -> None:
    """torch.export.load falls back to the full unpickler for them, unless it is forbidden."""
    export(Sum(), (torch.randn(2, 4), torch.randn(2, 1)), tmp_path / "sum.pt2")
    bomb = io.BytesIO()
    torch.save((_GraphBomb(),), bomb)

    def plant(parts: dict[str, bytes]) -> None:
        name = next(each for each in parts if "sample_inputs" in each)
        parts[name] = bomb.getvalue()

    _rewritten(tmp_path / "sum.pt2", plant)
    with pytest.raises(CallerError) as caught:  # and no SystemExit from the pickle
        compile_model(tmp_path / "sum.pt2", tmp_path / "out", FP32)
    assert caught.value.code == "source-untrusted"


def test_a_pickled_module_needs_the_callers_trust(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(4, 3), tmp_path / "module.pt")
    options = Options(target="cpu-fp32", inputs=("x:FP32:-1,4",), measure_s=0.0)
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "module.pt", tmp_path / "out", options)
    assert caught.value.code == "source-untrusted"
    trusted = Options(target="cpu-fp32", inputs=("x:FP32:-1,4",), measure_s=0.0, trust=True)
    compile_model(tmp_path / "module.pt", tmp_path / "out", trusted)
    assert (tmp_path / "out" / "model.xml").is_file()

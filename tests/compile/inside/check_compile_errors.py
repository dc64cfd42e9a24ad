"""What can't be compiled is refused by name, with what to do, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.compile.proof import proof
from penstock.errors import CallerError

FP32 = Options(target="cpu-fp32", measure_s=0.0, threads=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    tiny_models.save(folder, "bert")
    return folder


@pytest.fixture
def source(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    folder = tmp_path / "source"
    folder.mkdir()
    for path in saved.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def refused(source: Path, options: Options = FP32) -> CallerError:
    out = source.parent / "out"
    before = sorted(source.parent.iterdir())
    with pytest.raises(CallerError) as caught:
        compile_model(source, out, options)
    assert sorted(source.parent.iterdir()) == before  # nothing half-written, hidden or not
    assert caught.value.hint
    return caught.value


def change(source: Path, **keys: object) -> None:
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, **keys}))


def test_a_failed_parity_leaves_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = proof.lower

    def spoiled(graph, *rest):
        with torch.no_grad():
            for weight in graph.module.parameters():
                weight.mul_(0.5)  # the graph that is converted is not the one that was asked
        return lower(graph, *rest)

    monkeypatch.setattr(proof, "lower", spoiled)
    error = refused(source)
    assert error.code == "parity-failed"
    assert "largest difference" in error.message
    assert "0.001 allowed" in error.message


def test_the_tolerance_is_the_callers_to_state(source: Path) -> None:
    bf16 = Options(target="cpu-bf16", measure_s=0.0, tolerance=1e-7)
    assert refused(source, bf16).code == "parity-failed"


def test_an_unknown_target_names_the_known_ones(source: Path) -> None:
    error = refused(source, Options(target="tpu-int4"))
    assert error.code == "target-unknown"
    assert "cpu-bf16" in error.hint


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_target_needs_its_gpu(source: Path) -> None:
    assert refused(source, Options(target="cuda-fp16")).code == "target-absent"


def test_an_output_that_exists_is_never_touched(source: Path) -> None:
    (source.parent / "out").mkdir()
    (source.parent / "out" / "mine.txt").write_text("mine")
    assert refused(source).code == "output-exists"
    assert (source.parent / "out" / "mine.txt").read_text() == "mine"


def test_an_unsupported_architecture_is_named(source: Path) -> None:
    change(source, model_type="gpt2", architectures=["GPT2LMHeadModel"])
    error = refused(source)
    assert error.code == "architecture-unsupported"
    assert "gpt2" in error.message
    assert "roberta" in error.hint


def test_a_head_that_is_not_served_is_named(source: Path) -> None:
    change(source, architectures=["BertForTokenClassification"])
    error = refused(source)
    assert error.code == "architecture-unsupported"
    assert "BertForTokenClassification" in error.message


def test_several_labels_at_once_are_no_classification(source: Path) -> None:
    change(source, problem_type="multi_label_classification")
    assert refused(source).code == "task-unsupported"


def test_a_missing_tokenizer(source: Path) -> None:
    (source / "tokenizer.json").unlink()
    assert refused(source).code == "tokenizer-missing"


def test_a_damaged_tokenizer(source: Path) -> None:
    (source / "tokenizer.json").write_text('{"version": "1.0"')
    assert refused(source).code == "tokenizer-damaged"


def test_the_tokenizer_of_another_model(source: Path) -> None:
    tokenizer = tiny_models.word_pieces()
    tokenizer.add_tokens([f"word{at}" for at in range(300)])
    tokenizer.save(str(source / "tokenizer.json"))
    error = refused(source)
    assert error.code == "tokenizer-mismatch"
    assert "200 rows" in error.message


@pytest.mark.parametrize("keep", [4, 1000, -1])
def test_truncated_weights(source: Path, keep: int) -> None:
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    error = refused(source)
    assert error.code == "weights-damaged"
    assert "model.safetensors" in error.message


def test_weights_that_git_left_out(source: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456\n"
    (source / "model.safetensors").write_bytes(pointer)
    error = refused(source)
    assert error.code == "weights-damaged"
    assert "Git LFS" in error.message


def test_no_weights_at_all(source: Path) -> None:
    (source / "model.safetensors").unlink()
    assert refused(source).code == "weights-missing"


def test_a_missing_shard(source: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    error = refused(source)
    assert error.code == "weights-missing"
    assert "model-00001-of-00002.safetensors" in error.message


def test_a_classifier_whose_head_was_never_trained(tmp_path: Path) -> None:
    tiny_models.save(tmp_path / "source", "bert", "Model")
    change(tmp_path / "source", architectures=["BertForSequenceClassification"])
    error = refused(tmp_path / "source")
    assert error.code == "weights-incomplete"
    assert "classifier" in error.message


def test_labels_that_do_not_fit_the_weights(source: Path) -> None:
    change(source, id2label={"0": "a", "1": "b", "2": "c"})
    assert refused(source).code in ("weights-damaged", "weights-incomplete")


def test_pickled_weights_are_refused_unless_trusted(saved: Path, source: Path) -> None:
    from safetensors.torch import load_file

    weights = load_file(str(source / "model.safetensors"))
    (source / "model.safetensors").unlink()
    torch.save(weights, source / "pytorch_model.bin")
    assert refused(source).code == "source-untrusted"
    report = compile_model(source, source.parent / "out", dataclasses.replace(FP32, trust=True))
    assert report["parity"]["difference_max"] < 1e-3


class _CompileBomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was loaded')",))


def test_a_pickle_in_an_unfitting_place_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(pickle.dumps(_CompileBomb()))
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "model.pt", tmp_path / "out", FP32)
    assert caught.value.code == "source-damaged"  # no archive of PyTorch's at all


def test_there_is_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CallerError) as caught:
        compile_model(tmp_path / "nowhere", tmp_path / "out", FP32)
    assert caught.value.code == "source-not-found"


def test_more_tokens_than_positions(source: Path) -> None:
    error = refused(source, dataclasses.replace(FP32, tokens_max=1000))
    assert error.code == "tokens-max-invalid"
    assert "66" in error.message


def test_pooling_that_is_not_understood(tmp_path: Path) -> None:
    tiny_models.sentence_encoder(tmp_path / "source", pooling="max", normalize=True)
    assert refused(tmp_path / "source").code == "pooling-unsupported"


def test_weights_that_are_no_numbers(source: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(str(source / "model.safetensors"))
    weights["classifier.bias"][0] = np.nan
    save_file(weights, str(source / "model.safetensors"), metadata={"format": "pt"})
    assert refused(source).code == "source-not-finite"


def test_what_a_killed_compile_left_is_removed_by_the_next(source: Path) -> None:
    left = source.parent / ".out.compiling-dead"
    left.mkdir()
    (left / "model.xml").write_text("half")
    compile_model(source, source.parent / "out", FP32)
    assert not left.exists()
    assert (source.parent / "out" / "model.yaml").is_file()

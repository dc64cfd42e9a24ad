"""Encoder-decoder directories go to a lowering of their own; the records are the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import tiny_models
import torch
import transformers

from penstock.artifacts.description import model_yaml
from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.compile.targets import TARGETS
from penstock.errors import CallerError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "t5"
    torch.manual_seed(5)
    config = transformers.T5Config(
        vocab_size=200,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        initializer_factor=1.0,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    tiny_models.word_pieces().save(str(folder / "tokenizer.json"))
    return folder


def test_text_to_text_is_compiled_with_the_same_records(source: Path, tmp_path: Path) -> None:
    options = Options(target="cpu-fp32", name="speller", measure_s=0.01)
    report = compile_model(source, tmp_path / "out", options)
    description = model_yaml.load(tmp_path / "out")
    assert (description.runtime, description.task) == ("seq2seq", "text2text-generation")
    assert description.name == "speller"
    assert report["parity"]["agreement"] == 1.0
    assert [(each["rows"], each["tokens"]) for each in report["timings"]] == [(1, 9), (8, 9)]
    made = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert made["source"]["kind"] == "hugging-face-seq2seq"


@pytest.mark.parametrize("name", ["cuda-fp32", "cuda-fp16", "cuda-bf16"])
def test_a_gpu_target_makes_programs_that_are_proven_by_their_runtime(
    name: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU here: the same programs, without the chip that the target needs."""
    on_cpu = dataclasses.replace(TARGETS[name], device="cpu")
    monkeypatch.setattr("penstock.compile.build.target_of", lambda wanted: on_cpu)
    report = compile_model(source, tmp_path / "out", Options(target=name, measure_s=0.01))
    description = model_yaml.load(tmp_path / "out")
    assert (description.runtime, description.task) == ("torch", "text2text-generation")
    parity = report["parity"]
    assert parity["difference_max"] <= parity["tolerance"]["difference_max"]
    assert [(each["rows"], each["tokens"]) for each in report["timings"]] == [(1, 9), (8, 9)]


def test_a_gpu_target_without_a_gpu_is_refused(source: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    with pytest.raises(CallerError) as caught:
        compile_model(source, tmp_path / "out", Options(target="cuda-fp32"))
    assert caught.value.code == "target-absent"
    assert list(tmp_path.iterdir()) == []

"""From a Hugging Face directory to an artifact: proven equal, or not written at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit import seq2seq_models as tiny

from penstock.artifacts.description import model_yaml
from penstock.compile.seq2seq.seq2seq import Seq2SeqSpec, compile_seq2seq
from penstock.compile.seq2seq.seq2seq_parity import Seq2SeqParity
from penstock.compile.staging import staged
from penstock.errors import CallerError, ModelError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    tiny.reference("t5").save_pretrained(folder)
    tiny.write_tokenizer(folder / "tokenizer.json")
    return folder


def compiled(source: Path, out: Path, **wanted: Any) -> Seq2SeqParity:
    with staged(out) as folder:
        return compile_seq2seq(source, folder, Seq2SeqSpec(**wanted))


def test_fp32_answers_are_the_sources_and_the_artifact_describes_itself(
    source: Path, tmp_path: Path
) -> None:
    parity = compiled(source, tmp_path / "out", precision="f32", name="spelling")
    assert (parity.agreement, parity.token_agreement) == (1.0, 1.0)
    description = model_yaml.load(tmp_path / "out")
    assert (description.runtime, description.task) == ("seq2seq", "text2text-generation")
    assert description.generation is not None
    assert description.generation.eos_ids == (1,)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "decoder.bin", "decoder.xml", "encoder.bin", "encoder.xml", "model.yaml", "tokenizer.json",
    ]  # fmt: skip


@pytest.mark.parametrize(("precision", "part"), [("bf16", 0.6), ("int8", 0.35)])
def test_smaller_weights_make_smaller_files(
    source: Path, tmp_path: Path, precision: str, part: float
) -> None:
    compiled(source, tmp_path / "whole", precision="f32")
    compiled(source, tmp_path / "small", precision=precision, difference_max=1.0)
    whole = (tmp_path / "whole" / "decoder.bin").stat().st_size
    assert (tmp_path / "small" / "decoder.bin").stat().st_size < part * whole
    computed = model_yaml.load(tmp_path / "small").precision
    assert computed == {"bf16": "bf16", "int8": ""}[precision]  # "": activations are rounded too


def test_a_compile_whose_parity_fails_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        compiled(source, tmp_path / "out", precision="int8", difference_max=0.0)
    assert caught.value.code == "parity-failed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tokenizer": None}, "tokenizer-missing"),
        ({"weights": b"cut"}, "weights-unreadable"),
        ({"model_type": "led", "architectures": None}, "unsupported-architecture"),
        ({"num_layers": 3, "num_decoder_layers": 3}, "weights-missing"),
    ],
)
def test_what_cannot_be_compiled_is_named_and_leaves_nothing(
    source: Path, tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    changed, out = tmp_path / "source", tmp_path / "out"
    changed.mkdir()
    for path in source.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    if "weights" in change:
        (changed / "model.safetensors").write_bytes(change["weights"])
    if "tokenizer" in change:
        (changed / "tokenizer.json").unlink()
    if "model_type" in change or "num_layers" in change:
        config = json.loads((changed / "config.json").read_text())
        (changed / "config.json").write_text(json.dumps(config | change))
    with pytest.raises((CallerError, ModelError)) as caught:
        compiled(changed, out, precision="f32")
    assert caught.value.code == code
    assert not out.exists()

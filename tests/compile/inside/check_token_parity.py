"""The parity of text writers on whole compiles: sound ones pass as they are, broken ones never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit import seq2seq_models

from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.compile.seq2seq import seq2seq
from penstock.errors import ModelError

FAMILIES = ("t5", "bart", "mbart", "marian")
#: A layer in the middle of the decoder, in the names of each family.
WRONG = ("decoder.block.1.layer.0.SelfAttention.o.", "decoder.layers.1.self_attn.out_proj.weight")


def saved(folder: Path, kind: str) -> Path:
    seq2seq_models.reference(kind).save_pretrained(folder)
    seq2seq_models.write_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        *((kind, "cpu-bf16") for kind in FAMILIES),
        # Whether INT8's activations are rounded is the processor's: the family that shows it most.
        *(
            pytest.param(kind, "cpu-int8", marks=[pytest.mark.processors] * (kind == "marian"))
            for kind in FAMILIES
        ),
    ],
)
def test_rounding_passes_and_a_layer_of_twice_its_size_does_not(
    kind: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path / "source", kind)
    options = Options(target=target, measure_s=0.0)
    parity = compile_model(source, tmp_path / "sound", options)["parity"]
    assert parity["difference_mean"] <= parity["tolerance"]["difference_mean"] < 0.15
    assert "spread" in parity["measure"]

    read = seq2seq.weights_of

    def wrongly_scaled(model: Any) -> Any:
        return {
            name: value * 2 if any(part in name for part in WRONG) else value
            for name, value in read(model).items()
        }

    monkeypatch.setattr(seq2seq, "weights_of", wrongly_scaled)
    with pytest.raises(ModelError) as caught:
        compile_model(source, tmp_path / "broken", options)
    assert caught.value.code == "parity-failed"
    assert "mean difference" in caught.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sound", "source"]


def test_what_the_format_costs_the_source_itself_is_in_the_report(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "bart")
    compile_model(source, tmp_path / "out", Options(target="cpu-int8", measure_s=0.0))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any(note.startswith("in INT8 the source itself") for note in report["notes"])

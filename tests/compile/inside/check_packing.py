"""Which families of encoders have their texts side by side, as the compiler writes their graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_models

from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.runtimes.openvino.packing import NotPacked, packed, verify
from penstock.runtimes.openvino.runtime import shared_core

#: They add what depends on pairs of positions to attention's scores.
BY_PAIRS = ("mpnet", "deberta-v2")
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}


def graph_of(family: str, folder: Path) -> str:
    source = folder / family
    tiny_models.save(source, family)
    options = Options(target="cpu-fp32", measure_s=0.0, threads=1)
    compile_model(source, folder / "out", options)
    return str(folder / "out" / "model.xml")


@pytest.mark.parametrize(
    "family", [family for family in tiny_models.FAMILIES if family not in BY_PAIRS]
)
def test_a_family_is_packed_and_answers_as_before(family: str, tmp_path: Path) -> None:
    file = graph_of(family, tmp_path)
    made = packed(shared_core().read_model(file))
    verify(shared_core().read_model(file), made, EXACT)  # raises where an answer differs
    assert "attention_mask" not in made.layout.inputs
    assert made.layout.of_rows == (True,), "one row of scores for each text"


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_encoders_are_packed_with_their_pooling(pooling: str, tmp_path: Path) -> None:
    source = tmp_path / "saved"
    tiny_models.sentence_encoder(source, pooling=pooling, normalize=True, dense=12)
    options = Options(target="cpu-fp32", measure_s=0.0, threads=1)
    compile_model(source, tmp_path / "out", options)
    file = str(tmp_path / "out" / "model.xml")
    made = packed(shared_core().read_model(file))
    verify(shared_core().read_model(file), made, EXACT)
    assert made.layout.of_rows == (True,)


@pytest.mark.parametrize("family", BY_PAIRS)
def test_a_family_with_places_of_pairs_is_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(NotPacked, match="in a way of its own"):
        packed(shared_core().read_model(graph_of(family, tmp_path)))

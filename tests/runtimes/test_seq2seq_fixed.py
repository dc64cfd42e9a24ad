"""Encoders of fixed sizes for lone short sources: how many there are, and what they must not do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.kit import seq2seq_models as tiny

from penstock.compile.seq2seq.seq2seq_parity import generate
from penstock.runtimes.seq2seq.fixed import lengths
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

MIB = 1 << 20


@pytest.mark.parametrize(
    ("copy_bytes", "made"),
    [
        (16 * MIB, (2, 4, 6, 8, 10, 12, 14, 16)),
        (17 * MIB, (4, 8, 12, 16)),
        (33 * MIB, (8, 16)),
        (128 * MIB, (16,)),
        (129 * MIB, ()),
    ],
)
def test_lengths_are_as_fine_as_128_mib_of_copies_allow(
    copy_bytes: int, made: tuple[int, ...]
) -> None:
    assert lengths(16, copy_bytes) == made


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("kind", list(tiny.CONFIGS))
def test_a_lone_source_is_encoded_as_it_is_in_company(
    tmp_path: Path, kind: str, precision: str
) -> None:
    """The graph of free sizes encodes it beside a longer source, which must not matter either."""
    description = replace(tiny.write_artifact(tmp_path, kind), precision=precision)
    model = Seq2SeqModel(tiny.context(tmp_path, description))
    for source in tiny.SOURCES[:5]:
        tokens = len(source)
        model.prefill([source, tiny.SOURCES[4]], [(1,), (2,)], 0)
        model.prefill([source], [(0,)], 3)
        alone, together = (model.rows.cross[:, row, :, :tokens] for row in (0, 1))
        spread = float(together.std())
        allowed = 1e-5 if precision == "f32" else 0.05
        assert np.abs(alone - together).mean() / spread < allowed


def test_a_shorter_source_sees_nothing_of_the_longer_one_before(tmp_path: Path) -> None:
    model = Seq2SeqModel(tiny.context(tmp_path, tiny.write_artifact(tmp_path, "t5")))
    short, long = [5, 9, 40], [7, 7, 7, 7]
    model.prefill([short], [(0,)], 0)
    before = model.rows.cross[:, 0, :, :3].copy()
    model.prefill([long], [(0,)], 0)
    model.prefill([short], [(0,)], 0)
    assert np.array_equal(model.rows.cross[:, 0, :, :3], before)
    assert (model.rows.source_bias[0, 0, 0, :4] == [0.0, 0.0, 0.0, -1.0e9]).all()


def test_sources_beyond_the_fixed_sizes_run_on_the_graph_of_free_sizes(tmp_path: Path) -> None:
    model = Seq2SeqModel(tiny.context(tmp_path, tiny.write_artifact(tmp_path, "t5")))
    model.prefill([tiny.SOURCES[5]], [(0,)], 0)
    assert len(tiny.SOURCES[5]) == 17
    assert model.rows.source_length == 32


@pytest.mark.parametrize("kind", list(tiny.CONFIGS))
def test_one_of_many_models_has_no_graphs_of_fixed_sizes_and_writes_the_same(
    tmp_path: Path, kind: str
) -> None:
    """They are most of what its load takes, in time and, of a small model, in memory."""
    description = tiny.write_artifact(tmp_path, kind)
    context = tiny.context(tmp_path, description)
    among_many = Seq2SeqModel(replace(context, target_model="m"))
    by_itself = Seq2SeqModel(context)
    request = GenerationRequest(max_new_tokens=6)
    try:
        assert (among_many._lone_encoders, among_many._lone) == (None, None)
        assert by_itself._lone_encoders is not None
        assert len(by_itself._lone_encoders._encoders) == 8
        assert by_itself._lone is not None
        for sources in ([tiny.SOURCES[0]], tiny.SOURCES[:3]):
            assert generate(among_many, description, sources, request) == generate(
                by_itself, description, sources, request
            )
    finally:
        among_many.close()
        by_itself.close()

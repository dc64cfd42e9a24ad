"""Answers are those of transformers' `generate`, token for token, whoever shares the batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import seq2seq_models as tiny

from penstock.clock import SystemClock
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationLimits, GenerationRequest

Wanted = dict[str, dict[str, list[list[int]]]]


@pytest.fixture(scope="module", params=list(tiny.CONFIGS))
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    description = tiny.write_artifact(folder, kind)
    return kind, Seq2SeqModel(tiny.context(folder, description)), description


def decode(model: Seq2SeqModel, start_id: int, asked: list[tuple[list[int], Any]]) -> list[Any]:
    """All at once; those that find no row wait for one."""
    loop = DecodeLoop(model, SystemClock(), start_id=start_id, eos_ids=(1,))
    answers: dict[int, Any] = {}
    for at, (source, request) in enumerate(asked):
        loop.add(
            DecodingJob(source, request, lambda outcome, at=at: answers.setdefault(at, outcome))
        )
    while loop.busy:
        loop.turn()
        loop.stepper.check_invariants()
    return [answers[at] for at in range(len(asked))]


@pytest.mark.parametrize("name", list(tiny.REQUESTS))
def test_each_answer_alone_is_what_generate_gives(loaded: Any, name: str) -> None:
    kind, model, description = loaded
    request = GenerationRequest(**tiny.REQUESTS[name])
    start = description.generation.decoder_start_id
    given = [decode(model, start, [(source, request)])[0] for source in tiny.SOURCES]
    assert given == tiny.answers()[kind][name]


def test_requests_of_all_kinds_in_one_batch_change_nothing(loaded: Any) -> None:
    """Greedy and beams, short and long sources, answers that end early and late: each joins when a
    row is free, and none sees its mates."""
    kind, model, description = loaded
    asked, wanted = [], []
    for at in range(len(tiny.SOURCES)):
        for name, values in tiny.REQUESTS.items():
            asked.append((tiny.SOURCES[at], GenerationRequest(**values)))
            wanted.append(tiny.answers()[kind][name][at])
    assert decode(model, description.generation.decoder_start_id, asked) == wanted


def test_int8_weights_answer_the_same_alone_and_in_a_batch(tmp_path: Path) -> None:
    description = tiny.write_artifact(tmp_path, "t5", int8=True)
    model = Seq2SeqModel(tiny.context(tmp_path, description))
    request = GenerationRequest(max_new_tokens=20)
    alone = [decode(model, 0, [(source, request)])[0] for source in tiny.SOURCES]
    assert decode(model, 0, [(source, request) for source in tiny.SOURCES]) == alone


def test_a_bf16_step_of_one_row_computes_what_a_step_of_two_does(tmp_path: Path) -> None:
    """One row has a graph of its own, with fixed sizes; OpenVINO's fused attention in there once
    gave logits that had nothing to do with the model."""
    description = replace(tiny.write_artifact(tmp_path, "t5"), precision="bf16")
    model = Seq2SeqModel(tiny.context(tmp_path, description))
    logits = []
    for rows in (1, 2):
        model.prefill([tiny.SOURCES[3]] * rows, [(row,) for row in range(rows)], 0)
        for token in (0, 5, 9):
            model.rows.ids[:rows] = token
            logits.append(model.step(rows)[0].copy())
    for alone, mated in zip(logits[:3], logits[3:], strict=True):
        assert np.abs(alone - mated).max() < 0.2 * mated.std()


def test_defaults_come_from_the_description(tmp_path: Path) -> None:
    description = tiny.write_artifact(tmp_path, tokens_new_max=5, beams_max=16, rows_max=3)
    limits = GenerationLimits.of(description, 3)
    assert limits.defaults == GenerationRequest(max_new_tokens=5)
    assert limits.beams_max == 3  # a beam is a row of the batch

"""T5 as programs with a static cache: answers are those of transformers' `generate`."""

from __future__ import annotations

import functools
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.kit import seq2seq_models as tiny
from torch_artifacts import context

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    Generation,
    ModelDescription,
    Tokenizer,
)
from penstock.clock import SystemClock
from penstock.compile.seq2seq.torch_t5 import as_programs, write_programs
from penstock.errors import CallerError, ModelError
from penstock.runtimes.loader import load_seq2seq_model
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.request import GenerationRequest

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@functools.cache
def programs(kind: str, precision: str) -> dict[str, bytes]:
    """Exported once: it takes seconds."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model, config = tiny.reference(kind), tiny.CONFIGS[kind]
        write_programs(model, config, folder, precision=precision, device="cpu")
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def artifact(folder: Path, kind: str, precision: str = "f32", **generation: Any) -> Path:
    folder.mkdir()
    for name, content in programs(kind, precision).items():
        (folder / name).write_bytes(content)
    tiny.write_tokenizer(folder / "tokenizer.json")
    description = ModelDescription(
        runtime="seq2seq",
        task="text2text-generation",
        tokenizer=Tokenizer(tokens_max=48),
        generation=Generation(eos_ids=(1,), **({"tokens_new_max": 40} | generation)),
        batching=Batching(rows_max=8),
    )
    made = as_programs(description, precision=precision, device="cpu")
    (folder / model_yaml.FILE_NAME).write_text(model_yaml.dump(made))
    return folder


@pytest.fixture(scope="module", params=["t5", "mt5"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Any:
    folder = artifact(tmp_path_factory.mktemp("made") / request.param, request.param)
    return request.param, load_seq2seq_model(context(folder))


def decode(model: Any, asked: list[tuple[list[int], GenerationRequest]]) -> list[Any]:
    """All at once; those that find no row wait for one."""
    loop = DecodeLoop(model, SystemClock(), start_id=0, eos_ids=(1,))
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
    kind, model = loaded
    request = GenerationRequest(**tiny.REQUESTS[name])
    given = [decode(model, [(source, request)])[0] for source in tiny.SOURCES]
    assert given == tiny.answers()[kind][name]


def everything() -> list[tuple[int, str]]:
    return [(at, name) for at in range(len(tiny.SOURCES)) for name in tiny.REQUESTS]


def test_requests_of_all_kinds_in_one_batch_change_nothing(loaded: Any) -> None:
    """Greedy and beams, short and long sources, answers that end early and late: each joins when a
    row is free, and none sees its mates."""
    kind, model = loaded
    asked = [
        (tiny.SOURCES[at], GenerationRequest(**tiny.REQUESTS[name])) for at, name in everything()
    ]
    wanted = [tiny.answers()[kind][name][at] for at, name in everything()]
    assert decode(model, asked) == wanted


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_smaller_formats_answer_the_same_alone_and_in_a_batch(
    precision: str, tmp_path: Path
) -> None:
    """Their answers are their own where a random model hardly decides; mates do not decide them."""
    model = load_seq2seq_model(context(artifact(tmp_path / "a", "t5", precision)))
    request = GenerationRequest(max_new_tokens=20)
    alone = [decode(model, [(source, request)])[0] for source in tiny.SOURCES]
    assert decode(model, [(source, request) for source in tiny.SOURCES]) == alone


@pytest.mark.parametrize(("precision", "apart"), [("f16", 0.01), ("bf16", 0.1)])
def test_smaller_formats_are_near_the_sources_logits(
    precision: str, apart: float, tmp_path: Path
) -> None:
    reference = tiny.reference("t5")
    model = load_seq2seq_model(context(artifact(tmp_path / "a", "t5", precision)))
    for source in tiny.SOURCES:
        with torch.inference_mode():
            wanted = reference(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0]])
            ).logits[0, 0]
        model.prefill([source], [(0,)], 0)
        model.rows.ids[0] = 0
        given = model.step(1)[0]
        assert np.abs(given - wanted.numpy()).max() <= apart * float(np.ptp(wanted.numpy()))


def test_answers_go_on_to_the_last_place_of_the_cache_and_no_further(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5", tokens_new_max=16)
    model = load_seq2seq_model(context(folder))
    request = GenerationRequest(max_new_tokens=16, min_new_tokens=16)
    assert len(decode(model, [(tiny.SOURCES[3], request)])[0]) == 16
    beyond = GenerationRequest(max_new_tokens=17, min_new_tokens=17)
    (outcome,) = decode(model, [(tiny.SOURCES[3], beyond)])
    assert (outcome.code, outcome.family) == ("answer-too-long", "model")


@pytest.mark.parametrize(
    ("source", "code"), [([3, 400], "input-out-of-range"), ([3] * 65, "source-too-long")]
)
def test_a_source_that_a_gpu_could_not_bear_fails_alone(
    loaded: Any, source: list[int], code: str
) -> None:
    kind, model = loaded
    request = GenerationRequest(**tiny.REQUESTS["greedy"])
    good = tiny.SOURCES[2]
    first, (wrong, after) = (
        decode(model, [(good, request)])[0],
        decode(model, [(source, request), (good, request)]),
    )
    assert (wrong.code, wrong.family) == (code, "model")
    assert first == tiny.answers()[kind]["greedy"][2]
    assert isinstance(after, ModelError) or after == first  # it may have shared the prefill
    assert decode(model, [(good, request)])[0] == first


def test_ids_of_the_description_must_be_the_models(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5", decoder_start_id=5000)
    with pytest.raises(ModelError, match="5000") as caught:
        load_seq2seq_model(context(folder))
    assert caught.value.code == "input-out-of-range"


def test_a_program_of_another_kind_is_no_decoder(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5")
    (folder / "decoder.pt2").write_bytes((folder / "encoder.pt2").read_bytes())
    with pytest.raises(ModelError, match=r"decoder\.pt2") as caught:
        load_seq2seq_model(context(folder))
    assert caught.value.code == "inputs-mismatch"


def test_a_program_that_was_cut_short_is_named(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5")
    path = folder / "decoder.pt2"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CallerError, match=r"decoder\.pt2") as caught:
        context(folder)
    assert caught.value.code == "model-file-invalid"


def test_other_families_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="bart") as caught:
        write_programs(None, {"model_type": "bart"}, tmp_path, precision="f32", device="cpu")
    assert caught.value.code == "architecture-unsupported"
    assert list(tmp_path.iterdir()) == []


def test_a_program_names_no_files_of_the_machine_that_made_it(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5")
    for name in ("encoder.pt2", "decoder.pt2"):
        with zipfile.ZipFile(folder / name) as archive:
            part = next(each for each in archive.namelist() if each.endswith("models/model.json"))
            assert str(Path(__file__).parents[3]).encode() not in archive.read(part)


@needs_cuda
def test_on_a_gpu_answers_are_those_of_generate_too(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "a", "t5")
    told: list[str] = []
    model = load_seq2seq_model(
        context(folder, parameters={"torch_device": "cuda"}, log=told.append)
    )
    asked = [
        (tiny.SOURCES[at], GenerationRequest(**tiny.REQUESTS[name])) for at, name in everything()
    ]
    assert decode(model, asked) == [tiny.answers()["t5"][name][at] for at, name in everything()]
    assert "CUDA graphs" in told[-1]
    assert not told[-1].endswith(" 0 CUDA graphs")
    model.close()

"""Log-probabilities beside OpenVINO's engine: of prompts, and of the likeliest tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit.environments import printed_by
from tests.kit.generation_models import BOS, USER, VOCABULARY, write_model, write_weights
from tests.kit.polling import wait_until
from tests.runtimes.test_openvino_adapters import engine

from penstock.errors import PenstockError
from penstock.runtimes.generation.base import EngineRequest, Sampling, StepOutput, TokenScore
from penstock.runtimes.openvino_genai.scores import FOLLOWED_MAX

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

#: Both compute in FP32, in another order; the numbers are below 20.
TOLERANCE = 1e-4
PROMPTS = [
    [BOS, *map(int, np.random.default_rng(seed).integers(0, 256, size))]
    for seed, size in enumerate((3, 20, 150, 20, 1, 60, 7))
]

#: Run by the environment of transformers: the log-probabilities behind each token of the prompts.
REFERENCE = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
rows = []
with torch.no_grad():
    for ids in json.loads(sys.stdin.read()):
        logits = model(torch.tensor([ids])).logits[0]
        rows.append(torch.log_softmax(logits.double(), -1).tolist())
print(json.dumps(rows))
"""


@dataclass(slots=True)
class ScoredAnswer:
    """All that came for one sequence."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt: list[TokenScore] | None = None
    finish: str | None = None
    error: PenstockError | None = None

    def add(self, output: StepOutput) -> None:
        assert self.finish is None, "it goes on behind its end"
        assert output.prompt is None or not self.token_ids, "the prompt comes first"
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs or []
        self.top += output.top or []
        self.prompt = output.prompt or self.prompt
        self.finish = output.finish
        self.error = output.error


def asked(ident: int, prompt: list[int], tokens: int, **sampling: Any) -> EngineRequest:
    settings = Sampling(tokens_new_max=tokens, ignore_eos=True, **sampling)
    return EngineRequest(ident, prompt, settings, tokens, ident)


def answered(made: Any, requests: list[EngineRequest]) -> list[ScoredAnswer]:
    """Of an engine, all at once."""
    found = {each.ident: ScoredAnswer() for each in requests}
    for each in requests:
        made.add(each)
    while made.has_work:
        for output in made.step():
            found[output.ident].add(output)
    return [found[each.ident] for each in requests]


def prompt_scores(made: Any, prompts: list[list[int]], top: int) -> list[list[TokenScore]]:
    requests = [
        asked(at, prompt, 0, logprobs=top, prompt_scored=True) for at, prompt in enumerate(prompts)
    ]
    answers = answered(made, requests)
    assert [(each.finish, each.token_ids) for each in answers] == [("length", [])] * len(prompts)
    return [each.prompt or [] for each in answers]


def likeliest(row: list[float], top: int) -> list[tuple[int, Any]]:
    order = sorted(range(len(row)), key=lambda at: (-row[at], at))[:top]
    return [(at, pytest.approx(row[at], abs=TOLERANCE)) for at in order]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("scored") / "model")


@pytest.fixture(scope="module")
def made(folder: Path) -> Any:
    return engine(folder)


def test_prompts_have_the_log_probabilities_of_transformers(made: Any, tmp_path: Path) -> None:
    source = write_weights(tmp_path / "source")
    asked_of = json.dumps(PROMPTS)
    told = json.loads(printed_by("compile", "-c", REFERENCE, str(source), given=asked_of))
    for prompt, rows, scored in zip(PROMPTS, told, prompt_scores(made, PROMPTS, 5), strict=True):
        assert len(scored) == len(prompt)
        assert scored[0] == TokenScore(None, [])
        for token, row, score in zip(prompt[1:], rows, scored[1:], strict=False):
            assert score.logprob == pytest.approx(row[token], abs=TOLERANCE)
            assert score.top == likeliest(row, 5)


def test_a_prompt_is_scored_alike_alone_in_a_batch_and_in_parts(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = prompt_scores(made, PROMPTS, 3)
    alone = [prompt_scores(made, [prompt], 3)[0] for prompt in PROMPTS]
    monkeypatch.setattr("penstock.runtimes.openvino_genai.scores.LOGITS_BYTES_MAX", VOCABULARY * 20)
    in_parts = prompt_scores(made, PROMPTS, 3)
    for one, other, third in zip(together, alone, in_parts, strict=True):
        for score, same, again in zip(one[1:], other[1:], third[1:], strict=True):
            near = pytest.approx(score.logprob, abs=TOLERANCE)
            assert (same.logprob, again.logprob) == (near, near)
            ids = [ident for ident, _ in score.top]
            assert [ident for ident, _ in same.top] == ids == [ident for ident, _ in again.top]


def test_drawn_tokens_come_with_as_many_likeliest_ones_as_are_wanted(made: Any) -> None:
    """More sequences than are followed at a time, and each number is the model's own: before the
    temperature, whatever shapes the choice."""
    shaped: list[dict[str, Any]] = [
        {"temperature": 1.5}, {"temperature": 0.5, "top_k": 3}, {"temperature": 1.0, "top_p": 0.5},
        {"frequency_penalty": 2.0}, {"temperature": 2.0, "min_p": 0.1}, {},
        {"temperature": 1.0, "repetition_penalty": 1.5},
    ]  # fmt: skip
    requests = [
        asked(at, prompt, 12, logprobs=4, **sampling)
        for at, (prompt, sampling) in enumerate(zip(PROMPTS, shaped, strict=True))
    ]
    answers = answered(made, requests)
    wholes = [
        [*prompt, *each.token_ids] for prompt, each in zip(PROMPTS, answers, strict=True)
    ]  # fmt: skip
    scored = prompt_scores(made, wholes, 4)
    for prompt, answer, whole in zip(PROMPTS, answers, scored, strict=True):
        assert (len(answer.token_ids), answer.finish) == (12, "length")
        for logprob, top, score in zip(
            answer.logprobs, answer.top, whole[len(prompt) :], strict=True
        ):
            assert logprob == pytest.approx(score.logprob, abs=TOLERANCE)
            assert top == [(at, pytest.approx(value, abs=TOLERANCE)) for at, value in score.top]


def test_the_engines_own_numbers_are_the_models_too(made: Any) -> None:
    """Of the chosen token alone, where nothing more is wanted, it tells them itself."""
    sampling = {"temperature": 1.5, "frequency_penalty": 1.0, "top_k": 5, "logprobs": 0}
    (answer,) = answered(made, [asked(0, PROMPTS[1], 12, **sampling)])
    assert answer.top == []
    (scored,) = prompt_scores(made, [[*PROMPTS[1], *answer.token_ids]], 0)
    near = [pytest.approx(each.logprob, abs=TOLERANCE) for each in scored[len(PROMPTS[1]) :]]
    assert answer.logprobs == near


def test_answers_are_the_same_beside_prompts_that_are_scored(made: Any) -> None:
    plain = [asked(at, prompt, 16) for at, prompt in enumerate(PROMPTS)]
    alone = [each.token_ids for each in answered(made, plain)]
    beside = [
        asked(100 + at, prompt, 16 * (at % 2), logprobs=2, prompt_scored=True)
        for at, prompt in enumerate(PROMPTS)
    ]
    both = answered(made, [*plain, *beside])
    assert [each.token_ids for each in both[: len(plain)]] == alone
    for at, each in enumerate(both[len(plain) :]):
        assert each.token_ids == (alone[at] if at % 2 else [])
        assert each.prompt is not None
        assert len(each.prompt) == len(PROMPTS[at])


def test_one_that_is_cancelled_makes_room_and_brings_nothing(made: Any) -> None:
    drawn = {"temperature": 1.0, "logprobs": 2}
    requests = [asked(at, PROMPTS[2], 40, **drawn) for at in range(10)]
    for each in requests:
        made.add(each)
    for each in requests[::2]:
        made.cancel(each.ident)
    found = {each.ident: ScoredAnswer() for each in requests}
    worker = made._scores._worker
    while made.has_work:
        for output in made.step():
            found[output.ident].add(output)
        followed = [each for each in list(worker._sequences.values()) if each.reading is not None]
        assert len(followed) <= FOLLOWED_MAX
    assert [len(each.top) for each in found.values()] == [0, 40] * 5


def test_an_adapters_sequences_are_scored_with_it(folder: Path, tmp_path: Path) -> None:
    from tests.kit.adapter_files import pairs, write_adapter

    adapted = engine(folder, {"one": write_adapter(tmp_path / "one", pairs(1, rank=4))})
    requests = []
    for at, adapter in enumerate(("", "one")):
        request = asked(at, PROMPTS[1], 6, logprobs=1, prompt_scored=True)
        request.adapter = adapter
        requests.append(request)
    base, own = answered(adapted, requests)
    assert base.prompt is not None
    assert own.prompt is not None
    assert base.prompt[5].logprob != pytest.approx(own.prompt[5].logprob, abs=0.01)
    for each in (base, own):
        # The engine chose the likeliest, so in its own numbers too it is.
        assert [top[0][0] for top in each.top] == each.token_ids


def test_one_prompt_that_fails_takes_no_other_with_it(made: Any) -> None:
    requests = [
        asked(at, prompt, 0, logprobs=1, prompt_scored=True) for at, prompt in enumerate(PROMPTS)
    ]
    requests[2].prompt = [BOS, VOCABULARY + 5]
    answers = answered(made, requests)
    failed = [None if each.error is None else each.error.code for each in answers]
    assert failed == [None, None, "logprobs-failed", None, None, None, None]


@pytest.fixture
def fresh(folder: Path) -> Any:
    return engine(folder)


def test_a_graph_that_can_not_be_loaded_fails_its_requests_alone(
    fresh: Any, tmp_path: Path
) -> None:
    fresh._scores._worker._model_file = tmp_path / "none.xml"
    fresh.add(asked(1, PROMPTS[0], 0, logprobs=1, prompt_scored=True))
    fresh.add(asked(2, PROMPTS[0], 4))
    found = {1: ScoredAnswer(), 2: ScoredAnswer()}
    while fresh.has_work:
        for output in fresh.step():
            found[output.ident].add(output)
    assert found[1].error is not None
    assert found[1].error.code == "logprobs-failed"
    assert (len(found[2].token_ids), found[2].error) == (4, None)


def test_where_memory_is_short_a_second_copy_of_the_weights_is_not_loaded(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr("penstock.runtimes.openvino_genai.scores.available_bytes", lambda: 1000)
        (refused,) = answered(fresh, [asked(1, PROMPTS[0], 0, logprobs=1, prompt_scored=True)])
    assert refused.error is not None
    assert (refused.error.code, refused.error.status) == ("logprobs-no-memory", 503)
    assert prompt_scores(fresh, PROMPTS[:1], 1)[0][1].logprob is not None


def test_the_graph_goes_when_nobody_needs_it(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtimes.openvino_genai.scores.IDLE_S_MAX", 0.01)
    loaded: Callable[[], bool] = lambda: fresh._scores._worker._graph is not None  # noqa: E731
    assert not loaded()
    before = prompt_scores(fresh, PROMPTS[:1], 1)
    wait_until(lambda: not loaded(), "the graph is dropped", 30.0)
    assert prompt_scores(fresh, PROMPTS[:1], 1) == before


def test_special_tokens_count_like_others(made: Any) -> None:
    (scored,) = prompt_scores(made, [[BOS, USER, BOS]], 20)
    assert [len(each.top) for each in scored] == [0, 20, 20]

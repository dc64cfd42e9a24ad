"""At temperature 0 an answer of OpenVINO's engine is the same in any company, where that is set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.kit.generation_models import BOS, write_model
from tests.runtimes.test_openvino_adapters import engine
from tests.runtimes.test_openvino_scores import ScoredAnswer, answered, asked

from penstock.artifacts.description.model_yaml import parse
from penstock.errors import CallerError

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

TIMES = 20


def tokens(random: np.random.Generator, low: int, high: int) -> list[int]:
    return [int(each) for each in random.integers(0, 256, int(random.integers(low, high)))]


@pytest.mark.parametrize("precision", ["", "f32"])
@pytest.mark.parametrize("int8", [True, False])
def test_an_answer_repeats_itself_in_any_company(
    tmp_path: Path, precision: str, int8: bool
) -> None:
    """The prompt stands between others, some with its beginning; a step has no room for all."""
    made = engine(
        write_model(tmp_path / "model", int8=int8),
        precision=precision,
        repeatable=True,
        options={},
        tokens_batched_max=128,
        threads=2,
    )
    random = np.random.default_rng(5)
    prompt = [BOS, *tokens(random, 150, 151)]
    seen: list[ScoredAnswer] = []
    for time in range(TIMES):
        others = [[BOS, *tokens(random, 3, 200)] for _ in range(time % 5)]
        alike = [prompt[: int(random.integers(33, 140))] + tokens(random, 5, 20)] * (time % 3)
        requests = [
            asked(at, each, 24, logprobs=0) for at, each in enumerate([*others, prompt, *alike])
        ]
        seen.append(answered(made, requests)[len(others)])
    assert [each.token_ids for each in seen] == [seen[0].token_ids] * TIMES
    for each in seen:
        assert each.logprobs == seen[0].logprobs


@pytest.mark.parametrize("precision", ["", "f32"])
def test_an_answer_is_the_same_behind_one_that_is_in_the_cache(
    tmp_path: Path, precision: str
) -> None:
    """The next turn of a chat finds its beginning in the cache, a part of it written token by
    token; where it comes first, all of it is read at once."""
    model = write_model(tmp_path / "model", int8=True)
    first, second = (
        engine(model, precision=precision, repeatable=True, options={}, threads=2) for _ in range(2)
    )
    random = np.random.default_rng(7)
    for length in (40, 100, 150):
        prompt = [BOS, *tokens(random, length, length + 1)]
        (turn,) = answered(first, [asked(0, prompt, 80, logprobs=0)])
        whole = [*prompt, *turn.token_ids, *tokens(random, 10, 40)]
        after, alone = (
            answered(each, [asked(1, whole, 24, logprobs=0)])[0] for each in (first, second)
        )
        assert after.token_ids == alone.token_ids
        assert after.logprobs == alone.logprobs


@pytest.mark.parametrize("runtime", ["vllm", "paced"])
def test_another_engine_refuses_the_setting_by_name(runtime: str) -> None:
    with pytest.raises(CallerError, match=r"engine\.repeatable is True") as caught:
        parse(f"schema: 1\nruntime: {runtime}\ntask: text-generation\nengine: {{repeatable: true}}")
    assert "openvino_genai" in f"{caught.value.message} {caught.value.hint}"

"""LoRA adapters in OpenVINO's engine: each request has its own, whoever it is stepped with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit.adapter_files import pairs, write_adapter, write_merged
from tests.kit.generation_models import BOS, EOS, write_model

from penstock.artifacts.description.description import EngineOptions
from penstock.errors import CallerError, ModelError

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

TOKENS = 16
FIRST = pairs(1, rank=4)
SECOND = pairs(2, ("q_proj", "up_proj"), rank=8)
PROMPTS = [
    [BOS, *(int(at) for at in np.random.default_rng(seed).integers(0, 256, length))]
    for seed, length in enumerate((5, 40, 150))  # a block of the cache has 32 tokens
]


def engine(model: Path, adapters: dict[str, Path] | None = None, **changed: Any) -> Any:
    from penstock.runtimes.generation.prompts import Prompts
    from penstock.runtimes.openvino_genai.engine import OpenVinoGenAiEngine

    settings: dict[str, Any] = {
        "eos_ids": [EOS], "positions_max": 512, "context_tokens_max": 0, "sequences_max": 16,
        "tokens_batched_max": 64, "chunked_prefill": True, "prefix_caching": True,
        "repeatable": False, "cache_bytes": 8 << 20, "precision": "f32", "threads": 1,
        "options": {"KV_CACHE_PRECISION": "f32"},
        "adapters": {key: str(folder) for key, folder in (adapters or {}).items()},
    }  # fmt: skip
    return OpenVinoGenAiEngine(model, settings | changed, Prompts(model))


def answers(made: Any, asked: list[tuple[list[int], str]], **sampling: Any) -> list[list[int]]:
    """All at once: every one of them is running in the same steps."""
    from penstock.runtimes.generation.base import EngineRequest, Sampling

    found: list[list[int]] = [[] for _ in asked]
    for at, (prompt, adapter) in enumerate(asked):
        settings = Sampling(tokens_new_max=TOKENS, ignore_eos=True, **sampling)
        made.add(EngineRequest(at, prompt, settings, TOKENS, at, adapter=adapter))
    while made.has_work:
        for output in made.step():
            found[output.ident] += output.token_ids
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        "first": write_adapter(root / "first", FIRST),
        "second": write_adapter(root / "second", SECOND, alpha=4),
    }


@pytest.fixture(scope="module")
def both(model: Path, folders: dict[str, Path]) -> Any:
    return engine(model, folders)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory, model: Path) -> dict[str, list[list[int]]]:
    """What models of their own answer, one prompt after the other."""
    root = tmp_path_factory.mktemp("merged")
    models = {
        "": model,
        "first": write_merged(root / "first", FIRST),
        "second": write_merged(root / "second", SECOND, scale=0.5),
    }
    found = {}
    for name, folder in models.items():
        made = engine(folder)
        found[name] = [answers(made, [(prompt, "")])[0] for prompt in PROMPTS]
    assert len({str(each) for each in found.values()}) == 3, "the adapters change every answer"
    return found


def test_an_adapter_answers_as_the_model_that_it_is_merged_into(
    both: Any, merged: dict[str, list[list[int]]]
) -> None:
    for name, expected in merged.items():
        assert [answers(both, [(prompt, name)])[0] for prompt in PROMPTS] == expected


def test_no_answer_depends_on_whose_tokens_share_its_steps(
    both: Any, merged: dict[str, list[list[int]]]
) -> None:
    """Two adapters and the base in one batch, twice: the second time the cache has every prefix,
    and the same prompt has another one for each of them."""
    asked = [(prompt, name) for prompt in PROMPTS for name in merged]
    expected = [merged[name][at] for at in range(len(PROMPTS)) for name in merged]
    assert answers(both, asked) == expected
    assert answers(both, asked) == expected


def test_a_cache_of_8_bits_keeps_adapters_apart(model: Path, folders: dict[str, Path]) -> None:
    made = engine(model, folders, options={}, prefix_caching=False)
    asked = [(PROMPTS[0], name) for name in ("second", "", "first")]
    alone = [answers(made, [each])[0] for each in asked]
    assert len({str(each) for each in alone}) == 3
    assert answers(made, asked * 3) == alone * 3


def test_chance_is_the_same_with_an_adapter_as_without(both: Any, tmp_path: Path) -> None:
    """Sampling sees the same probabilities, so the same seed draws the same tokens."""
    alone = engine(write_merged(tmp_path / "merged", FIRST))
    settings = {"temperature": 1.0, "top_p": 0.9}
    expected = answers(alone, [(PROMPTS[0], "")], **settings)
    assert answers(both, [(PROMPTS[0], "first")], **settings) == expected


def test_many_adapters_are_told_apart_to_the_last(model: Path, tmp_path: Path) -> None:
    """The number passes through the cache of keys and values, whatever that rounds to."""
    from penstock.runtimes.openvino_genai.adapters import ADAPTERS_MAX

    many = {
        f"{at}": write_adapter(tmp_path / f"{at}", pairs(at, ("o_proj",), rank=1), alpha=8)
        for at in range(ADAPTERS_MAX)
    }
    made = engine(model, many, options={}, prefix_caching=False)
    asked = [(PROMPTS[0], key) for key in many]
    found = [answers(made, [each])[0] for each in asked]
    for key in ("0", "1", "31", "62", "63"):
        lone = engine(model, {key: many[key]}, options={}, prefix_caching=False)
        assert found[int(key)] == answers(lone, [(PROMPTS[0], key)])[0], key
    assert answers(made, asked[-16:]) == found[-16:]
    # 16-bit arithmetic may choose another token now and then; another adapter always would.
    halves = engine(model, many, options={}, precision="bf16", prefix_caching=False)
    alike = [answers(halves, [each])[0][:2] == found[at][:2] for at, each in enumerate(asked)]
    assert sum(alike) > 0.7 * len(many)
    assert len({str(each) for each in found}) > 0.9 * len(many)
    with pytest.raises(CallerError, match="at most 64 have room"):
        engine(model, many | {"one more": many["0"]})


def test_an_adapter_of_another_model_is_refused_with_the_layer_that_shows_it(
    model: Path, tmp_path: Path
) -> None:
    other = {"model.layers.0.self_attn.q_proj": (np.ones((2, 40), np.float32),
                                                 np.ones((48, 2), np.float32))}  # fmt: skip
    deeper = {"model.layers.7.mlp.up_proj": (np.ones((2, 48), np.float32),
                                             np.ones((96, 2), np.float32))}  # fmt: skip
    head = {"lm_head": (np.ones((2, 48), np.float32), np.ones((260, 2), np.float32))}
    for given, words in (
        (other, "q_proj maps 48 to 48 numbers in the base, and 40 to 48 in the adapter"),
        (deeper, "no linear layer 'model.layers.7.mlp.up_proj'"),
        (head, "no linear layer 'lm_head'"),
    ):
        folder = write_adapter(tmp_path / str(len(words)), given)
        with pytest.raises(CallerError, match=words) as refused:
            engine(model, {"wrong": folder})
        assert refused.value.code == "adapter-mismatch"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_weights_that_are_no_numbers_are_refused(model: Path, tmp_path: Path, value: float) -> None:
    given = pairs(3, ("v_proj",))
    given["model.layers.1.self_attn.v_proj"][1][3, 1] = value
    with pytest.raises(CallerError, match="infinite or no numbers"):
        engine(model, {"wrong": write_adapter(tmp_path, given)})


def test_weights_that_overflow_spoil_nobody_elses_answer(
    model: Path, folders: dict[str, Path], merged: dict[str, list[list[int]]], tmp_path: Path
) -> None:
    huge = {
        module: (down * np.float32(1e37), up * np.float32(1e37))
        for module, (down, up) in pairs(4).items()
    }
    made = engine(model, folders | {"huge": write_adapter(tmp_path, huge)})
    asked = [(PROMPTS[1], name) for name in ("huge", "", "first", "second", "huge")]
    assert answers(made, asked)[1:4] == [merged[name][1] for name in ("", "first", "second")]


def test_half_precision_files_are_read_as_what_they_are(
    model: Path, tmp_path: Path, merged: dict[str, list[list[int]]]
) -> None:
    given = {
        module: (down.astype(np.float16), up.astype(np.float16))
        for module, (down, up) in FIRST.items()
    }
    whole = {
        module: (down.astype(np.float32), up.astype(np.float32))
        for module, (down, up) in given.items()
    }
    expected = answers(engine(write_merged(tmp_path / "merged", whole)), [(PROMPTS[0], "")])
    made = engine(model, {"half": write_adapter(tmp_path / "half", given)})
    assert answers(made, [(PROMPTS[0], "half")]) == expected


def test_a_repetition_penalty_with_an_adapter_is_refused_and_harms_nobody(
    both: Any, merged: dict[str, list[list[int]]]
) -> None:
    """The library looks up each id of a prompt among its logits, and the marked one is none."""
    with pytest.raises(CallerError, match="repetition_penalty is not supported with an adapter"):
        answers(both, [(PROMPTS[0], "first")], repetition_penalty=1.2)
    assert answers(both, [(PROMPTS[0], "first")]) == [merged["first"][0]]
    assert answers(both, [(PROMPTS[0], "")], repetition_penalty=1.2)


def test_the_penalty_that_the_models_files_give_is_left_out_with_an_adapter(
    tmp_path: Path, folders: dict[str, Path], merged: dict[str, list[list[int]]]
) -> None:
    """Nobody named it, so nobody is refused for it; the base has it."""
    from penstock.runtimes.openvino_genai.engine import load

    folder = write_model(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.2}')
    options = dataclasses.asdict(EngineOptions(cache_bytes=8 << 20, sequences_max=4))
    options["options"] = {"KV_CACHE_PRECISION": "f32"}
    adapters = {"first": str(folders["first"])}
    settings = {"precision": "f32", "threads": 1, "adapters": adapters}
    made, prompts = load(folder, options | settings)
    assert prompts.sampling == {"repetition_penalty": 1.2}
    named = dict(prompts.sampling)
    assert answers(made, [(PROMPTS[0], "first")], **named) == [merged["first"][0]]
    assert answers(made, [(PROMPTS[0], "")], **named) != [merged[""][0]]


def test_an_adapter_that_is_not_loaded_is_no_other_ones_number(both: Any) -> None:
    with pytest.raises(ModelError, match="not loaded"):
        answers(both, [(PROMPTS[0], "third")])

"""Language models on whole compiles: greedy answers are those of transformers, token for token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tests.kit import generation_models
from transformers import AutoModelForCausalLM

from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.detect import detect
from penstock.compile.build import compile_model
from penstock.compile.causal_lm import causal_lm
from penstock.compile.contract import Options
from penstock.compile.serving import compile_for_serving
from penstock.errors import CallerError, ModelError

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-3-positions": {"rope_scaling": LLAMA3},
    "llama-linear-positions": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3"},
}
_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def saved(folder: Path, family: str) -> Path:
    """A Hugging Face directory with random weights."""
    folder.mkdir()
    config = generation_models.CONFIG | FAMILIES[family]
    config["architectures"] = [f"{_CLASSES[config['model_type']]}ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    weights = generation_models.weights(config=config)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    generation_models.write_tokenizer(folder)
    return folder


def transformers_greedy(source: Path, prompt: list[int], count: int) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
        )
    return made[0, len(prompt) :].tolist()


def engine_greedy(artifact: Path, prompts: list[list[int]], count: int) -> list[list[int]]:
    """All prompts at once through the engine that serves them."""
    from penstock.runtimes.generation.base import EngineRequest, Sampling
    from penstock.runtimes.generation.prompts import Prompts
    from penstock.runtimes.openvino_genai.engine import OpenVinoGenAiEngine

    settings = {
        "eos_ids": [generation_models.EOS], "positions_max": 512, "context_tokens_max": 0,
        "sequences_max": 16, "tokens_batched_max": 64, "chunked_prefill": True,
        "prefix_caching": True, "repeatable": False, "cache_bytes": 8 << 20,
        "precision": "f32", "threads": 1,
        "options": {"KV_CACHE_PRECISION": "f32"},
    }  # fmt: skip
    engine = OpenVinoGenAiEngine(artifact, settings, Prompts(artifact))
    made: list[list[int]] = [[] for _ in prompts]
    for at, prompt in enumerate(prompts):
        engine.add(EngineRequest(at, prompt, Sampling(tokens_new_max=count), count, 0))
    while engine.has_work:
        for output in engine.step():
            made[output.ident] += output.token_ids
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_are_transformers_token_for_token(family: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", family)
    report = compile_model(source, tmp_path / "out", Options(target="cpu-fp32", measure_s=0.0))
    assert report["parity"]["agreement"] in (None, 1.0)
    random = np.random.default_rng(3)
    prompts = [random.integers(0, 256, length).tolist() for length in (1, 5, 31, 32, 33, 100, 200)]
    wanted = [transformers_greedy(source, prompt, 40) for prompt in prompts]
    assert engine_greedy(tmp_path / "out", prompts, 40) == wanted


def test_int8_artifacts_are_small_and_describe_themselves(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "llama")
    whole = compile_model(source, tmp_path / "f32", Options(target="cpu-fp32", measure_s=0.0))
    small = compile_model(source, tmp_path / "int8", Options(target="cpu-int8", measure_s=0.0))
    binary = "openvino_model.bin"
    assert (tmp_path / "int8" / binary).stat().st_size < 0.35 * (
        tmp_path / "f32" / binary
    ).stat().st_size
    assert small["parity"]["difference_mean"] > whole["parity"]["difference_mean"]
    description = detect(tmp_path / "int8").description
    assert (description.runtime, description.task) == ("openvino_genai", "text-generation")
    assert description.precision == "f32"  # between its products of integers, on every processor
    assert model_yaml.load(tmp_path / "int8").engine == description.engine


def test_weights_that_are_deployed_uncompiled_become_int8(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "llama")
    entry = compile_for_serving(source, tmp_path / "cache")
    assert json.loads((entry / "report.json").read_text())["target"] == "cpu-int8"
    assert detect(entry).description.runtime == "openvino_genai"


def test_a_wrong_layer_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "source", "llama")
    read = causal_lm.weights_of

    def wrongly_scaled(model: Any) -> Any:
        return {
            name: value * 2 if "layers.1.self_attn.o_proj" in name else value
            for name, value in read(model).items()
        }

    monkeypatch.setattr(causal_lm, "weights_of", wrongly_scaled)
    with pytest.raises(CallerError) as caught:
        compile_model(source, tmp_path / "out", Options(target="cpu-int8", measure_s=0.0))
    assert caught.value.code == "parity-failed"
    assert not (tmp_path / "out").exists()


def test_what_the_graph_does_not_hold_is_refused_by_name(tmp_path: Path) -> None:
    for changed, words in (
        ({"model_type": "gpt_neox"}, "gpt_neox"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"model_type": "mistral", "sliding_window": 64}, "sliding window of 64"),
    ):
        source = saved(tmp_path / f"source-{words.split()[0]}", "llama")
        config = json.loads((source / "config.json").read_text()) | changed
        (source / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError) as caught:
            compile_model(source, tmp_path / "out", Options(target="cpu-fp32", measure_s=0.0))
        assert caught.value.code == "unsupported-architecture"
        assert words in caught.value.message

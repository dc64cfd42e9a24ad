"""The same request again: equal to the bit where nothing is cached; what the cache may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.generation_models import write_model
from tests.kit.instances import instance

from penstock.runtimes.processor import instruction_set_here

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
#: Several blocks of the cache, each with an end of its own.
PROMPTS = [("a prompt of some length, " * 6)[: 90 + 7 * at] for at in range(6)]
#: FP32 has 24 bits; sums of a few hundred products lose some of them.
ROUNDING = 1e-4


def logprobs(client: StreamClient, copy: int, prompt: str) -> list[float]:
    asked = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 0, "ignore_eos": True}
    choice: dict[str, Any] = client.ask(copy, asked, **COMPLETIONS).json["choices"][0]
    return list(choice["logprobs"]["token_logprobs"])


def test_an_answer_repeats_itself_without_a_prefix_cache(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = StreamClient(running.path)
        alone = {"prefix_caching": False, "sequences_max": 1}
        client.serve(1, write_model(tmp_path / "alone", engine=alone))
        client.serve(2, write_model(tmp_path / "cached"))
        for prompt in PROMPTS:
            first = logprobs(client, 1, prompt)
            assert [logprobs(client, 1, prompt) for _ in range(3)] == [first] * 3
            for again in [logprobs(client, 2, prompt) for _ in range(3)]:
                assert again == pytest.approx(first, abs=ROUNDING)
        told = [
            client.ask(copy, {"prompt": PROMPTS[0], "max_tokens": 2}, **COMPLETIONS).json["usage"]
            for copy in (1, 2)
        ]
        assert told[0]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert "prompt_tokens_details" not in told[1], "the library does not tell, and 0 is wrong"
        client.close()


def test_a_cache_in_another_precision_than_the_arithmetic_says_why(tmp_path: Path) -> None:
    if not instruction_set_here().bf16:
        pytest.skip("this processor has no BF16, so its arithmetic is FP32 everywhere")
    model = write_model(tmp_path / "model")
    settings = model / "model.yaml"
    described = json.loads(settings.read_text()) | {"precision": "bf16"}
    settings.write_text(json.dumps(described))
    with instance(tmp_path) as running:
        client = StreamClient(running.path)
        loaded = client.load(1, model)
        assert not loaded.get("ok")
        assert "KV_CACHE_PRECISION f32 does not go with" in json.dumps(loaded)
        client.close()

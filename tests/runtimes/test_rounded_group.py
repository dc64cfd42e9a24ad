"""How many numbers of a language model's activations share one scale."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtimes.openvino.runtime import ROUNDED_GROUP, rounded_group_of


@pytest.mark.parametrize(
    ("hidden", "intermediate", "group"),
    [
        pytest.param(576, 1536, 192, id="SmolLM 135M"),
        pytest.param(2048, 5632, 128, id="TinyLlama 1.1B"),
        pytest.param(896, 4864, 128, id="Qwen2 0.5B: 128 is the largest that divides both"),
        pytest.param(4096, 11008, 128, id="Llama 2 7B"),
        pytest.param(960, 2560, 160, id="SmolLM 360M"),
        pytest.param(64, 256, ROUNDED_GROUP, id="nothing larger divides both"),
        pytest.param(100, 300, ROUNDED_GROUP, id="odd widths"),
    ],
)
def test_a_group_divides_the_widths(hidden: int, intermediate: int, group: int) -> None:
    assert rounded_group_of({"hidden_size": hidden, "intermediate_size": intermediate}) == group


def test_the_width_of_all_heads_counts_too() -> None:
    config = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 8}
    assert rounded_group_of({**config, "head_dim": 64}) == ROUNDED_GROUP  # 512 = 8 * 64
    assert rounded_group_of({**config, "head_dim": 72}) == 192


@pytest.mark.parametrize("config", [{}, {"hidden_size": None}, {"hidden_size": "576"}, {"n": 1}])
def test_a_description_without_widths_says_nothing(config: dict[str, Any]) -> None:
    assert rounded_group_of(config) == ROUNDED_GROUP

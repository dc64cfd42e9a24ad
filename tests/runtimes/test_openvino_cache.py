"""In which format keys and values are kept, and how many blocks of 32 tokens that makes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ModelError
from penstock.runtimes.openvino_genai.engine import cache_blocks, cache_bytes, check_room

#: Keys and values of a token: 2 layers of 4 heads of 64 numbers, twice.
CONFIG = {
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512
}  # fmt: skip
NUMBERS = 2 * 2 * 4 * 64
BF16_BLOCK = 32 * NUMBERS * 2
U8_BLOCK = 32 * (NUMBERS + 2 * 2 * 4 * 8)  #: a scale and a zero point for each head
#: 4 sequences of 96 tokens: each 3 blocks, and one that it has just begun
NEEDED = 16


def blocks(cache_bytes: int, properties: dict[str, Any]) -> tuple[int, str | None]:
    found = cache_blocks(CONFIG, {"cache_bytes": cache_bytes}, 96, 4, properties)
    return found, properties.get("KV_CACHE_PRECISION")


def test_bf16_where_the_arithmetic_is_and_every_sequence_has_room() -> None:
    bf16 = {"INFERENCE_PRECISION_HINT": "bf16"}
    assert blocks(NEEDED * BF16_BLOCK, dict(bf16)) == (NEEDED, "bf16")
    assert blocks(9 * NEEDED * BF16_BLOCK, dict(bf16)) == (NEEDED, "bf16")


def test_8_bits_where_bf16_would_keep_fewer_tokens_than_all_sequences_may_have() -> None:
    bytes_max = NEEDED * BF16_BLOCK - 1
    assert blocks(bytes_max, {"INFERENCE_PRECISION_HINT": "bf16"}) == (NEEDED, None)
    assert blocks(10 * U8_BLOCK, {"INFERENCE_PRECISION_HINT": "bf16"}) == (10, None)


def test_8_bits_beside_fp32_and_where_no_format_is_named() -> None:
    much = 9 * NEEDED * BF16_BLOCK
    assert blocks(much, {"INFERENCE_PRECISION_HINT": "f32"}) == (NEEDED, None)
    assert blocks(much, {}) == (NEEDED, None)


def test_what_the_models_options_say_goes_before_it() -> None:
    asked = {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "u8"}
    assert blocks(9 * NEEDED * BF16_BLOCK, asked) == (NEEDED, "u8")
    asked = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    assert blocks(4 * 2 * BF16_BLOCK, asked) == (4, "f32")


def test_adapters_take_a_head_of_16_numbers_more() -> None:
    settings = {"cache_bytes": 10 * U8_BLOCK, "adapters": {"first": "folder"}}
    assert cache_blocks(CONFIG, settings, 96, 4, {}) == 9


def test_a_cache_of_less_than_two_blocks_is_refused() -> None:
    assert blocks(2 * U8_BLOCK, {}) == (2, None)
    with pytest.raises(ModelError, match=f"hold 1 blocks of {U8_BLOCK} bytes, two are needed"):
        blocks(2 * U8_BLOCK - 1, {"INFERENCE_PRECISION_HINT": "bf16"})


def test_the_default_is_no_more_than_the_instance_has_beside_the_weights() -> None:
    mib = 2**20
    default = {"cache_bytes": 500 * mib, "cache_asked": False, "memory_bytes_max": 2000 * mib}
    assert cache_bytes(default, 1200 * mib) == 500 * mib
    assert cache_bytes(default, 1500 * mib) == (2000 - 1500 - 256) * mib
    assert cache_bytes(default, 1900 * mib) == 0
    assert cache_bytes(default | {"memory_bytes_max": 0}, 1900 * mib) == 500 * mib
    assert cache_bytes(default | {"cache_asked": True}, 1900 * mib) == 500 * mib


def test_a_cache_that_outgrows_its_instance_is_refused_before_any_answer_breaks_off() -> None:
    mib = 2**20
    check_room(500 * mib, 1500 * mib, 2000 * mib)
    check_room(500 * mib, 1500 * mib, 0)
    with pytest.raises(ModelError) as refused:
        check_room(600 * mib, 1500 * mib, 2000 * mib)
    assert refused.value.code == "cache-too-large"
    assert "may grow to 1500 MiB, and the loaded model leaves 1400 of" in str(refused.value)
    assert "set engine.cache_mb in model.yaml to 1400 or less" in refused.value.hint
    with pytest.raises(ModelError, match=r"leaves 0 of its instance's 2000 MiB") as refused:
        check_room(2100 * mib, 1, 2000 * mib)
    assert refused.value.hint == "Choose an instance type with more memory."

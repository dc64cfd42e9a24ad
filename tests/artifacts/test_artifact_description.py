"""What a description says where an artifact says nothing."""

from __future__ import annotations

import dataclasses

from penstock.artifacts.description.description import (
    Embedding,
    EngineOptions,
    Generation,
    ModelDescription,
    PaceSpec,
    Tokenizer,
)


def test_a_description_of_which_only_the_runtime_is_known() -> None:
    assert dataclasses.asdict(ModelDescription(runtime="openvino")) == {
        "runtime": "openvino",
        "task": "tensor",
        "name": "",
        "file": "",
        "version": "1",
        "inputs": (),
        "outputs": (),
        "labels": (),
        "tokenizer": None,
        "embedding": None,
        "heads": (),
        "generation": None,
        "engine": None,
        "batching": {
            "rows_max": 1,
            "wait_s_max": 0.0,
            "rows_preferred": (),
            "queue_rows_max": 2048,
            "queue_wait_s_max": None,
            "timeout_override": False,
            "preserves_order": False,
            "buckets": (),
            "priorities": 1,
            "priority_default": 0,
            "levels": (),
            "latency_s_p99_max": None,
        },
        "lanes": 1,
        "threads_per_lane": 0,
        "pinned": False,
        "command": (),
        "health": "",
        "predict": "",
        "triton_python": False,
        "decoupled": False,
        "sequences": None,
        "calls_models": False,
        "ensemble": (),
        "triton": None,
        "other_versions": {},
        "models": (),
        "warmup": (),
        "parameters": {},
        "environment": {},
        "requirements": (),
        "packed_environment": "",
        "python": "",
        "framework": (),
        "handler": "",
        "mapped_command": False,
        "image": "",
        "image_resolved": "",
        "engine_program": "",
        "precision": "",
        "runtime_fallback": "",
        "runtime_reason": "",
        "trusted": False,
        "unconfined": False,
    }


def test_the_parts_of_a_description_that_only_some_models_have() -> None:
    parts = (Tokenizer(), Embedding(), Generation(), EngineOptions(), PaceSpec())
    assert [dataclasses.asdict(part) for part in parts] == [
        {"file": "tokenizer.json", "tokens_max": 512, "pad_id": 0},
        {"pooling": "mean", "normalize": True},
        {
            "encoder_file": "encoder.xml",
            "decoder_file": "decoder.xml",
            "eos_ids": (1,),
            "decoder_start_id": 0,
            "tokens_new_max": 64,
            "beams_max": 4,
        },
        {
            "context_tokens_max": 0,
            "sequences_max": 64,
            "tokens_batched_max": 2048,
            "chunked_prefill": True,
            "prefix_caching": True,
            "repeatable": False,
            "sampling_defaults": "model",
            "cache_bytes": 0,
            "chat_template": "",
            "python": "",
            "options": {},
            "pace": None,
        },
        {
            "step_s": 0.011,
            "sequence_s": 0.0015,
            "prefill_token_s": 0.0005,
            "prefixes_cached_max": 0,
            "sigma": 0.0,
            "seed": 0,
            "prefix_tokens": 0,
            "answer_tokens": 0,
            "load_s": 0.0,
        },
    ]

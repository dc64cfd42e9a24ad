"""Tiny language models with random weights: the folder that a deployment would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compile.causal_lm.causal_lm_graph import causal_lm
from penstock.compile.seq2seq.seq2seq_graph import Builder

#: 256 bytes, then <s>, </s>, <|user|>, <|assistant|>
BOS, EOS, USER, ASSISTANT = 256, 257, 258, 259
VOCABULARY = 260

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "torch_dtype": "float32",
}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role not in ['user', 'assistant', 'system'] %}"
    "{{ raise_exception('roles are user, assistant and system') }}{% endif %}"
    "{{ '<|' + ('user' if message.role == 'system' else message.role) + '|>' + message.content }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def weights(seed: int = 7, config: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Random, under the names of Hugging Face's files."""
    sizes = config or CONFIG
    random = np.random.default_rng(seed)
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, shared, size = (
        sizes["num_attention_heads"], sizes["num_key_value_heads"], sizes["head_dim"],
    )  # fmt: skip
    made: dict[str, np.ndarray] = {}

    def normal(name: str, *shape: int, scale: float = 0.25) -> None:
        made[f"{name}.weight"] = (random.standard_normal(shape) * scale).astype(np.float32)

    def norm(name: str, length: int) -> None:
        values = 1 + random.standard_normal(length) * 0.1
        made[f"{name}.weight"] = values.astype(np.float32)

    normal("model.embed_tokens", sizes["vocab_size"], width, scale=0.4)
    for at in range(sizes["num_hidden_layers"]):
        layer = f"model.layers.{at}"
        norm(f"{layer}.input_layernorm", width)
        norm(f"{layer}.post_attention_layernorm", width)
        normal(f"{layer}.self_attn.q_proj", heads * size, width)
        normal(f"{layer}.self_attn.k_proj", shared * size, width)
        normal(f"{layer}.self_attn.v_proj", shared * size, width)
        normal(f"{layer}.self_attn.o_proj", width, heads * size)
        normal(f"{layer}.mlp.gate_proj", inner, width)
        normal(f"{layer}.mlp.up_proj", inner, width)
        normal(f"{layer}.mlp.down_proj", width, inner)
        if sizes["model_type"] == "qwen3":
            norm(f"{layer}.self_attn.q_norm", size)
            norm(f"{layer}.self_attn.k_norm", size)
        if sizes["model_type"] == "qwen2":
            for part, rows in (("q", heads), ("k", shared), ("v", shared)):
                values = random.standard_normal(rows * size) * 0.1
                made[f"{layer}.self_attn.{part}_proj.bias"] = values.astype(np.float32)
    norm("model.norm", width)
    return made


def write_tokenizer(folder: Path, *, template: str | None = TEMPLATE) -> None:
    """One token a byte, so that a character may be several tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: at for at, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BOS)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_model(
    folder: Path, *, seed: int = 7, int8: bool = False, engine: dict[str, Any] | None = None
) -> Path:
    """A folder for runtime `openvino_genai`, computing in FP32."""
    import openvino as ov

    folder.mkdir(parents=True, exist_ok=True)
    model = causal_lm(Builder(weights(seed), int8=int8, bf16=False), CONFIG)
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer(folder)
    settings = {
        "schema": 1,
        "runtime": "openvino_genai",
        "precision": "f32",
        "engine": {
            "cache_mb": 4,
            "options": {"KV_CACHE_PRECISION": "f32"},
            **(engine or {}),
        },
    }
    (folder / "model.yaml").write_text(json.dumps(settings))
    return folder


def write_weights(folder: Path, *, seed: int = 7, **changed: Any) -> Path:
    """A Hugging Face directory: config.json, safetensors weights, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | changed
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, at = [], 0
    for name, array in weights(seed, config).items():
        header[name] = {
            "dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes],
        }  # fmt: skip
        at += array.nbytes
        parts.append(array.tobytes())
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        len(head).to_bytes(8, "little") + head + b"".join(parts)
    )
    write_tokenizer(folder)
    return folder


def greedy(folder: Path, prompt: list[int], count: int) -> list[int]:
    """What the graph itself continues `prompt` with, one step at a time, without any engine."""
    import openvino as ov

    compiled = ov.Core().compile_model(
        folder / "openvino_model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    request = compiled.create_infer_request()
    made: list[int] = []
    new, past = prompt, 0
    while len(made) < count:
        total = past + len(new)
        logits = request.infer(
            {
                "input_ids": np.array([new], dtype=np.int64),
                "attention_mask": np.ones((1, total), dtype=np.int64),
                "position_ids": np.arange(past, total, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, dtype=np.int32),
            }
        )["logits"]
        past = total
        new = [int(logits[0, -1].argmax())]
        made += new
        if new == [EOS]:
            break
    return made

"""Tiny encoder-decoder models with random weights, and what transformers' `generate` makes of them.

`python tests/kit/seq2seq_models.py` (where transformers is installed) writes the answers anew
into `seq2seq_answers.json`; the tests compare with that file and need neither torch nor the extra.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    Generation,
    ModelDescription,
    Tokenizer,
)
from penstock.compile.seq2seq import seq2seq_bart, seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import Builder
from penstock.runtimes.base import LoadContext

ANSWERS = Path(__file__).parent / "seq2seq_answers.json"
WORDS = 96  #: the vocabulary: three special tokens, then "w3" to "w95"
_WIDTH = 32

_T5 = {
    "vocab_size": WORDS, "d_model": _WIDTH, "d_kv": 8, "d_ff": 64, "num_heads": 4,
    "num_layers": 2, "num_decoder_layers": 2, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20, "decoder_start_token_id": 0, "pad_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
_BART = {
    "vocab_size": WORDS, "d_model": _WIDTH, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2,
    "eos_token_id": 1, "decoder_start_token_id": 1, "activation_function": "gelu",
}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "t5": {"model_type": "t5", **_T5, "feed_forward_proj": "relu", "scale_decoder_outputs": True},
    "mt5": {
        "model_type": "mt5",
        **_T5,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "bart": {"model_type": "bart", **_BART},
    "mbart": {"model_type": "mbart", **_BART, "scale_embedding": True},
    "marian": {"model_type": "marian", **_BART, "scale_embedding": True},
}

#: inputs by length; and what is asked of `generate`
SOURCES = [
    np.random.default_rng(length).integers(3, WORDS, length).tolist()
    for length in (1, 2, 5, 9, 16, 17, 33)
]
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"max_new_tokens": 20},
    "greedy-eleven": {"max_new_tokens": 11, "min_new_tokens": 11},
    "greedy-no-repeat": {"max_new_tokens": 40, "no_repeat_ngram_size": 2,
                         "forced_eos_token_id": 1},
    "beams": {"max_new_tokens": 12, "num_beams": 4},
    "beams-early": {"max_new_tokens": 12, "num_beams": 3, "early_stopping": True},
    "beams-never": {"max_new_tokens": 12, "num_beams": 4, "early_stopping": "never",
                    "length_penalty": 2.0},
    "beams-short": {"max_new_tokens": 12, "num_beams": 2, "length_penalty": -1.0,
                    "min_new_tokens": 2, "no_repeat_ngram_size": 3},
}  # fmt: skip


def weights(kind: str) -> dict[str, np.ndarray]:
    """Random, and strong enough that answers differ by input and do end."""
    random = np.random.default_rng(7)
    made: dict[str, np.ndarray] = {}

    def normal(name: str, *shape: int, scale: float = 0.3) -> None:
        made[name] = (random.standard_normal(shape) * scale).astype(np.float32)

    def norm(name: str, *, bias: bool) -> None:
        made[f"{name}.weight"] = (1 + random.standard_normal(_WIDTH) * 0.1).astype(np.float32)
        if bias:
            normal(f"{name}.bias", _WIDTH, scale=0.1)

    (_t5_weights if kind in ("t5", "mt5") else _bart_weights)(kind, normal, norm)
    if kind == "t5":
        # The end of the answer, made likelier: by itself a random model would go on for ever.
        made["shared.weight"][1] *= 1.5
    return made


def _t5_weights(kind: str, normal: Any, norm: Any) -> None:
    normal("shared.weight", WORDS, _WIDTH, scale=0.2)
    for part in ("encoder", "decoder"):
        own = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        normal(own, 8, 4, scale=0.7)
        norm(f"{part}.final_layer_norm", bias=False)
        for layer in range(2):
            blocks = ["SelfAttention", *(["EncDecAttention"] if part == "decoder" else [])]
            for at, block in enumerate(blocks):
                prefix = f"{part}.block.{layer}.layer.{at}"
                norm(f"{prefix}.layer_norm", bias=False)
                for name in "qkvo":
                    normal(f"{prefix}.{block}.{name}.weight", _WIDTH, _WIDTH)
            prefix = f"{part}.block.{layer}.layer.{len(blocks)}"
            norm(f"{prefix}.layer_norm", bias=False)
            for name in ("wi",) if kind == "t5" else ("wi_0", "wi_1"):
                normal(f"{prefix}.DenseReluDense.{name}.weight", 64, _WIDTH)
            normal(f"{prefix}.DenseReluDense.wo.weight", _WIDTH, 64)
    if kind == "mt5":
        normal("lm_head.weight", WORDS, _WIDTH, scale=0.5)


def _bart_weights(kind: str, normal: Any, norm: Any) -> None:
    normal("model.shared.weight", WORDS, _WIDTH, scale=0.2)
    normal("final_logits_bias", 1, WORDS, scale=1.0)
    for part in ("encoder", "decoder"):
        prefix = f"model.{part}"
        if kind != "marian":
            normal(f"{prefix}.embed_positions.weight", 66, _WIDTH)
            norm(f"{prefix}.layernorm_embedding", bias=True)
        if kind == "mbart":
            norm(f"{prefix}.layer_norm", bias=True)
        for layer in range(2):
            own = f"{prefix}.layers.{layer}"
            for block in ("self_attn", "encoder_attn")[: 1 if part == "encoder" else 2]:
                norm(f"{own}.{block}_layer_norm", bias=True)
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    normal(f"{own}.{block}.{name}.weight", _WIDTH, _WIDTH)
                    normal(f"{own}.{block}.{name}.bias", _WIDTH, scale=0.1)
            norm(f"{own}.final_layer_norm", bias=True)
            for name, rows, columns in (("fc1", 64, _WIDTH), ("fc2", _WIDTH, 64)):
                normal(f"{own}.{name}.weight", rows, columns)
                normal(f"{own}.{name}.bias", rows, scale=0.1)


def write_artifact(
    folder: Path, kind: str = "t5", *, int8: bool = False, rows_max: int = 8, **generation: Any
) -> ModelDescription:
    """The artifact that `penstock compile` would write, from weights alone."""
    import openvino as ov

    folder.mkdir(parents=True, exist_ok=True)
    config, table = CONFIGS[kind], weights(kind)
    module = seq2seq_t5 if kind in ("t5", "mt5") else seq2seq_bart
    for part in ("encoder", "decoder"):
        model = getattr(module, part)(Builder(table, int8=int8, bf16=False), config)
        ov.save_model(model, folder / f"{part}.xml", compress_to_fp16=False)
    write_tokenizer(folder / "tokenizer.json")
    description = ModelDescription(
        runtime="seq2seq",
        task="text2text-generation",
        file="decoder.xml",
        tokenizer=Tokenizer(tokens_max=48),
        generation=Generation(
            eos_ids=(1,),
            decoder_start_id=config["decoder_start_token_id"],
            **({"tokens_new_max": 40} | generation),
        ),
        batching=Batching(rows_max=rows_max),
    )
    (folder / "model.yaml").write_text(model_yaml.dump(description))
    return description


def write_tokenizer(path: Path) -> None:
    import tokenizers
    from tokenizers import models, pre_tokenizers

    words = ["<pad>", "</s>", "<unk>", *(f"w{at}" for at in range(3, WORDS))]
    vocabulary = {word: at for at, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.save(str(path))


def context(folder: Path, description: ModelDescription) -> LoadContext:
    return LoadContext(
        model_dir=folder, description=description, endpoint_name="e", variant_name="v",
        cores=1.0, memory_bytes_max=0,
    )  # fmt: skip


def answers() -> dict[str, dict[str, list[list[int]]]]:
    """By kind and request: the answers to SOURCES, one by one, as transformers gives them."""
    return json.loads(ANSWERS.read_text())


def reference(kind: str) -> Any:
    """The model in transformers, with the same weights."""
    import torch
    import transformers

    classes = {
        "t5": transformers.T5ForConditionalGeneration,
        "mt5": transformers.MT5ForConditionalGeneration,
        "bart": transformers.BartForConditionalGeneration,
        "mbart": transformers.MBartForConditionalGeneration,
        "marian": transformers.MarianMTModel,
    }
    own = {key: value for key, value in CONFIGS[kind].items() if key != "model_type"}
    own.pop("scale_decoder_outputs", None)
    model = classes[kind](classes[kind].config_class(**own))
    state = {key: torch.tensor(value) for key, value in weights(kind).items()}
    if kind == "mt5":  # its output layer is its own
        model.lm_head.weight = torch.nn.Parameter(state["lm_head.weight"])
    missing, unexpected = model.load_state_dict(state, strict=False)
    if kind == "mt5":
        model.encoder.embed_tokens.weight = model.decoder.embed_tokens.weight = model.shared.weight
    else:
        model.tie_weights()
    assert not unexpected, unexpected
    assert all("embed" in key or key == "lm_head.weight" for key in missing), missing
    return model.eval()


def main() -> None:
    import torch

    made: dict[str, Any] = {}
    for kind in CONFIGS:
        model = reference(kind)
        made[kind] = {}
        for name, asked in REQUESTS.items():
            settings = {"do_sample": False, "forced_eos_token_id": None, **asked}
            made[kind][name] = [
                model.generate(
                    torch.tensor([source]),
                    attention_mask=torch.ones(1, len(source), dtype=torch.long),
                    **settings,
                )[0, 1:].tolist()
                for source in SOURCES
            ]
    ANSWERS.write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

"""Tiny random models of every family, in the format that Hugging Face saves: two layers, width 32.

Weights are drawn wide, so that answers differ from text to text and a wrong graph is seen at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

TEXTS = (
    "red running shoes",
    "where is my package",
    "a",
    "stainless steel water bottle with a straw for school",
    "return the jacket that does not fit",
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'"
_SHAPE: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "initializer_range": 0.25,
}
_ROBERTA = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}

#: model_type -> (configuration, its settings)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "distilbert": (
        "DistilBert",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "dropout": 0.0},
    ),
    "roberta": ("Roberta", _ROBERTA),
    "xlm-roberta": ("XLMRoberta", _ROBERTA),
    "camembert": ("Camembert", _ROBERTA),
    "electra": ("Electra", {"embedding_size": 16}),
    "albert": ("Albert", {"embedding_size": 16}),
    "mpnet": ("MPNet", {"pad_token_id": 1}),
    "deberta-v2": (
        "DebertaV2",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
            "position_biased_input": False,
        },
    ),
}


def save(folder: Path, family: str = "bert", kind: str = "ForSequenceClassification", **more: Any):
    """A saved model with a word-piece tokenizer. Returns it, ready to be asked."""
    prefix, settings = FAMILIES[family]
    torch.manual_seed(7)
    config = getattr(transformers, f"{prefix}Config")(**{**_SHAPE, **settings, **more})
    model = getattr(transformers, f"{prefix}{kind}")(config).eval()
    model.save_pretrained(folder)
    pad = int(config.pad_token_id or 0)
    word_pieces(pad).save(str(folder / "tokenizer.json"))
    return model


def vocabulary(pad: int = 0) -> list[str]:
    specials = ["[UNK]", "[CLS]", "[SEP]"]
    specials.insert(pad, "[PAD]")
    words = sorted({word for text in TEXTS for word in text.split()} - set(_LETTERS))
    return [*specials, *_LETTERS, *(f"##{each}" for each in _LETTERS), *words]


def word_pieces(pad: int = 0) -> tokenizers.Tokenizer:
    ids = {token: at for at, token in enumerate(vocabulary(pad))}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def sentence_encoder(folder: Path, *, pooling: str, normalize: bool, dense: int = 0) -> Any:
    """A sentence-transformers model, laid out as that library saves it. Returns the backbone."""
    model = save(folder, "bert", "Model")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    _write(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": 32,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": pooling == "max",
        },
    )
    if dense:
        from safetensors.torch import save_file

        modules.append(("2_Dense", "Dense"))
        activation = "torch.nn.modules.activation.Tanh"
        settings = {"in_features": 32, "out_features": dense, "activation_function": activation}
        _write(folder / "2_Dense" / "config.json", settings)
        torch.manual_seed(3)
        weights = {"linear.weight": torch.randn(dense, 32), "linear.bias": torch.randn(dense)}
        save_file(weights, str(folder / "2_Dense" / "model.safetensors"))
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": at, "path": path, "type": f"sentence_transformers.models.{kind}"}
                for at, (path, kind) in enumerate(modules)
            ]
        )
    )
    return model


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))

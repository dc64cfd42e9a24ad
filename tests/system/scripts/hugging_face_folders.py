"""Writes tiny models as `save_pretrained` does, and prints what transformers answers for each.

`python hugging_face_folders.py FOLDER`, by an interpreter that has PyTorch and transformers: a
classifier, an embedder, a T5 and a language model, each in a folder of its name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

TEXT = "where is my order"
TOKENS = 8
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "is", "my", "order", "return", "parcel")
#: Wide weights, so that answers differ from text to text.
BERT = {
    "vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.25,
}  # fmt: skip
T5 = {
    "vocab_size": len(WORDS), "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 3,
}  # fmt: skip
LLAMA = {
    "vocab_size": len(WORDS), "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
    "initializer_range": 0.5, "bos_token_id": 2, "eos_token_id": 3, "tie_word_embeddings": False,
}  # fmt: skip


def tokenizer(*, wrapped: bool) -> PreTrainedTokenizerFast:
    """By words; `wrapped`: between [CLS] and [SEP]."""
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if wrapped:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", eos_token="[SEP]", bos_token="[CLS]", model_max_length=64,
    )  # fmt: skip


def saved(folder: Path, model: Any, *, wrapped: bool = True) -> tuple[Any, Any, Any]:
    """The model, its tokenizer, and TEXT as its tokens."""
    words = tokenizer(wrapped=wrapped)
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return model, words, words(TEXT, return_tensors="pt", return_token_type_ids=False)


def classifier(folder: Path) -> list[float]:
    """The chance of each label."""
    config = BertConfig(**BERT, id2label={0: "track", 1: "buy"}, label2id={"track": 0, "buy": 1})
    model, _, tokens = saved(folder, BertForSequenceClassification(config))
    chances: list[float] = model(**tokens).logits[0].softmax(-1).tolist()
    return chances


def embedder(folder: Path) -> list[float]:
    """The mean of all tokens, of length 1."""
    model, _, tokens = saved(folder, BertModel(BertConfig(**BERT), add_pooling_layer=False))
    mean = model(**tokens).last_hidden_state[0].mean(0)
    vector: list[float] = (mean / mean.norm()).tolist()
    return vector


def t5(folder: Path) -> str:
    model, words, tokens = saved(folder, T5ForConditionalGeneration(T5Config(**T5)))
    made = model.generate(**tokens, max_new_tokens=TOKENS, do_sample=False)[0]
    return str(words.decode(made, skip_special_tokens=True))


def llama(folder: Path) -> str:
    model, words, tokens = saved(folder, LlamaForCausalLM(LlamaConfig(**LLAMA)), wrapped=False)
    made = model.generate(**tokens, max_new_tokens=TOKENS, do_sample=False)[0]
    return str(words.decode(made[tokens["input_ids"].shape[1] :], skip_special_tokens=True))


if __name__ == "__main__":
    answers = {}
    with torch.inference_mode():
        # With these seeds neither writes nothing.
        for seed, kind in ((4, t5), (5, classifier), (6, embedder), (7, llama)):
            set_seed(seed)
            answers[kind.__name__] = kind(Path(sys.argv[1], kind.__name__))
    print(json.dumps(answers))

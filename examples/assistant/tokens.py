"""The assistant's tokenizer: words of the shop as one token each, learned from its dialogues.

Serves `train_chat.py`. A price is two tokens ("$49", ".99"), a rating two, a product's number one:
what the model copies should be few pieces. Other words fall into subwords, in the end bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 3072
PAD, SYSTEM, USER, ASSISTANT, END = range(5)
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
_PIECES = r" ?\[\d\]|\n| ?\$?\d+|\.\d+| ?[A-Za-z]+(?:[-'][A-Za-z]+)*| ?[^\sA-Za-z\d]+|\s"


def rendered(messages: Iterable[dict[str, str]]) -> str:
    """What `TEMPLATE` makes of the messages, without the beginning of the answer."""
    return "".join(f"<|{each['role']}|>{each['content']}<|end|>" for each in messages)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, *, tokens_max: int) -> None:
    """tokenizer.json, its settings and the chat template, as a Hugging Face directory has them."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[PAD],
        eos_token=SPECIAL[END],
        model_max_length=tokens_max,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)

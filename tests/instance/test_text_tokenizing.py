"""Rows put together of texts that were tokenized once are those that the library makes whole."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from penstock.artifacts.description.description import Tokenizer as Described
from penstock.instance.engines.text_rows import Tokenizing
from penstock.instance.engines.text_tokens import TextTokenizer, frame_of, open_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "1", "x", "y", "red", "cup", "kettle"]
BERT = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)  # fmt: skip
ROBERTA = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)  # fmt: skip


def opened(folder: Path, post: Any, *, tokens_max: int = 12) -> TextTokenizer:
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if post is not None:
        made.post_processor = post
    made.save(str(folder / "tokenizer.json"))
    return open_tokenizer(folder, Described(tokens_max=tokens_max), 0, pairs=True)


def rows_of(tokenizing: Tokenizing, texts: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    rows = tokenizing.rows(texts)
    ends = rows.ends.tolist()
    return [
        (rows.ids[begin:end].tolist(), rows.types[begin:end].tolist())
        for begin, end in itertools.pairwise(ends)
    ]


def whole(tokenizer: TextTokenizer, texts: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    return [(each.ids, each.type_ids) for each in tokenizer.encode_batch(texts)]


def some_texts(count: int) -> list[Any]:
    """Texts and pairs; many come again, some have no token, some are cut, some are long."""
    rng = random.Random(3)

    def text() -> str:
        length = rng.choice((0, 1, 2, 3, 4, 5, 9, 20))
        return " ".join(rng.choices((*WORDS[4:], "other"), k=length))

    titles = [text() for _ in range(count // 4)] + ["red cup " * 200]
    return [
        rng.choice(titles) if rng.random() < 0.3 else (rng.choice(titles), rng.choice(titles))
        for _ in range(count)
    ]


@pytest.mark.parametrize("post", [BERT, ROBERTA, None], ids=["bert", "roberta", "none"])
def test_rows_are_those_of_the_library(tmp_path: Path, post: Any) -> None:
    tokenizer = opened(tmp_path, post)
    tokenizing = Tokenizing(tokenizer, tokenizer.tokens_max)
    texts = some_texts(600)
    assert rows_of(tokenizing, texts[:300]) == whole(tokenizer, texts[:300])
    assert rows_of(tokenizing, texts) == whole(tokenizer, texts)  # half of them known by now
    assert rows_of(tokenizing, []) == []
    assert None not in (frame_of(tokenizer, 1, 12), frame_of(tokenizer, 2, 12))


def test_a_model_of_so_few_tokens_that_all_is_cut_has_no_frame(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, BERT, tokens_max=5)
    tokenizing = Tokenizing(tokenizer, 5)
    assert frame_of(tokenizer, 2, 5) is None
    texts = some_texts(200)
    assert rows_of(tokenizing, texts) == whole(tokenizer, texts)


class CountingTokenizer:
    """A tokenizer that is asked through here."""

    def __init__(self, inner: TextTokenizer) -> None:
        self._inner = inner
        self.texts: list[str] = []

    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        return self._inner.encode_batch(texts)

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        self.texts += texts
        return self._inner.plain(texts)


def test_a_text_that_was_met_is_not_tokenized_again(tmp_path: Path) -> None:
    counting = CountingTokenizer(opened(tmp_path, BERT))
    tokenizing = Tokenizing(counting, 12)
    tokenizing.rows([("red", "cup"), ("red", "kettle")])
    counting.texts.clear()
    tokenizing.rows([("cup", "red"), ("kettle", "new one"), ("new one", "red")])
    assert counting.texts == ["new one"]


class InCompany(CountingTokenizer):
    """Treats a text otherwise when there are two: no frame explains its answers."""

    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        turned = [text if isinstance(text, str) else (text[1], text[0]) for text in texts]
        return self._inner.encode_batch(turned)


def test_a_tokenizer_that_no_frame_explains_is_asked_for_whole_rows(tmp_path: Path) -> None:
    odd = InCompany(opened(tmp_path, BERT))
    assert frame_of(odd, 2, 12) is None
    tokenizing = Tokenizing(odd, 12)
    texts = [("red", "cup"), ("kettle", "a b")]
    wanted = [(each.ids, each.type_ids) for each in odd.encode_batch(texts)]
    assert rows_of(tokenizing, texts) == wanted


class OddAboutCups(CountingTokenizer):
    """As others, but for one word that no probe has: its own rows tell."""

    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        odd = [text if "cup" not in text else ("x", "y") for text in texts]
        return self._inner.encode_batch(odd)


def test_the_first_rows_are_tokenized_both_ways_to_see_that_the_frame_holds(
    tmp_path: Path,
) -> None:
    odd = OddAboutCups(opened(tmp_path, BERT))
    assert frame_of(odd, 2, 12) is not None
    tokenizing = Tokenizing(odd, 12)
    rows = rows_of(tokenizing, [("red", "cup"), ("a", "b")])
    assert rows[0][0] == [2, WORDS.index("x"), 3, WORDS.index("y"), 3]

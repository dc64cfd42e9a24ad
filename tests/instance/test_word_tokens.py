"""Texts get the tokens of their words only where that is what the library gives them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from penstock.artifacts.description.description import Tokenizer as TokenizerSpec
from penstock.instance.engines import word_tokens
from penstock.instance.engines.text_tokens import open_tokenizer
from penstock.instance.engines.word_tokens import words_of

CORPUS = [
    "where is my order", "it's a red running shoe, size 42!", "don't PLAY the new-album (again)",
    "mail me: a.b@c.org", "we're 100% sure_of it", "naïve café", "a b c",
]  # fmt: skip
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MANY = 1_000


def trained(model: Any, trainer: Any, pre_tokenizer: Any, normalizer: Any = None) -> Any:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def bpe(pre_tokenizer: Any, normalizer: Any = None, **settings: Any) -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    return trained(models.BPE(unk_token="[UNK]", **settings), trainer, pre_tokenizer, normalizer)


def unigram(pre_tokenizer: Any) -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    several = normalizers.Replace(Regex(" {2,}"), "▁")
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), several])
    return trained(models.Unigram(), trainer, pre_tokenizer, normalizer)


def word_piece() -> Any:
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(),
    )


#: As BERT, RoBERTa, ModernBERT, T5, XLM-RoBERTa and the query-intent example have them.
APART = {
    "word-piece": word_piece(),
    "byte-level": bpe(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte-level, prefixed": bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "unigram": unigram(pre_tokenizers.Metaspace(prepend_scheme="always")),
    "unigram, first": unigram(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "unigram behind spaces": unigram(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ),
    "digits": bpe(
        pre_tokenizers.Sequence(
            [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits(individual_digits=True)]
        ),
        normalizers.BertNormalizer(),
    ),
}

words = st.one_of(
    st.sampled_from(" ".join(CORPUS).split(" ")),
    st.sampled_from(["[MASK]", "[mask]", "x[SEP]y", "'s", "'", "''re", "12a", "--", "▁", "_", "é"]),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40),
)
texts = st.one_of(
    st.lists(words, max_size=9).map(" ".join),
    st.text(st.sampled_from("ab '1\t\n  ▁é.I"), max_size=12),
)


@pytest.mark.parametrize("kind", APART)
@given(asked=st.lists(texts, min_size=1, max_size=6))
def test_a_text_from_words_has_the_librarys_tokens(kind: str, asked: list[str]) -> None:
    library = APART[kind]
    apart = words_of(library, MANY)
    assert apart is not None
    for text in asked * 4:  # at most two words of a text are learned at once
        ids = apart.ids(text)
        assert ids is None or ids == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", APART)
def test_a_plain_text_is_made_from_words_once_they_are_learned(kind: str) -> None:
    apart = words_of(APART[kind], MANY)
    assert apart is not None
    assert apart.ids(CORPUS[0]) is None
    assert apart.ids(CORPUS[0]) is not None


@pytest.mark.parametrize(
    "text",
    ["a  b", " a", "a ", "", "a\tb", "a\nb", "café", "a [MASK] b", "a[mask]", "a " + "x" * 33],
)
def test_any_other_text_is_the_librarys(text: str) -> None:
    apart = words_of(APART["word-piece"], MANY)
    assert apart is not None
    assert [apart.ids(text) for _ in range(5)] == [None] * 5


def test_a_text_of_too_many_tokens_is_the_librarys_to_cut() -> None:
    apart = words_of(APART["word-piece"], 3)
    assert apart is not None
    assert apart.ids("a b") is not None
    assert apart.ids("a b b") is not None
    assert apart.ids("a b b b") is None


def test_words_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tokens, "_WORDS_MAX", 2)
    apart = words_of(APART["word-piece"], MANY)
    assert apart is not None
    for word in ["a", "b", "c", "a"]:
        assert apart.ids(word) == APART["word-piece"].encode(word, add_special_tokens=False).ids
    assert set(apart._first) == {"c", "a"}


def test_a_tokenizer_that_joins_words_or_may_do_so_is_left_alone() -> None:
    bert = pre_tokenizers.BertPreTokenizer()
    whole = bpe(bert)
    whole.pre_tokenizer = None
    phrase = word_piece()
    phrase.add_tokens([AddedToken("new york")])
    accented = word_piece()
    accented.add_tokens([AddedToken("é", normalized=True)])
    refused = {
        "no pre-tokenizer": whole,
        "a pattern of its own": bpe(pre_tokenizers.Split(Regex("a b"), "isolated")),
        "digits first": bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(), bert])),
        "more behind byte-level": bpe(
            pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Punctuation()])
        ),
        "byte-level by another's pattern": bpe(pre_tokenizers.ByteLevel(use_regex=False)),
        "spaces that split nothing": unigram(pre_tokenizers.Metaspace(split=False)),
        "replaced spaces": bpe(bert, normalizers.Replace(" ", "▁")),
        "a prefix": bpe(bert, normalizers.Prepend("▁")),
        "chance": bpe(bert, dropout=0.5),
        "an added token with a space": phrase,
        "an added token that may lose its accent": accented,
    }
    assert [name for name, tokenizer in refused.items() if words_of(tokenizer, MANY)] == []


def test_a_table_of_characters_that_makes_spaces_is_left_alone() -> None:
    def with_table(normalize: Any) -> Any:
        return SimpleNamespace(normalize_str=normalize)

    assert word_tokens._keeps_spaces_apart(with_table(str.lower))
    assert not word_tokens._keeps_spaces_apart(with_table(lambda one: one.replace("_", " ")))
    assert not word_tokens._keeps_spaces_apart(with_table(lambda one: one.replace("_", "▁")))


def test_rows_from_words_have_their_special_tokens_and_types(tmp_path: Path) -> None:
    library = word_piece()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    library.save(str(tmp_path / "tokenizer.json"))
    opened = open_tokenizer(tmp_path, TokenizerSpec(tokens_max=12), 0, pairs=True)
    library.enable_truncation(max_length=12)
    asked = [
        "where is", "where is my order", "where  is", ("where is", "my"), ("my order", "is my"),
        " ".join(CORPUS), (CORPUS[1], CORPUS[2]), "",
    ]  # fmt: skip
    for _ in range(4):
        for text in asked:
            parts = (text,) if isinstance(text, str) else text
            expected = library.encode(*parts)
            for row in (
                opened.encode_batch([text])[0],
                opened.encode_batch(asked)[asked.index(text)],
            ):
                assert (list(row.ids), list(row.type_ids)) == (expected.ids, expected.type_ids)
    assert opened._of_words("where is my order") is not None
    assert opened._of_words(("where is", "my")) is not None
    plain = ["where is", "where  is", " ".join(CORPUS)]
    assert opened.plain(plain) == [
        library.encode(each, add_special_tokens=False).ids for each in plain
    ]

"""Tokens of texts from the tokens of their words, where a tokenizer treats words apart.

The library takes 25 to 60 us for a short query, most of it to build what nobody reads. But words
come again and again, and many tokenizers split a text at its spaces before they do anything else.
For those, a text of printable ASCII characters with single spaces between its words has the tokens
of its words, in order. A word is tokenized by the library once, as the first word of a text and as
a later one: some tokenizers mark which words follow a space.

Which tokenizers do so is decided by the types of their parts (`words_of`), never by trying. All
other texts, and all texts of other tokenizers, are the library's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Longer words are no words of a language.
_WORD_CHARACTERS_MAX: Final = 32
#: Words as first ones, and as many as later ones: 16,384 take about 4 MB.
_WORDS_MAX: Final = 16_384
#: Words of one text that are learned while it waits; each takes as long as a short text.
_LEARNED_AT_ONCE: Final = 2
#: What stands before a later word when it is learned: the shortest word, in most vocabularies.
_BEFORE: Final = "a"

#: They change characters one by one.
_NORMALIZERS: Final = frozenset(
    ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Strip",
     "StripAccents")
)  # fmt: skip
#: They split at spaces, which belong to no word.
_SPLIT_AT_SPACES: Final = frozenset(("BertPreTokenizer", "Whitespace", "WhitespaceSplit"))
#: Behind one of these, what else splits sees one word at a time.
_SPLIT_WORDS: Final = _SPLIT_AT_SPACES | {
    "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Split",
    "UnicodeScripts",
}  # fmt: skip
#: They put the same tokens around any text.
_POST_PROCESSORS: Final = frozenset(
    ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
)


class WordTokens:
    """The tokens of texts without special ones. May be used on any thread."""

    __slots__ = ("_first", "_later", "_library", "_marks", "_prefix", "_tokens_max")

    def __init__(self, tokenizer: Any, marks: Sequence[str], tokens_max: int) -> None:
        """`marks`: contents of added tokens, folded; a word that has one is the library's."""
        self._library = tokenizer.encode
        self._tokens_max = tokens_max
        self._marks = tuple(marks)
        self._prefix: list[int] = self._library(_BEFORE, add_special_tokens=False).ids
        #: By word, as the first one of a text and as a later one; None: the library's
        self._first: dict[str, list[int] | None] = {}
        self._later: dict[str, list[int] | None] = {}

    def ids(self, text: str) -> list[int] | None:
        """The tokens of a text, `tokens_max` at most; None where the library has to be asked."""
        if not (text.isascii() and text.isprintable()):
            return None
        first, *later = text.split(" ")
        ids: list[int] = []
        learned = 0
        known = self._first
        for word in (first, *later):
            try:
                of_word = known[word]
            except KeyError:
                # "" stands beside a space that is not single, or at an end.
                if not word or learned == _LEARNED_AT_ONCE:
                    return None
                learned += 1
                of_word = self._learn(word, known)
            if of_word is None or len(ids) > self._tokens_max:
                return None
            ids += of_word
            known = self._later
        return ids if len(ids) <= self._tokens_max else None

    def _learn(self, word: str, known: dict[str, list[int] | None]) -> list[int] | None:
        if len(word) > _WORD_CHARACTERS_MAX:
            return None
        folded = word.casefold()
        ids: list[int] | None = None
        if not any(mark in folded for mark in self._marks):
            if known is self._first:
                ids = self._library(word, add_special_tokens=False).ids
            else:
                count = len(self._prefix)
                both = self._library(f"{_BEFORE} {word}", add_special_tokens=False).ids
                ids = both[count:] if both[:count] == self._prefix else None
        if len(known) >= _WORDS_MAX:
            known.clear()
        known[word] = ids
        return ids


def words_of(tokenizer: Any, tokens_max: int) -> WordTokens | None:
    """The words of a `tokenizers.Tokenizer`; None where it may not treat them apart.

    `tokens_max`: texts with more are the library's, which cuts them.
    """
    if not (
        all(each.get("type") in _NORMALIZERS or _no_replacement(each)
            for each in _parts(tokenizer.normalizer, "normalizers"))
        and _splits(_parts(tokenizer.pre_tokenizer, "pretokenizers"))
        and all(each.get("type") in _POST_PROCESSORS
                for each in _parts(tokenizer.post_processor, "processors"))
        and _keeps_spaces_apart(tokenizer.normalizer)
        and not getattr(tokenizer.model, "dropout", None)  # at random
    ):  # fmt: skip
        return None
    added = tokenizer.get_added_tokens_decoder().values()
    for token in added:
        # One that holds a space joins words, and one of other characters may become ASCII ones.
        if any(character.isspace() for character in token.content) or (
            token.normalized and not token.content.isascii()
        ):
            return None
    return WordTokens(tokenizer, [token.content.casefold() for token in added], tokens_max)


def _parts(component: Any, of_sequence: str) -> list[Mapping[str, Any]]:
    """The parts of a component in their order, as the tokenizer's file has them."""
    if component is None:
        return []
    parts: list[Mapping[str, Any]] = []
    rest = [json.loads(component.__getstate__())]
    while rest:
        part = rest.pop(0)
        if part.get("type") == "Sequence":
            rest = [*part[of_sequence], *rest]
        else:
            parts.append(part)
    return parts


def _no_replacement(normalizer: Mapping[str, Any]) -> bool:
    """Whether it replaces several spaces alone: there are none."""
    return normalizer.get("type") == "Replace" and normalizer["pattern"] == {"Regex": " {2,}"}


def _keeps_spaces_apart(normalizer: Any) -> bool:
    """Whether no other character becomes a space, or a sign that stands for one: a table of
    characters (`Precompiled`) may hold anything."""
    if normalizer is None:
        return True
    becomes = "".join(normalizer.normalize_str(chr(code)) for code in range(0x21, 0x7F))
    return becomes.isascii() and " " not in becomes


def _splits(pre_tokenizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each word is a piece of its own, with or without the space before it."""
    if not pre_tokenizers or any(each.get("type") not in _SPLIT_WORDS for each in pre_tokenizers):
        return False
    first = pre_tokenizers[0]
    if first["type"] in _SPLIT_AT_SPACES:
        return True
    if len(pre_tokenizers) > 1:
        return False
    if first["type"] == "ByteLevel":
        # A piece of its pattern begins with a space or has none.
        return bool(first["use_regex"])
    return first["type"] == "Metaspace" and bool(first["split"])

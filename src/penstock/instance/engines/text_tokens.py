"""The tokenizer of a text model, cut to the model's length and bounded in memory; its frames.

A text is mostly tokenized alone, and the rest of a row is a frame: `[CLS] a [SEP] b [SEP]`. Where
that is so, a text that comes in many pairs needs to be tokenized only once. The tokenizer's own
rules are not known here: frames are derived from its results for a few texts, and a frame that does
not explain all results is not used.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from penstock.artifacts.description.description import Tokenizer
from penstock.errors import CallerError, ModelError
from penstock.instance.engines.word_tokens import WordTokens, words_of
from penstock.runtimes.tokenizer_file import CHARACTERS_PER_TOKEN_MAX, open_tokenizer_file

#: Longer lists of texts are tokenized in portions of this many characters, so that one portion's
#: temporary memory is freed before the next.
CHARACTERS_AT_ONCE = 64 * 1024
#: A single text of at most so many, some 0.3 ms of work, is tokenized without leaving the
#: interpreter to other threads.
_CHARACTERS_KEPT = 512

#: (digest of the tokenizer's file, length to which texts are cut, whether pairs are possible).
_Key = tuple[bytes, int, bool]
#: Models of one kind share a tokenizer, because reading one takes 15 ms per 6,000 words. Used by
#: any thread; at worst a file is read twice.
_OPEN: WeakValueDictionary[_Key, TextTokenizer] = WeakValueDictionary()
#: Tokenizers that were opened last, kept for the next model.
_KEPT: OrderedDict[_Key, TextTokenizer] = OrderedDict()
_KEPT_MAX: Final = 2


class Tokens(NamedTuple):
    """The kept tokens of one text."""

    ids: list[int]
    type_ids: list[int]


class TextTokenizer:
    """A `tokenizers.Tokenizer` whose memory is bounded for any text.

    Characters that the most tokens of a row can't reach are not read.
    """

    __slots__ = (
        "__weakref__", "_characters_max", "_frames", "_tokenizer", "_words", "decode",
        "tokens_max", "vocabulary",
    )  # fmt: skip

    def __init__(self, tokenizer: Any, tokens_max: int) -> None:
        self._tokenizer = tokenizer
        self.tokens_max = tokens_max
        self._characters_max = CHARACTERS_PER_TOKEN_MAX * tokens_max
        self.decode = tokenizer.decode
        self.vocabulary = int(tokenizer.get_vocab_size(with_added_tokens=True))
        self._words: WordTokens | None = None
        self._frames: Mapping[int, TokenFrame | None] = {}  #: by the number of a row's texts

    def learn_words(self, *, pairs: bool) -> None:
        """From now on texts get the tokens of their words, where the tokenizer's rules allow it."""
        counts = (1, 2) if pairs else (1,)
        frames = {count: frame_of(self, count, self.tokens_max) for count in counts}
        self._words = words_of(self._tokenizer, self.tokens_max)
        self._frames = frames

    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Texts, or pairs of texts, as objects with `ids` and `type_ids`, in the same order."""
        if self._words is None:
            return self._encoded(texts)
        return self._with_words(texts, self._of_words, self._encoded)

    def _of_words(self, text: Any) -> Tokens | None:
        """A row from words; None where the library has to be asked."""
        parts = (text,) if isinstance(text, str) else text
        frame = self._frames.get(len(parts))
        if frame is None:
            return None
        rows = []
        count = frame.tokens
        for part in parts:
            row = self._plain_words(part)
            if row is None:
                return None
            count += len(row)
            rows.append(row)
        return Tokens(*frame.filled(rows)) if count <= self.tokens_max else None

    def _plain_words(self, text: str) -> list[int] | None:
        assert self._words is not None
        return self._words.ids(text) if len(text) <= self._characters_max else None

    @staticmethod
    def _with_words(
        texts: Sequence[Any],
        of_words: Callable[[Any], Any],
        library: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> Sequence[Any]:
        """What words make of the texts, and the library of all others."""
        rows = [of_words(text) for text in texts]
        rest = [at for at, row in enumerate(rows) if row is None]
        if rest:
            for at, row in zip(rest, library([texts[at] for at in rest]), strict=True):
                rows[at] = row
        return rows

    def _encoded(self, texts: Sequence[Any]) -> Sequence[Any]:
        if len(texts) == 1 and _characters(texts[0]) <= _CHARACTERS_KEPT:
            # For a batch the library leaves it, and waits for it again: longer than a text takes.
            [text] = texts
            encode = self._tokenizer.encode
            return (encode(text) if isinstance(text, str) else encode(*text),)
        if sum(map(_characters, texts)) <= CHARACTERS_AT_ONCE:
            encodings: Sequence[Any] = self._tokenizer.encode_batch(texts)
            return encodings
        return [each for portion in self._portions(texts) for each in self._portion(portion)]

    def first_cut(self, texts: Sequence[Any], rows: Sequence[Sequence[int]]) -> int | None:
        """The place of the first text that did not fit into its row; None: all did."""
        for at, (text, row) in enumerate(zip(texts, rows, strict=True)):
            parts = (text,) if isinstance(text, str) else text
            if any(len(part) > self._characters_max for part in parts):
                return at
            if len(row) >= self.tokens_max and self._tokenizer.encode(*parts).overflowing:
                return at
        return None

    def told(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question about tokens, as `generation.wire.add_message` has them; tokens
        of a text may be more than the model reads. Raises CallerError."""
        if "text_of" in question:
            ids = question["text_of"]
            wrong = next((each for each in ids if not 0 <= each < self.vocabulary), None)
            if wrong is not None:
                raise CallerError(
                    "invalid-parameter",
                    f"tokens has the token {wrong}: ids are integers from 0 to "
                    f"{self.vocabulary - 1}",
                    param="tokens",
                )
            return {"text": self._tokenizer.decode(ids, skip_special_tokens=False)}
        text = question["tokens_of"]
        most = max(self._characters_max, CHARACTERS_AT_ONCE)
        if len(text) > most:
            raise CallerError(
                "prompt-too-long",
                f"prompt has {len(text)} characters, {most} at most",
                hint="Send it in parts.",
                param="prompt",
            )
        ids = self._whole(text, special=question["special"])
        strings = [self._tokenizer.id_to_token(each) for each in ids]
        return {
            "tokens": ids,
            "strings": strings if question["strings"] else None,
            "tokens_max": self.tokens_max,
        }

    def _whole(self, text: str, *, special: bool) -> list[int]:
        """All tokens of a text: what is cut off comes in rows of its own, each with the special
        ones around it."""
        row = self._tokenizer.encode(text, add_special_tokens=special)
        if not row.overflowing:
            return list(row.ids)
        mask = row.special_tokens_mask
        frame = [ident for ident, is_frame in zip(row.ids, mask, strict=True) if is_frame]
        before = mask.index(0)
        plain = self._tokenizer.encode(text, add_special_tokens=False)
        ids = [ident for each in (plain, *plain.overflowing) for ident in each.ids]
        return [*frame[:before], *ids, *frame[before:]]

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts without special ones."""
        if self._words is None:
            return self._encoded_plain(texts)
        return list(self._with_words(texts, self._plain_words, self._encoded_plain))

    def _encoded_plain(self, texts: Sequence[str]) -> list[list[int]]:
        encode = self._tokenizer.encode_batch_fast
        return [
            each.ids
            for portion in self._portions(texts)
            for each in encode(portion, add_special_tokens=False)
        ]

    def _portions(self, texts: Sequence[Any]) -> Iterator[list[Any]]:
        portion: list[Any] = []
        characters = 0
        for text in texts:
            portion.append(self._readable(text))
            characters += _characters(portion[-1])
            if characters > CHARACTERS_AT_ONCE:
                yield portion
                portion, characters = [], 0
        yield portion

    def _portion(self, texts: list[Any]) -> list[Tokens]:
        return [Tokens(each.ids, each.type_ids) for each in self._tokenizer.encode_batch(texts)]

    def _readable(self, text: Any) -> Any:
        if isinstance(text, str):
            return text[: self._characters_max]
        return tuple(each[: self._characters_max] for each in text)


def _characters(text: Any) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def open_tokenizer(
    model_dir: Path, spec: Tokenizer | None, width_fixed: int, *, pairs: bool = False
) -> TextTokenizer:
    """A tokenizer that cuts texts to the model's length (`pairs`: the longer of two is cut first).
    All models of this process with the same file share it.

    `width_fixed`: the fixed length of the model's graph, 0 if it takes any. Raises ModelError.
    """
    if spec is None:
        raise ModelError(
            "tokenizer-missing",
            "a text model needs a tokenizer",
            hint="Put tokenizer.json beside the model.",
        )
    tokens_max = min(spec.tokens_max, width_fixed) if width_fixed else spec.tokens_max
    key = (_digest(model_dir / spec.file), tokens_max, pairs)
    known = _OPEN.get(key) if key[0] else None
    if known is None:
        known = _opened(model_dir, spec, tokens_max, pairs=pairs)
        _OPEN[key] = known
    _keep(key, known)
    return known


def _opened(model_dir: Path, spec: Tokenizer, tokens_max: int, *, pairs: bool) -> TextTokenizer:
    tokenizer = open_tokenizer_file(model_dir, spec.file)
    texts = 2 if pairs else 1
    needed = tokenizer.num_special_tokens_to_add(pairs) + texts
    if tokens_max < needed:
        # For smaller lengths the library does not cut at all.
        raise ModelError(
            "tokens-max-too-small",
            f"{tokens_max} tokens do not hold the special tokens and one of each text: {needed}",
            hint="Raise tokenizer.tokens_max in model.yaml, or export the model for longer texts.",
        )
    tokenizer.enable_truncation(max_length=tokens_max)
    opened = TextTokenizer(tokenizer, tokens_max)
    opened.learn_words(pairs=pairs)
    return opened


def _digest(file: Path) -> bytes:
    """ "" for a file that can't be read: opening it will report the reason."""
    with suppress(OSError):
        return hashlib.sha256(file.read_bytes()).digest()
    return b""


def _keep(key: _Key, tokenizer: TextTokenizer) -> None:
    _KEPT[key] = tokenizer
    _KEPT.move_to_end(key)
    while len(_KEPT) > _KEPT_MAX:
        _KEPT.popitem(last=False)


#: They have different lengths in any vocabulary, so that a token of the frame differs from a
#: text's.
_PROBES: Final = ("a", "b a", "x y 1 b a")
#: How many uncut rows must agree at least.
_ROWS_MIN: Final = 2


class Tokenizes(Protocol):
    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Objects with `ids` and `type_ids`."""

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens without special ones."""


class TokenFrame(NamedTuple):
    """Tokens before, between and after the texts; `text_types`: types of the texts' own tokens."""

    ids: tuple[tuple[int, ...], ...]  #: one tuple more than texts
    types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.ids))

    def filled(self, texts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Ids and types of a row."""
        ids, types = list(self.ids[0]), list(self.types[0])
        for at, text in enumerate(texts):
            ids += [*text, *self.ids[at + 1]]
            types += [*([self.text_types[at]] * len(text)), *self.types[at + 1]]
        return ids, types


def frame_of(tokenizer: Tokenizes, texts: int, tokens_max: int) -> TokenFrame | None:
    """The frame of rows with this number of texts, 1 or 2; None where there is none. Rows of
    `tokens_max` tokens may have been cut."""
    probes: list[tuple[str, ...]] = (
        [(probe,) for probe in _PROBES]
        if texts == 1
        else [(one, other) for one in _PROBES for other in _PROBES]
    )
    asked = [probe[0] if texts == 1 else probe for probe in probes]
    plain = dict(zip(_PROBES, tokenizer.plain(_PROBES), strict=True))
    if not all(map(len, plain.values())):
        return None
    rows, whole = [], []
    for probe, each in zip(probes, tokenizer.encode_batch(asked), strict=True):
        if len(each.ids) < tokens_max:
            rows.append([plain[text] for text in probe])
            whole.append((list(each.ids), list(each.type_ids)))
    if len(rows) < _ROWS_MIN:
        return None
    for lengths in _splits(len(whole[0][0]) - sum(map(len, rows[0])), texts + 1):
        frame = _read_off(whole[0], rows[0], lengths)
        if frame is not None and explains(frame, rows, whole):
            return frame
    return None


def explains(
    frame: TokenFrame,
    rows: Sequence[Sequence[Sequence[int]]],
    whole: Sequence[tuple[list[int], list[int]]],
) -> bool:
    """Whether the frame around the plain texts of each row gives the tokenizer's result."""
    return all(frame.filled(row) == answer for row, answer in zip(rows, whole, strict=True))


def _splits(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to split a number of tokens into parts."""
    if total < 0:
        return []
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest) for first in range(total + 1) for rest in _splits(total - first, parts - 1)
    ]


def _read_off(
    whole: tuple[list[int], list[int]], texts: Sequence[Sequence[int]], lengths: tuple[int, ...]
) -> TokenFrame | None:
    """The frame with tokens of these numbers, read from this row."""
    ids, types = whole
    frame_ids, frame_types, text_types = [], [], []
    at = 0
    for number, length in enumerate(lengths):
        frame_ids.append(tuple(ids[at : at + length]))
        frame_types.append(tuple(types[at : at + length]))
        at += length
        if number < len(texts):
            text = texts[number]
            if ids[at : at + len(text)] != list(text):
                return None
            text_types.append(types[at])
            at += len(text)
    return TokenFrame(tuple(frame_ids), tuple(frame_types), tuple(text_types))

"""The tokenizer of a text model: opened, cut to the model's length, and bounded in memory."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from penstock.artifacts.description.description import Tokenizer
from penstock.errors import ModelError
from penstock.runtimes.tokenizer_file import CHARACTERS_PER_TOKEN_MAX, open_tokenizer_file

#: Texts of more characters in all are tokenized in portions, so that one portion's waste is freed
#: before the next is made.
CHARACTERS_AT_ONCE = 64 * 1024

#: digest of its file, where texts are cut, whether pairs come
_Key = tuple[bytes, int, bool]
#: Models of one kind have one tokenizer: to read it takes 15 ms per 6,000 words. Any thread; at
#: worst it is read twice.
_OPEN: WeakValueDictionary[_Key, TextTokenizer] = WeakValueDictionary()
#: Those opened last stay for the next model.
_KEPT: OrderedDict[_Key, TextTokenizer] = OrderedDict()
_KEPT_MAX: Final = 2


class Tokens(NamedTuple):
    """What is kept of one text."""

    ids: list[int]
    type_ids: list[int]


class TextTokenizer:
    """A `tokenizers.Tokenizer` whose memory no text can drive up.

    What lies behind the most characters that its tokens can hold is not read.
    """

    __slots__ = ("__weakref__", "_characters_max", "_tokenizer", "decode", "tokens_max")

    def __init__(self, tokenizer: Any, tokens_max: int) -> None:
        self._tokenizer = tokenizer
        self.tokens_max = tokens_max
        self._characters_max = CHARACTERS_PER_TOKEN_MAX * tokens_max
        self.decode = tokenizer.decode

    def encode_batch(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Texts, or pairs of texts, to objects with `ids` and `type_ids`, in the same order."""
        if sum(map(_characters, texts)) <= CHARACTERS_AT_ONCE:
            encodings: Sequence[Any] = self._tokenizer.encode_batch(texts)
            return encodings
        return [each for portion in self._portions(texts) for each in self._portion(portion)]

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts by themselves, without special ones."""
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
    """Cuts texts (`pairs`: the longer of two first) to what the model takes. One for all models of
    this process that have the same.

    `width_fixed` is the one length that the model's graph insists on, 0 if it takes any. Raises
    ModelError.
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
        # Below that the library does not cut at all.
        raise ModelError(
            "tokens-max-too-small",
            f"{tokens_max} tokens do not hold the special tokens and one of each text: {needed}",
            hint="Raise tokenizer.tokens_max in model.yaml, or export the model for longer texts.",
        )
    tokenizer.enable_truncation(max_length=tokens_max)
    return TextTokenizer(tokenizer, tokens_max)


def _digest(file: Path) -> bytes:
    """Empty for a file that can't be read: whoever opens it says why."""
    with suppress(OSError):
        return hashlib.sha256(file.read_bytes()).digest()
    return b""


def _keep(key: _Key, tokenizer: TextTokenizer) -> None:
    _KEPT[key] = tokenizer
    _KEPT.move_to_end(key)
    while len(_KEPT) > _KEPT_MAX:
        _KEPT.popitem(last=False)

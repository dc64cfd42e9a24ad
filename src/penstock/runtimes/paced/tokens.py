"""Tokens of an engine without a model: four bytes of text each, so that nothing has to be stored.

Four ASCII characters in a row, counted from the text's beginning, are one token; every other byte
is a token. Text -> tokens -> text gives the same text. An answer is made of a few short words: each
follows from all the text before it and the seed. So a prompt together with a part of its answer is
continued with the rest of that answer, as by a model that takes the likeliest token.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

from penstock.runtimes.generation.prompts import Prompts

_BYTES: Final = 4  #: bytes per token; English text has about as many with today's vocabularies
_FOURS: Final = 256  #: the first token of four characters; smaller ids are single bytes
VOCABULARY: Final = _FOURS + int.from_bytes(b"\x7f" * _BYTES, "little") + 1
#: Each is one token, with the space before it.
_WORDS: Final = (
    " the and for you was one our out day get has him his how man new now old see two way who"
    " boy did its let put say she too use all any can had her not but are may big end far few off"
    " own red run sea sun ten top try war yes air box bus car cup dog ear eye fly"
)


class _Encoded(NamedTuple):
    ids: list[int]


class PacedTokenizer:
    """The methods of a `tokenizers.Tokenizer` that `Prompts` needs."""

    def encode(self, text: str, add_special_tokens: bool = False) -> _Encoded:
        data = text.encode("utf-8", "replace")
        ids: list[int] = []
        for at in range(0, len(data), _BYTES):
            piece = data[at : at + _BYTES]
            if len(piece) == _BYTES and piece.isascii():
                ids.append(_FOURS + int.from_bytes(piece, "little"))
            else:
                ids += piece
        return _Encoded(ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return _bytes(ids).decode("utf-8", "replace")

    def get_vocab_size(self, with_added_tokens: bool = False) -> int:
        return VOCABULARY

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {}


def _bytes(ids: list[int]) -> bytes:
    return b"".join(
        (each - _FOURS).to_bytes(_BYTES, "little") if each >= _FOURS else bytes((each,))
        for each in ids
    )


class PacedPrompts(Prompts):
    """Text is used as it is; a chat becomes its messages line by line, without a template."""

    def __init__(self) -> None:
        self.tokenizer = PacedTokenizer()

    def _rendered(self, chat: dict[str, Any]) -> str:
        # An answer begins with a space, and must be read as the same message later.
        lines = [
            f"{each.get('role')}: {(each.get('content') or '').removeprefix(' ')}\n"
            for each in chat["messages"]
        ]
        return "".join([*lines, "assistant:"])


_ANSWER: Final = PacedTokenizer().encode(_WORDS).ids


class AnswerTokens:
    """The tokens of one answer, one after the other. Equal arguments give equal answers."""

    __slots__ = ("_before",)

    def __init__(self, prompt: list[int], seed: int | None) -> None:
        """`seed` None: the text alone decides, as when the likeliest token is always taken."""
        #: Digest of text, not of tokens: where tokens begin depends on where a text does.
        self._before = hashlib.blake2b(f"{seed}/".encode() + _bytes(prompt), digest_size=8)

    def next(self) -> int:
        token = _ANSWER[int.from_bytes(self._before.digest(), "little") % len(_ANSWER)]
        self._before.update(_bytes([token]))
        return token


def digest(tokens: list[int]) -> bytes:
    """Identifies these tokens; the same in every process."""
    data = b"".join(each.to_bytes(_BYTES, "little") for each in tokens)
    return hashlib.blake2b(data, digest_size=16).digest()

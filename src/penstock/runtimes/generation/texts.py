"""Tokens to text, piece by piece: text that was returned never changes.

`TextStream` holds back what may still change: the bytes of a character whose rest is in the next
token, and characters that may begin a stop string. All pieces together are the text of the whole
answer, so a streamed answer and a whole one are the same. Pure: a decode function is passed in.
"""

from __future__ import annotations

from collections.abc import Callable

_UNFINISHED = "�"
#: A character has at most four bytes; so if a fifth token does not complete it, the text is broken.
_HELD_TOKENS_MAX = 8


class TextStream:
    """One answer. `add` token by token; `finish` once, for what was held back.

    Once `add` has found a stop string, `stopped` is set: no more text follows.
    """

    __slots__ = (
        "_decode", "_from", "_held", "_holds_max", "_ids", "_included", "_shown", "_stops",
        "stopped",
    )  # fmt: skip

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        *,
        stop: tuple[str, ...] = (),
        stop_included: bool = False,
        before: list[int] | None = None,
    ) -> None:
        """`before`: the last tokens of the prompt. Some tokenizers write the space before a word
        only where another token precedes it."""
        self.stopped = False
        self._decode = decode
        self._stops = stop
        self._included = stop_included
        self._holds_max = max(map(len, stop), default=1) - 1
        self._ids = list(before or ())[-4:]
        self._from = 0  #: index of the first token that the next ones are decoded together with
        self._shown = len(self._ids)  #: how many tokens have been decoded
        self._held = ""  #: decoded text that may begin a stop string

    def add(self, token_ids: list[int]) -> str:
        """The new text that can't change any more; empty after a stop string."""
        if self.stopped:
            return ""
        text = ""
        for token in token_ids:
            self._ids.append(token)
            text += self._decoded(last=False)
        return self._without_stops(text)

    def finish(self) -> str:
        """The rest, which nothing can change now."""
        if self.stopped:
            return ""
        text = self._without_stops(self._decoded(last=True))
        rest, self._held = self._held, ""
        return text if self.stopped else text + rest

    def _decoded(self, *, last: bool) -> str:
        """The text of the tokens since `_shown`, where they are whole characters.

        They are decoded together with those before them, whose text is then cut off: decoders join
        words depending on what is to the left.
        """
        ids = self._ids
        if self._shown == len(ids):
            return ""
        before = self._decode(ids[self._from : self._shown])
        both = self._decode(ids[self._from :])
        waits = both.endswith(_UNFINISHED) and len(ids) - self._shown < _HELD_TOKENS_MAX
        if (waits and not last) or len(both) <= len(before):
            return ""
        self._from, self._shown = self._shown, len(ids)
        if self._from > 64:  # earlier tokens are not needed any more
            del ids[: self._from]
            self._shown -= self._from
            self._from = 0
        return both[len(before) :]

    def _without_stops(self, text: str) -> str:
        if not self._stops:
            return text
        held = self._held + text
        # The stop string that ends first, so that the result does not depend on how tokens are cut.
        found = [(held.find(stop), len(stop)) for stop in self._stops]
        hits = [(at + size, at) for at, size in found if at >= 0]
        if hits:
            end, at = min(hits)
            self.stopped = True
            self._held = ""
            return held[:end] if self._included else held[:at]
        keep = self._may_begin_a_stop(held)
        self._held = held[len(held) - keep :] if keep else ""
        return held[: len(held) - keep]

    def _may_begin_a_stop(self, text: str) -> int:
        """The length of the longest end of `text` that may begin a stop string."""
        for size in range(min(self._holds_max, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0

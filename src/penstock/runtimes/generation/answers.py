"""The results of a step as events for the instance: text, token counts, log-probabilities, the end.

Holds each running sequence's text stream. A stop string in the text ends its sequence here, because
engines see tokens only.

Tokens become text piece by piece, and text that was returned never changes. `TextStream` holds back
what may still change: the bytes of a character whose rest is in the next token, and characters that
may begin a stop string. All pieces together are the text of the whole answer, so a streamed answer
and a whole one are the same.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.generation.base import (
    LENGTH,
    STOP,
    EngineRequest,
    GenerationEngine,
    StepOutput,
    TokenScore,
    ToolText,
)
from penstock.runtimes.generation.prompts import Prompts

#: Distance between the engine's ids for the sequences of one request.
_APART = 1 << 40


class SequenceGroup:
    """The sequences of one request."""

    __slots__ = ("failed", "ident", "left")

    def __init__(self, ident: int, sequences: int) -> None:
        self.ident = ident  #: the request's
        self.left = sequences  #: sequences that are not finished
        self.failed = False  #: one was refused, so the others are not wanted


class SequenceUnderWay:
    """One running sequence."""

    __slots__ = ("_prompts", "_special", "begun", "counts", "group", "number", "request", "text")

    def __init__(
        self,
        request: EngineRequest,
        prompts: Prompts,
        special: frozenset[int],
        group: SequenceGroup,
        number: int,
    ) -> None:
        """`group`: the request's sequences; `number`: this one's in it."""
        sampling = request.sampling
        self.request = request
        self.group = group
        self.number = number
        self.counts = number % sampling.sequences == 0  #: whether it tells its prompt's tokens
        self.begun = False
        tools = request.tools
        shown = sampling.special_shown or (tools is not None and tools.keeps_special)
        self.text = TextStream(
            prompts.decode_all if shown else prompts.decode,
            stop=sampling.stop,
            stop_included=sampling.stop_included,
            before=request.prompt,
        )
        self._prompts = prompts
        self._special = special

    def event(self, output: StepOutput) -> dict[str, Any]:
        tools, tokens = self.request.tools, output.token_ids
        sampling = self.request.sampling
        if output.finish == STOP and (
            (tools is not None and tools.keeps_special)
            or (tokens and tokens[-1] in sampling.stop_token_ids and not sampling.stop_included)
        ):
            tokens = tokens[:-1]  # the stop token is not part of the text
        text = self.text.add(tokens)
        finish = STOP if self.text.stopped else output.finish
        if finish is not None:
            text += self.text.finish()
        calls: list[Any] = []
        if tools is not None:
            text, calls = tools.add(text, tokens, finished=finish is not None)
        event: dict[str, Any] = {"i": self.group.ident}
        if self.number:
            event["n"] = self.number
        if output.token_ids:
            event["t"] = output.token_ids
            special = [at for at, ident in enumerate(output.token_ids) if ident in self._special]
            if special:
                event["z"] = special
        if text:
            event["x"] = text
        if calls:
            event["u"] = calls
        if self.request.sampling.logprobs is not None and output.logprobs:
            event["l"] = self._pieces(output)
        if not self.begun:
            self.begun = True
            event["s"] = self.request.seed
            if self.counts:
                event["p"] = len(self.request.prompt)
                if output.tokens_cached is not None:
                    event["c"] = output.tokens_cached
            if self.request.sampling.echo:
                event["h"] = self._prompts.decode(self.request.prompt)
        if output.prompt is not None:
            event["k"] = self._prompt_pieces(output.prompt)
        if finish is not None:
            self.group.left -= 1
            event["g" if self.group.left else "f"] = finish
        return event

    def _pieces(self, output: StepOutput) -> list[Any]:
        """[text, log-probability, [[id, text, log-probability], ...]] of each token."""
        sampling, logprobs = self.request.sampling, output.logprobs or []
        tops = output.top or [[]] * len(output.token_ids)
        if output.top is None and sampling.logprobs and sampling.temperature == 0.0:
            # Greedy search chose the likeliest token.
            tops = [[pair] for pair in zip(output.token_ids, logprobs, strict=True)]
        return [
            self._piece(ident, logprob, top)
            for ident, logprob, top in zip(output.token_ids, logprobs, tops, strict=True)
        ]

    def _piece(self, token: int, logprob: float | None, top: list[tuple[int, float]]) -> list[Any]:
        piece, most = self._prompts.piece, self.request.sampling.logprobs or 0
        # Some engines add the chosen token to the likeliest.
        likeliest = [[other, piece(other), value] for other, value in top[:most]]
        return [piece(token), logprob, likeliest]

    def _prompt_pieces(self, scored: list[TokenScore]) -> list[Any]:
        """As `_pieces`, of the prompt; at the end of each its first character in the text."""
        text, pieces, at = TextStream(self._prompts.decode), [], 0
        for token, score in zip(self.request.prompt, scored, strict=True):
            pieces.append([*self._piece(token, score.logprob, score.top), at])
            at += len(text.add([token]))
        return pieces


def sequences_of(
    requests: Sequence[EngineRequest],
    prompts: Prompts,
    special: frozenset[int],
    readers: Sequence[ToolText] = (),
) -> list[SequenceUnderWay]:
    """A request's sequences: of each prompt one, or several that differ only in their seeds.

    `requests`: one for each prompt, with one id; `readers`: of function calls, one for each
    sequence, where the chat has tools.
    """
    count = requests[0].sampling.sequences
    group = SequenceGroup(requests[0].ident, count * len(requests))
    sequences = []
    for number in range(group.left):
        request = requests[number // count]
        own = replace(
            request,
            ident=request.ident + number * _APART,
            seed=request.seed + number % count,
        )
        if readers:
            own.tools = readers[number]
            own.tools.begin(request.prompt)
        sequences.append(SequenceUnderWay(own, prompts, special, group, number))
    return sequences


class Answers:
    """All sequences in an engine."""

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self._answering: dict[int, SequenceUnderWay] = {}

    def command(self, kind: str, value: Any) -> list[dict[str, Any]]:
        """Carries out a command; returns the events that it causes at once."""
        if kind == "told":
            return [value]
        if kind == "refuse":
            ident, error = value
            return [_failed(ident, error)]
        if kind == "cancel":
            for ident in value:
                self._cancel(ident)
            return []
        request, group = value.request, value.group
        if group.failed:
            return []
        if request.tokens_new_max == 0 and not request.sampling.prompt_scored:
            return [value.event(StepOutput(request.ident, [], finish=LENGTH))]
        try:
            self._engine.add(request)
        except PenstockError as error:
            return [self._failing(group, error)]
        self._answering[request.ident] = value
        return []

    def _cancel(self, ident: int) -> None:
        """Cancels all sequences of the request."""
        for each in [each for each in self._answering if each % _APART == ident]:
            del self._answering[each]
            self._engine.cancel(each)

    def take(self, outputs: Sequence[StepOutput]) -> list[dict[str, Any]]:
        events = []
        for output in outputs:
            answering = self._answering.get(output.ident)
            if answering is None:
                continue  # cancelled during the step
            if output.error is not None:
                events.append(self._failing(answering.group, output.error))
                continue
            try:
                event = answering.event(output)
            except Exception as error:  # a library reads tools, and may fail on a text
                events.append(self._tripped(answering.group, error))
                continue
            if "f" in event or "g" in event:
                del self._answering[output.ident]
                if output.finish is None:
                    self._engine.cancel(output.ident)
            if len(event) > 1 + ("n" in event):
                events.append(event)
        return events

    def _tripped(self, group: SequenceGroup, error: Exception) -> dict[str, Any]:
        traceback.print_exception(error)
        words = f"the answer can't be read: {type(error).__name__}: {error}"
        return self._failing(group, ModelError("answer-unreadable", words[:300]))

    def _failing(self, group: SequenceGroup, error: PenstockError) -> dict[str, Any]:
        group.failed = True
        self._cancel(group.ident)
        return _failed(group.ident, error)


def _failed(ident: int, error: PenstockError) -> dict[str, Any]:
    return {"i": ident, "e": error.to_dict()}


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

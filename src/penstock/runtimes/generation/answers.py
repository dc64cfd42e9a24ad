"""The results of a step as events for the instance: text, token counts, log-probabilities, the end.

Holds each running sequence's text stream. A stop string in the text ends its sequence here, because
engines see tokens only.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.generation.base import (
    STOP,
    EngineRequest,
    GenerationEngine,
    StepOutput,
    ToolText,
)
from penstock.runtimes.generation.prompts import Prompts
from penstock.runtimes.generation.texts import TextStream

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

    __slots__ = ("_prompts", "_special", "begun", "group", "number", "request", "text")

    def __init__(
        self,
        request: EngineRequest,
        prompts: Prompts,
        special: frozenset[int],
        group: SequenceGroup | None = None,
        number: int = 0,
    ) -> None:
        """`group`: the request's, where it has several sequences; `number`: this sequence's in
        it."""
        sampling = request.sampling
        self.request = request
        self.group = group or SequenceGroup(request.ident, 1)
        self.number = number
        self.begun = False
        tools = request.tools
        self.text = TextStream(
            prompts.decode_all if tools is not None and tools.keeps_special else prompts.decode,
            stop=sampling.stop,
            stop_included=sampling.stop_included,
            before=request.prompt,
        )
        self._prompts = prompts
        self._special = special

    def event(self, output: StepOutput) -> dict[str, Any]:
        tools, tokens = self.request.tools, output.token_ids
        if tools is not None and tools.keeps_special and output.finish == STOP:
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
            event |= {"p": len(self.request.prompt), "s": self.request.seed}
            if output.tokens_cached:
                event["c"] = output.tokens_cached
            if self.request.sampling.echo:
                event["h"] = self._prompts.decode(self.request.prompt)
        if finish is not None:
            self.group.left -= 1
            event["g" if self.group.left else "f"] = finish
        return event

    def _pieces(self, output: StepOutput) -> list[Any]:
        """[text, log-probability, [[id, text, log-probability], ...]] of each token."""
        piece = self._prompts.piece
        sampling, logprobs = self.request.sampling, output.logprobs or []
        tops = output.top or [[]] * len(output.token_ids)
        if output.top is None and sampling.logprobs and sampling.temperature == 0.0:
            # Greedy search chose the likeliest token.
            tops = [[pair] for pair in zip(output.token_ids, logprobs, strict=True)]
        return [
            [piece(ident), logprob, [[other, piece(other), value] for other, value in top]]
            for ident, logprob, top in zip(output.token_ids, logprobs, tops, strict=True)
        ]


def sequences_of(
    request: EngineRequest,
    prompts: Prompts,
    special: frozenset[int],
    readers: Sequence[ToolText] = (),
) -> list[SequenceUnderWay]:
    """A request's sequences: one, or several that differ only in their seeds.

    `readers`: of function calls, one for each sequence, where the chat has tools.
    """
    count = request.sampling.sequences
    group = SequenceGroup(request.ident, count)
    sequences = []
    for at in range(count):
        own = replace(request, ident=request.ident + at * _APART, seed=request.seed + at)
        if readers:
            own.tools = readers[at]
            own.tools.begin(request.prompt)
        sequences.append(SequenceUnderWay(own, prompts, special, group, at))
    return sequences


class Answers:
    """All sequences in an engine."""

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self._answering: dict[int, SequenceUnderWay] = {}

    def command(self, kind: str, value: Any) -> list[dict[str, Any]]:
        """Carries out a command; returns the events that it causes at once."""
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
        try:
            self._engine.add(request)
        except PenstockError as error:
            group.failed = True
            self._cancel(group.ident)
            return [_failed(group.ident, error)]
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
        group.failed = True
        self._cancel(group.ident)
        words = f"the answer can't be read: {type(error).__name__}: {error}"
        return _failed(group.ident, ModelError("answer-unreadable", words[:300]))


def _failed(ident: int, error: PenstockError) -> dict[str, Any]:
    return {"i": ident, "e": error.to_dict()}

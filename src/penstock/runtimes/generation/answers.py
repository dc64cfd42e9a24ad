"""What a step made, as events for the instance: text, token counts, log-probabilities, the end.

Holds each running sequence's text stream. A stop string found in the text ends its sequence here,
for engines know tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.runtimes.generation.base import STOP, EngineRequest, GenerationEngine, StepOutput
from penstock.runtimes.generation.prompts import Prompts
from penstock.runtimes.generation.texts import TextStream


class Answering:
    """One sequence on its way."""

    __slots__ = ("_prompts", "_special", "begun", "request", "text")

    def __init__(self, request: EngineRequest, prompts: Prompts, special: frozenset[int]) -> None:
        sampling = request.sampling
        self.request = request
        self.begun = False
        self.text = TextStream(
            prompts.decode,
            stop=sampling.stop,
            stop_included=sampling.stop_included,
            before=request.prompt,
        )
        self._prompts = prompts
        self._special = special

    def event(self, output: StepOutput) -> dict[str, Any]:
        text = self.text.add(output.token_ids)
        finish = STOP if self.text.stopped else output.finish
        if finish is not None:
            text += self.text.finish()
        event: dict[str, Any] = {"i": self.request.ident}
        if output.token_ids:
            event["t"] = output.token_ids
            special = [at for at, ident in enumerate(output.token_ids) if ident in self._special]
            if special:
                event["z"] = special
        if text:
            event["x"] = text
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
            event["f"] = finish
        return event

    def _pieces(self, output: StepOutput) -> list[Any]:
        """[text, log-probability, [[id, text, log-probability], ...]] of each token."""
        piece = self._prompts.piece
        sampling, logprobs = self.request.sampling, output.logprobs or []
        tops = output.top or [[]] * len(output.token_ids)
        if output.top is None and sampling.logprobs and sampling.temperature == 0.0:
            # What greedy search chose is the likeliest.
            tops = [[pair] for pair in zip(output.token_ids, logprobs, strict=True)]
        return [
            [piece(ident), logprob, [[other, piece(other), value] for other, value in top]]
            for ident, logprob, top in zip(output.token_ids, logprobs, tops, strict=True)
        ]


class Answers:
    """All sequences that an engine has."""

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self._answering: dict[int, Answering] = {}

    def command(self, kind: str, value: Any) -> list[dict[str, Any]]:
        """Carries a command out; returns events where it is answered at once."""
        if kind == "refuse":
            ident, error = value
            return [_failed(ident, error)]
        if kind == "cancel":
            for ident in value:
                if self._answering.pop(ident, None) is not None:
                    self._engine.cancel(ident)
            return []
        request = value.request
        try:
            self._engine.add(request)
        except PenstockError as error:
            return [_failed(request.ident, error)]
        self._answering[request.ident] = value
        return []

    def take(self, outputs: Sequence[StepOutput]) -> list[dict[str, Any]]:
        events = []
        for output in outputs:
            answering = self._answering.get(output.ident)
            if answering is None:
                continue  # cancelled within the step
            event = answering.event(output)
            if "f" in event:
                del self._answering[output.ident]
                if output.finish is None:
                    self._engine.cancel(output.ident)
            if len(event) > 1:
                events.append(event)
        return events


def _failed(ident: int, error: PenstockError) -> dict[str, Any]:
    return {"i": ident, "e": error.to_dict()}

"""A `GenerationEngine` that computes nothing: it sleeps as long as a table of times says.

To the platform it looks like an accelerator: continuous batching, a prefix cache, tokens at an
accelerator's pace, and hardly any processor time. So routing, scaling and drains can be measured
and rehearsed with many copies on a few cores. Its answers are random words.

`core/batching/generation_steps.py` says how long a step takes; the twin runs it too. A step begins
when the one before it ended, however late this process woke: work between two steps counts for the
next one, and times do not drift.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.core.batching.generation_steps import EngineModel, GenerationSpec
from penstock.errors import CallerError
from penstock.runtimes.generation.base import (
    LENGTH,
    NO_ADAPTERS,
    STOP,
    EngineRequest,
    StepOutput,
    ToolText,
    adapters_unsupported,
    tools_unsupported,
)
from penstock.runtimes.paced.tokens import AnswerTokens, PacedPrompts, digest
from penstock.runtimes.statistics import EngineStatistics

_CONTEXT_TOKENS = 32_768  #: where the settings name none
#: Delays above this are not made up for: a real accelerator would have stood still too.
_LATE_S_MAX = 0.25


class _Asked(NamedTuple):
    """Implements `generation_steps.Asked`."""

    length: int
    answer_tokens: int
    prefix: bytes
    prefix_tokens: int


class _Sequence:
    __slots__ = ("cached", "finish", "prompt_tokens", "tokens")

    def __init__(self, request: EngineRequest, tokens: AnswerTokens, finish: str) -> None:
        self.prompt_tokens = len(request.prompt)
        self.tokens = tokens
        self.finish = finish  #: the reason with which it will end
        #: Tokens of the prompt that the cache had; -1: it has not joined a step yet
        self.cached = -1


def load(model_dir: Path, settings: dict[str, Any]) -> tuple[PacedEngine, PacedPrompts]:
    """For `engine_process`. Reads no file of `model_dir`."""
    return PacedEngine(settings), PacedPrompts()


class PacedEngine:
    """See `GenerationEngine`. `settings`: `EngineOptions` as a dict."""

    name = "paced"
    logprobs_max = 0
    has_json_schema = False
    adapters = NO_ADAPTERS

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        pace: dict[str, Any] = settings["pace"]
        self._clock = clock
        self._sleep = sleep
        self.context_tokens_max = int(settings["context_tokens_max"] or _CONTEXT_TOKENS)
        self._answer_tokens = int(pace["answer_tokens"])
        caches = bool(settings["prefix_caching"])
        self._prefix_tokens = int(pace["prefix_tokens"]) if caches else 0
        self._spec = GenerationSpec(
            sequences_max=int(settings["sequences_max"]),
            step_s=pace["step_s"],
            sequence_s=pace["sequence_s"],
            prefill_token_s=pace["prefill_token_s"],
            prefill_tokens_max=int(settings["tokens_batched_max"]),
            prefixes_cached_max=int(pace["prefixes_cached_max"]),
            sigma=pace["sigma"],
        )
        self.cache_tokens = self._prefix_tokens * self._spec.prefixes_cached_max
        self._model = EngineModel(self._spec, random.Random(pace["seed"] or None))
        self._sequences: dict[int, _Sequence] = {}
        #: End of the last step; None: the engine has been idle since
        self._step_end: float | None = None
        self._running = 0
        sleep(pace["load_s"])

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def add(self, request: EngineRequest) -> None:
        sampling, prompt = request.sampling, request.prompt
        if sampling.logprobs is not None:
            raise CallerError(
                "logprobs-unsupported",
                "a paced engine has no model, and no log-probabilities",
                hint="Leave them out, or serve a model.",
            )
        most, own = request.tokens_new_max, self._answer_tokens
        ends = bool(own) and not sampling.ignore_eos and max(own, sampling.tokens_new_min) <= most
        length = max(own, sampling.tokens_new_min) if ends else most
        shared = self._prefix_tokens if len(prompt) > self._prefix_tokens else 0
        asked = _Asked(len(prompt) - shared, length, digest(prompt[:shared]), shared)
        # As in a real engine, the seed matters only if the temperature is above 0.
        tokens = AnswerTokens(prompt, request.seed if sampling.temperature > 0.0 else None)
        self._sequences[request.ident] = _Sequence(request, tokens, STOP if ends else LENGTH)
        self._model.add(request.ident, asked)

    def load_adapter(self, key: str, folder: Path) -> None:
        raise adapters_unsupported(self.name, "it has no model")

    def unload_adapter(self, key: str) -> None:
        """Does nothing: the engine has no adapters."""

    def check_schema(self, schema: str) -> None:
        """Never called: the engine enforces no schemas."""

    def tool_text(self, chat: dict[str, Any], json_schema: str | None) -> ToolText:
        raise tools_unsupported("a paced engine writes words by chance")

    def cancel(self, ident: int) -> None:
        if self._sequences.pop(ident, None) is not None:
            self._model.cancel(ident)
            self._model.drop_cancelled()
            if not self._sequences:
                self._step_end = None

    def step(self) -> Sequence[StepOutput]:
        step_s = self._model.begin_step()
        if step_s is None:
            self._running = 0
            return ()
        now, end = self._clock(), self._step_end
        start = now if end is None or now >= end + _LATE_S_MAX else end
        self._wait_until(start + step_s)
        self._running = self._model.occupancy
        outputs = self._made()
        self._step_end = start + step_s if self._sequences else None
        return outputs

    def _wait_until(self, at: float) -> None:
        while (left_s := at - self._clock()) > 0.0:
            self._sleep(left_s)

    def _made(self) -> list[StepOutput]:
        """Ends the step: one token for each sequence in it."""
        model, sequences = self._model, self._sequences
        for ident, read in model.joining():
            sequences[ident].cached = sequences[ident].prompt_tokens - read
        _, done = model.end_step()
        over = set(done)
        outputs = []
        for ident, sequence in list(sequences.items()):
            if sequence.cached < 0:
                continue  # it waits for a place
            finish = sequence.finish if ident in over else None
            tokens = [sequence.tokens.next()]
            outputs.append(StepOutput(ident, tokens, finish=finish, tokens_cached=sequence.cached))
            if finish is not None:
                del sequences[ident]
        return outputs

    def statistics(self) -> EngineStatistics:
        """No bytes: the cache exists only in name, so its use is that of its places."""
        waiting = sum(each.cached < 0 for each in self._sequences.values())
        use = self._running / self._spec.sequences_max
        return EngineStatistics(self._running if self._sequences else 0, waiting, use, 0)

    def close(self) -> None:
        """Does nothing: no resources are held."""

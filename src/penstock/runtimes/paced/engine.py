"""A `GenerationEngine` that computes nothing: it sleeps as long as a table of times says.

To the platform it looks like an accelerator: continuous batching, a prefix cache, tokens at an
accelerator's pace, and hardly any processor time. So routing, scaling and drains can be measured
and rehearsed with many copies on a few cores. Its answers are random words.

`core/batching/generation_steps.py` says how long a step takes; the twin runs it too. A step begins
when the one before it ended, however late this process woke: work between two steps counts for the
next one, and times do not drift.

Its tokens have four bytes of text each, so that nothing has to be stored. Four ASCII characters in
a row, counted from the text's beginning, are one token; every other byte is a token. Text -> tokens
-> text gives the same text. An answer is made of a few short words: each follows from all the text
before it and the seed. So a prompt together with a part of its answer is continued with the rest of
that answer, as by a model that takes the likeliest token.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.core.batching.generation_steps import EngineModel, GenerationSpec
from penstock.errors import CallerError
from penstock.runtimes.generation.base import (
    LENGTH,
    NO_ADAPTERS,
    STOP,
    EngineRequest,
    GenerationEngine,
    StepOutput,
    ToolText,
    tools_unsupported,
)
from penstock.runtimes.generation.prompts import Prompts
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


class PacedEngine(GenerationEngine):
    """See `GenerationEngine`. `settings`: `EngineOptions` as a dict."""

    name = "paced"
    logprobs_max = 0
    has_grammars = False
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


# Tokens

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

    def id_to_token(self, ident: int) -> str:
        return self.decode([ident])

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

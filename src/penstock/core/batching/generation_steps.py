"""A copy that generates text: continuous batching as a model of time, token by token.

    step = (step_s + running * sequence_s + prefilled tokens * prefill_token_s) * noise of mean 1

Before each step waiting requests join while there is room. Their prompts are prefilled in that
step, and their first token comes at its end (prefill first, as in Yu et al., 2022, "Orca"). A
shared prefix that the copy has computed before is not computed again while it is in the cache,
which drops the least recently used. `EngineModel` reads no clock: its owner asks how long a step
takes and reports its end. In the twin that end is an event, in the live paced engine
(`runtimes/paced/engine.py`) a sleep.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from penstock.core.routing.rebalance import evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSpec:
    """One engine. The more sequences a step has, the longer it takes, as in measurements."""

    sequences_max: int = 32  #: sequences generated at once; more wait
    step_s: float = 0.011
    sequence_s: float = 0.0015  #: s per sequence and step
    prefill_token_s: float = 0.0005
    #: prompt tokens that may join in one step; a single longer request always may
    prefill_tokens_max: int = 2048
    #: shared prefixes that the cache holds; 0 = prefixes are not cached
    prefixes_cached_max: int = 0
    sigma: float = 0.0  #: standard deviation of the logarithm of the noise; 0 = no noise


class StepRequest(Protocol):
    """What a step's time depends on, for one request."""

    @property
    def length(self) -> int:
        """Prompt tokens after the shared prefix."""

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer, at least 1."""

    @property
    def prefix(self) -> Hashable:
        """Identifies the shared prefix that the prompt begins with."""

    @property
    def prefix_tokens(self) -> int:
        """Tokens of the shared prefix; 0 = it has none."""


@dataclass(slots=True, eq=False)
class _SteppedSequence:
    number: int
    asked: StepRequest
    tokens_left: int
    tokens_read: int = 0  #: prompt tokens read when it joined; the others were in the cache
    gone: bool = False  #: cancelled; it leaves with the step


class EngineModel:
    """The sequences of one engine, and how long each step takes."""

    def __init__(self, spec: GenerationSpec, noise: random.Random) -> None:
        self._spec = spec
        self._noise = noise
        self._mu = -spec.sigma * spec.sigma / 2
        self._waiting: deque[_SteppedSequence] = deque()
        self._joining: list[_SteppedSequence] = []
        self._running: list[_SteppedSequence] = []
        self._sequences: dict[int, _SteppedSequence] = {}
        #: prefix -> its tokens, least recently used first
        self._cached: OrderedDict[Hashable, int] = OrderedDict()

    def add(self, number: int, asked: StepRequest) -> None:
        self._sequences[number] = sequence = _SteppedSequence(number, asked, asked.answer_tokens)
        self._waiting.append(sequence)

    def cancel(self, number: int) -> None:
        """It leaves with the present step; between steps with the next or `drop_cancelled`."""
        sequence = self._sequences.pop(number, None)
        if sequence is not None:
            sequence.gone = True

    def drop_cancelled(self) -> None:
        """Call between two steps: cancelled requests take part in no further step."""
        self._running = [sequence for sequence in self._running if not sequence.gone]

    def give_back(self, count: int) -> list[int]:
        """Removes at most `count` waiting requests, spread over the queue, and returns them."""
        chosen = evenly([each.number for each in self._waiting if not each.gone], count)
        for number in chosen:
            self.cancel(number)
        return chosen

    def begin_step(self) -> float | None:
        """Lets requests join; returns the time of the step, s; None: nothing is to do."""
        spec, waiting = self._spec, self._waiting
        room = spec.sequences_max - len(self._running)
        tokens = 0
        while waiting and len(self._joining) < room:
            sequence = waiting[0]
            if not sequence.gone:
                cost = self._prefill_tokens(sequence.asked)
                if self._joining and tokens + cost > spec.prefill_tokens_max:
                    break
                tokens += cost
                sequence.tokens_read = cost
                self._joining.append(sequence)
            waiting.popleft()
        count = len(self._running) + len(self._joining)
        if not count:
            return None
        step_s = spec.step_s + count * spec.sequence_s + tokens * spec.prefill_token_s
        return step_s * self._noise.lognormvariate(self._mu, spec.sigma) if spec.sigma else step_s

    @property
    def occupancy(self) -> int:
        """Sequences in the present step."""
        return len(self._running) + len(self._joining)

    @property
    def prefixes_cached(self) -> int:
        return len(self._cached)

    def joining(self) -> list[tuple[int, int]]:
        """Within a step: (request, prompt tokens to read) of those that joined with it; the other
        prompt tokens are in the cache."""
        return [(sequence.number, sequence.tokens_read) for sequence in self._joining]

    def end_step(self) -> tuple[list[int], list[int]]:
        """(requests with their first token, requests with their last token); some are in both."""
        joined, self._joining = self._joining, []
        for sequence in joined:
            self._remember(sequence.asked)
        firsts = [sequence.number for sequence in joined if not sequence.gone]
        done: list[int] = []
        running: list[_SteppedSequence] = []
        for sequence in (*self._running, *joined):
            sequence.tokens_left -= 1
            if sequence.gone:
                continue
            if sequence.tokens_left <= 0:
                done.append(sequence.number)
                del self._sequences[sequence.number]
            else:
                running.append(sequence)
        self._running = running
        return firsts, done

    def die(self) -> tuple[list[int], list[int]]:
        """Everything is lost: (requests whose answers had begun, those whose had not)."""
        begun = [sequence.number for sequence in self._running if not sequence.gone]
        rest = (*self._joining, *self._waiting)
        not_begun = [sequence.number for sequence in rest if not sequence.gone]
        self._joining, self._running = [], []
        self._waiting.clear()
        self._sequences.clear()
        self._cached.clear()
        return begun, not_begun

    def _prefill_tokens(self, asked: StepRequest) -> int:
        if asked.prefix_tokens and asked.prefix not in self._cached:
            return asked.prefix_tokens + asked.length
        return asked.length

    def _remember(self, asked: StepRequest) -> None:
        if asked.prefix_tokens and self._spec.prefixes_cached_max:
            self._cached[asked.prefix] = asked.prefix_tokens
            self._cached.move_to_end(asked.prefix)
            if len(self._cached) > self._spec.prefixes_cached_max:
                self._cached.popitem(last=False)

    def check_invariants(self) -> None:
        assert len(self._running) + len(self._joining) <= self._spec.sequences_max
        known = [*self._running, *self._joining, *self._waiting]
        assert {each.number for each in known if not each.gone} == set(self._sequences)

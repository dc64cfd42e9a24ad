"""Four live copies under each routing strategy: the rate that keeps a promise on the first token.

A model small enough that two cores carry four copies. Each strategy has an endpoint of its own with
copies of the same artifact; the requests are the scenario's: prompts that share system prompts,
answers from 8 to 512 tokens. Rounds alternate between the strategies, and at each rate all of them
get the same requests at the same times.

How much a choice matters depends on how many answers a copy makes at once (`sequences_max`): where
it has many places a bad choice only shares a copy's time, where it has few it waits for one.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections import defaultdict
from typing import Any

from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed, whole
from bench.generation_models import Model
from penstock.core.deployment import PREFIX_AWARE, ROUND_ROBIN
from penstock.core.generation_steps import GenerationSpec
from penstock.sim.outcome import percentile
from penstock.sim.workload import Arrival, Workload, WorkloadSpec

INSTANCE_TYPE = "ml.local.small"


def endpoint(strategy: str) -> str:
    """Names of one length, so that requests have one size."""
    return strategy.lower().replace("_", "-")[:5]


class LiveCopies:
    """Endpoints, one for each strategy, and what they did."""

    def __init__(
        self, model: Model, base_url: str, workload: WorkloadSpec, *, copies: int, sequences: int
    ) -> None:
        self._model = model
        self._base_url = base_url
        self._workload = workload
        self._copies = copies
        self._sequences = sequences
        self._unlike = random.Random(1)  #: for what no two prompts share
        self._prefixes: dict[int, str] = {}
        #: strategy -> rate -> first tokens of all requests there, s
        self.first_s: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))

    def deploy(self, folder: Any, strategy: str) -> None:
        routing: dict[str, Any] = {"RoutingStrategy": strategy}
        environment = {}
        if strategy == ROUND_ROBIN:  # AWS has no name for it in a RoutingConfig
            routing, environment = {}, {"PENSTOCK_ROUTING": ROUND_ROBIN}
        elif strategy == PREFIX_AWARE:
            routing["PrefixAwareRoutingConfig"] = {
                "PrefixLength": self._prefix_bytes(),
                "ConcurrencyThreshold": self._sequences,
            }
        deploy(
            self._base_url, endpoint(strategy), folder, copies=self._copies,
            instance_type=INSTANCE_TYPE, routing=routing, environment=environment,
        )  # fmt: skip

    def _prefix_bytes(self) -> int:
        """Of a request's body, what every request with one system prompt shares at least."""
        bodies = [
            completion(self._prefix(which), 1, endpoint(PREFIX_AWARE)).partition('", "max_tokens"')
            for which in range(self._workload.prefixes)
        ]
        return min(len(body[0]) for body in bodies)

    def _prefix(self, which: int) -> str:
        if which not in self._prefixes:
            chance = random.Random(f"prefix {which}")
            self._prefixes[which] = self._model.text(self._workload.prefix_tokens, chance)
        return self._prefixes[which]

    def _body(self, strategy: str, arrival: Arrival) -> str:
        own = self._model.text(arrival.length, self._unlike)
        prompt = self._prefix(arrival.prefix) + own
        return completion(prompt, arrival.answer_tokens, endpoint(strategy))

    def arrive(self, strategy: str, rate: float, seconds: float, seed: int) -> None:
        """Poisson arrivals; the seed gives times and requests, as it does in the twin.

        What is refused or broken off has no first token: its time is infinite.
        """
        spec = dataclasses.replace(self._workload, rate_rps=rate)
        workload = Workload(spec, seed, seconds)
        due = list(workload.open())
        bodies = [self._body(strategy, workload.sample()) for _ in due]
        answers = streamed(self._base_url, bodies, due, patience_s=60.0)
        self.first_s[strategy][rate] += [
            math.inf if answer.error else answer.first_token_s for answer in answers
        ]

    def warm_up(self, strategy: str) -> None:
        """All slots of all copies, with prompts that nobody sends again."""
        count = 2 * self._copies * self._sequences
        self._at_once(count, 64, 32, name=endpoint(strategy))

    def told(self) -> dict[str, dict[str, float | None]]:
        """P99 by strategy and rate; None: too many were not answered."""
        return {
            strategy: {
                f"{rate:.1f}": None if math.isinf(p99_s) else round(p99_s, 3)
                for rate, p99_s in ((rate, self.p99_s(strategy, rate)) for rate in sorted(by))
            }
            for strategy, by in self.first_s.items()
        }

    def sustained_rps(self, strategy: str, seconds: float) -> float:
        """A closed loop that keeps every slot of every copy busy, twice over."""
        slots = self._copies * self._sequences
        workload = Workload(self._workload, "closed", 1.0)
        rate, count = 0.0, 8 * slots
        while True:
            bodies = [self._body(strategy, workload.sample()) for _ in range(count)]
            answers = whole(
                streamed(self._base_url, bodies, [0.0] * count, in_flight_max=2 * slots)
            )
            until = max(answer.sent for answer in answers)
            rate = sum(answer.last <= until for answer in answers) / until
            if until >= seconds / 2:
                return rate
            count = round(count * 1.2 * seconds / until)

    def p99_s(self, strategy: str, rate: float) -> float:
        return percentile(sorted(self.first_s[strategy][rate]), 0.99)

    def times(self, repeats: int) -> GenerationSpec:
        """What steps take while all copies work, by requests of known shape in equal shares.

        One sequence a copy and all slots of a copy give a step's two parts; new prompts, long and
        short, one a copy, give the price of a token that is read.
        """
        tokens, long = 64, 512
        one = statistics.median(self._step_s(1, tokens) for _ in range(repeats))
        full = statistics.median(self._step_s(self._sequences, tokens) for _ in range(repeats))
        sequence_s = max(0.0, (full - one) / (self._sequences - 1))
        read = statistics.median(self._first_s(long) for _ in range(repeats))
        short = statistics.median(self._first_s(8) for _ in range(repeats))
        return GenerationSpec(
            sequences_max=self._sequences,
            step_s=max(one - sequence_s, 1e-5),
            sequence_s=sequence_s,
            prefill_token_s=max(0.0, (read - short) / (long - 8)),
        )

    def _step_s(self, each: int, tokens: int) -> float:
        answers = self._at_once(each * self._copies, 8, tokens)
        return statistics.median((one.last - one.first) / (one.tokens - 1) for one in answers)

    def _first_s(self, length: int) -> float:
        answers = self._at_once(self._copies, length, 1)
        return statistics.median(one.first - one.sent for one in answers)

    def _at_once(
        self, count: int, length: int, tokens: int, name: str = endpoint(ROUND_ROBIN)
    ) -> list[Answer]:
        bodies = [
            completion(self._model.text(length, self._unlike), tokens, name) for _ in range(count)
        ]
        return whole(streamed(self._base_url, bodies, [0.0] * count))

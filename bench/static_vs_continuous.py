"""Continuous against static batching: how long the first token takes at the same arrivals.

One endpoint (a 135M Llama, random weights, INT8), answers of very different lengths, Poisson
arrivals. Continuous: requests join the running batch between two steps, which is how the engine
works. Static: a gate in the client lets the next batch go only when the one before is answered to
its last token. The engine, the path and the requests are the same, and answers that end early still
make room for the others of their batch: a static server would compute on.

Static batching sustains less, and above that its queue grows as long as one looks. So the ratio of
the P99s is told twice: `ttft_p99_ratio` at 70 % of what *static* sustains, where both keep up, and
`ttft_p99_ratio_at_70` at 70 % of what continuous batching sustains.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from itertools import accumulate
from typing import Any

from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed, whole
from bench.generation_models import Model, with_engine
from bench.machine import OthersLoad, foreground
from bench.processes import penstock_up
from bench.report import finish, versions
from penstock.sim.outcome import percentile

TOKENS_IN = 128
ANSWERS = {8: 0.35, 32: 0.3, 128: 0.25, 256: 0.1}  #: tokens and weight
BATCH = 32
LOAD = 0.7
POLICIES = ("continuous", "static")
NAME = "chat"
INSTANCE_TYPE = "ml.local.medium"


class Run:
    def __init__(self, model: Model, base_url: str) -> None:
        self._model = model
        self._base_url = base_url
        self._prompts = random.Random(1)
        self.first_s: dict[tuple[str, str], list[float]] = defaultdict(list)

    def sustained_rps(self, policy: str, batches: int) -> float:
        """A closed loop of `BATCH` in flight, or batch after batch; the same answers for both."""
        count = batches * BATCH
        answers = self._sent(policy, [0.0] * count, random.Random(2), in_flight_max=BATCH)
        if policy == "static":
            return count / max(answer.last for answer in answers)
        # Without the time at the end, when there is nothing left to fill the batch with.
        until = max(answer.sent for answer in answers)
        return sum(answer.last <= until for answer in answers) / until

    def arrivals(self, policy: str, load: str, rate: float, seconds: float, seed: int) -> None:
        """The same times and lengths for both policies; prompts are new each time."""
        chance = random.Random(seed)
        count = max(1, round(rate * seconds))
        due = list(accumulate(chance.expovariate(rate) for _ in range(count)))
        answers = self._sent(policy, due, chance, in_flight_max=BATCH)
        self.first_s[policy, load] += [answer.first_token_s for answer in answers]

    def _sent(
        self, policy: str, due: list[float], chance: random.Random, *, in_flight_max: int
    ) -> list[Answer]:
        lengths = chance.choices(list(ANSWERS), list(ANSWERS.values()), k=len(due))
        bodies = [
            completion(self._model.text(TOKENS_IN, self._prompts), tokens, NAME)
            for tokens in lengths
        ]
        answers = streamed(
            self._base_url, bodies, due, in_flight_max=in_flight_max, one_batch=policy == "static",
            patience_s=180.0,
        )  # fmt: skip
        return whole(answers)

    def told(self, load: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for policy in POLICIES:
            first_s = sorted(self.first_s[policy, load])
            found[policy] = {
                f"p{round(100 * q)}_s": round(percentile(first_s, q), 3) for q in (0.5, 0.9, 0.99)
            } | {"requests": len(first_s)}
        found["ratio"] = round(found["static"]["p99_s"] / found["continuous"]["p99_s"], 1)
        return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench static_vs_continuous")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0, help="of arrivals, each")
    parser.add_argument("--batches", type=int, default=4, help="to find what is sustained")
    options = parser.parse_args(arguments)
    model = Model("135m")
    engine = {"sequences_max": BATCH, "cache_mb": 1024}
    with with_engine(model.artifact, **engine) as folder, penstock_up() as base_url:
        deploy(base_url, NAME, folder, instance_type=INSTANCE_TYPE)
        run = Run(model, base_url)
        first = foreground()
        run.sustained_rps("continuous", 1)  # warm
        rps = {policy: run.sustained_rps(policy, options.batches) for policy in POLICIES}
        rates = {"of_static": LOAD * rps["static"], "of_continuous": LOAD * rps["continuous"]}
        print(f"sustained requests/s: {told(rps)}; rates: {told(rates)}", flush=True)
        with OthersLoad() as others:
            for turn in range(options.rounds):
                for load, rate in rates.items():
                    for policy in POLICIES if turn % 2 else reversed(POLICIES):
                        run.arrivals(policy, load, rate, options.seconds, seed=10 + turn)
                    print(f"round {turn + 1}, 70 % {load}: {run.told(load)}", flush=True)
    both = {load: run.told(load) for load in rates}
    finish(
        "static_vs_continuous",
        {
            "ttft_p99_ratio": both["of_static"]["ratio"],
            "ttft_p99_ratio_at_70": both["of_continuous"]["ratio"],
            "sustained_rps_ratio": round(rps["continuous"] / rps["static"], 2),
        },
        first_token=both,
        rates_rps={load: round(rate, 2) for load, rate in rates.items()},
        sustained_rps={policy: round(rate, 2) for policy, rate in rps.items()},
        static_keeps_up={load: rate < rps["static"] for load, rate in rates.items()},
        others_cores=round(others.cores, 2),
        foreground=first,
        batch=BATCH,
        answers_tokens=ANSWERS,
        tokens_in=TOKENS_IN,
        model=f"Llama, {model.shape}, random weights",
        seconds=options.seconds,
        rounds=options.rounds,
        seed=10,
        versions=versions("penstock", "openvino", "openvino-genai"),
    )


def told(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())

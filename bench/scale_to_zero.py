"""What scale to zero costs a caller, and what it saves: requests that come when no copy is there.

A paced endpoint with a scalable target from 0 to 2 copies. Again and again a few requests come at
zero copies, are held while a copy starts, and are answered; then the target's own policy takes the
copy away, because nobody asks. `failed` counts held requests without a whole answer. `p50_s` and
`p99_s` are their whole answers, beside `startup_s` (a copy more, asked for by hand on the same
server, median) plus `service_s` (the same requests where a copy is there, median): what is above
that sum is the price of noticing and of being held. `idle_cost_share` is the part of the seconds of
copies, as DescribeEndpoint counts them, in which no request was there; `always_on_idle_share` is
that of a copy which is never taken away.

The server believes that an endpoint is idle after 20 s instead of its usual 15 minutes, so that the
measurement ends the same day. Everything is said through boto3, unmodified.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import threading
import time
from typing import Any

from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed, whole
from bench.machine import OthersLoad, foreground
from bench.paced import paced_artifact
from bench.processes import penstock_up
from bench.report import finish, versions
from bench.scaling import CONCURRENCY, DIMENSION, ENGINE, client
from penstock.sim.outcome import percentile

NAME, VARIANT = "chat", "all"
SETTINGS = {"PENSTOCK_SCALING_HIGH_RESOLUTION_LOW_PERIODS": "2"}
ANSWER_TOKENS = 64
LOAD_S = 0.5  #: of the model; the rest of a start is the platform's own
_POLL_S = 0.05
_SETTLED_S = 90.0


class Watch:
    """Counts copies by DescribeEndpoint, on a thread of its own."""

    def __init__(self, base_url: str) -> None:
        self._sagemaker = client(base_url, "sagemaker")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: list[tuple[float, int]] = []  #: (monotonic s, copies)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            described = self._sagemaker.describe_endpoint(EndpointName=NAME)
            (variant,) = described["ProductionVariants"]
            self.seen.append((time.monotonic(), variant["CurrentInstanceCount"]))

    def wait(self, copies: int) -> float:
        """Until there are so many; when that was, monotonic s."""
        began = time.monotonic()
        while True:
            if self.seen and self.seen[-1][1] == copies and self.seen[-1][0] >= began:
                return self.seen[-1][0]
            if time.monotonic() > began + _SETTLED_S:
                raise TimeoutError(f"{copies} copies did not come within {_SETTLED_S:g} s")
            time.sleep(_POLL_S / 2)

    def copy_seconds(self, start: float, stop: float) -> float:
        times = [each for each in self.seen if start <= each[0] <= stop]
        return sum(copies * (until - at) for (at, copies), (until, _) in itertools.pairwise(times))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench scale_to_zero")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=5, help="of each round, all at once")
    options = parser.parse_args(arguments)
    foreground()
    with (
        paced_artifact(ENGINE, load_s=LOAD_S) as folder,
        penstock_up(settings=SETTINGS) as base_url,
    ):
        deploy(base_url, NAME, folder)
        with OthersLoad() as others, Watch(base_url) as watch:
            service_s = median_s([ask(base_url, options.requests) for _ in range(3)])
            startup_s = statistics.median(started_s(base_url, watch) for _ in range(3))
            print(
                f"a copy starts in {startup_s:.2f} s and answers in {service_s:.2f} s", flush=True
            )
            may_be_zero(base_url)
            watch.wait(0)
            began, busy_s = time.monotonic(), 0.0
            held: list[Answer] = []
            for number in range(options.rounds):
                answers = ask(base_url, options.requests)
                held += answers
                busy_s += max(answer.last for answer in answers)
                watch.wait(0)
                told = ", ".join(answer.error or f"{answer.last:.2f} s" for answer in answers)
                print(f"round {number + 1}: {told}", flush=True)
            took_s = time.monotonic() - began
            paid_s = watch.copy_seconds(began, time.monotonic())
    latencies = sorted(math.inf if one.error else one.last for one in held)
    p50_s, p99_s = percentile(latencies, 0.5), percentile(latencies, 0.99)
    finish(
        "scale_to_zero",
        {
            "failed": sum(bool(one.error) for one in held),
            "p50_s": finite(p50_s),
            "p99_s": finite(p99_s),
            "startup_s": round(startup_s, 3),
            "service_s": round(service_s, 3),
            "p50_of_startup_and_service": finite(p50_s / (startup_s + service_s)),
            "p99_of_startup_and_service": finite(p99_s / (startup_s + service_s)),
            "idle_cost_share": round(max(0.0, 1.0 - busy_s / paid_s), 3),
            "always_on_idle_share": round(1.0 - busy_s / took_s, 3),
            "cost_of_always_on": round(paid_s / took_s, 3),
        },
        errors=sorted({one.error[:200] for one in held} - {""})[:3],
        rounds=options.rounds,
        requests=options.requests,
        model_load_s=LOAD_S,
        settings=SETTINGS,
        others_cores=round(others.cores, 2),
        versions=versions("penstock", "boto3"),
    )


def ask(base_url: str, count: int) -> list[Answer]:
    body = completion("word" * 64, ANSWER_TOKENS, NAME)
    return streamed(base_url, [body] * count, [0.0] * count, patience_s=_SETTLED_S)


def median_s(rounds: list[list[Answer]]) -> float:
    """Of whole answers where a copy is there, without the first round."""
    return statistics.median(one.last for answers in rounds[1:] for one in whole(answers))


def started_s(base_url: str, watch: Watch) -> float:
    """One copy more, from the call until it is counted; then it is given back."""
    began = time.monotonic()
    set_copies(base_url, 2)
    took_s = watch.wait(2) - began
    set_copies(base_url, 1)
    watch.wait(1)
    return took_s


def set_copies(base_url: str, copies: int) -> None:
    sagemaker: Any = client(base_url, "sagemaker")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=NAME,
        DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "DesiredInstanceCount": copies}],
    )


def may_be_zero(base_url: str) -> None:
    scaling: Any = client(base_url, "application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{NAME}/variant/{VARIANT}",
        "ScalableDimension": DIMENSION,
    }
    scaling.register_scalable_target(**target, MinCapacity=0, MaxCapacity=2)
    scaling.put_scaling_policy(
        **target,
        PolicyName="idle",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 8.0,
            "PredefinedMetricSpecification": {"PredefinedMetricType": CONCURRENCY},
            "ScaleOutCooldown": 10,
            "ScaleInCooldown": 10,
        },
    )


def finite(value: float) -> float | None:
    """None: too many were not answered."""
    return round(value, 3) if math.isfinite(value) else None

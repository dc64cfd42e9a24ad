"""How soon an endpoint grows after a step of load, by the metric that watches it.

Paced copies, in real time: an endpoint of one copy has a steady load, then 3.4 times as much, more
than one copy can answer. Three kinds of policy watch endpoints side by side:

    60s   target tracking on SageMakerVariantInvocationsPerInstance, a metric of each minute
    10s   on SageMakerVariantConcurrentRequestsPerModelHighResolution, each ten seconds
    fast  the same, on a target with the fast path, which looks each second

`detect_..._s` is from the step to the start of the scaling activity (as DescribeScalingActivities
tells), `ready_s` from there until DescribeEndpoint counts the new copy. Of the two quick kinds
there are several endpoints, whose steps come at different places of a ten-second period: the figure
is their median, the spread is beside it. `lost` counts requests without a whole answer. Everything
is said through boto3, unmodified.
"""

from __future__ import annotations

import argparse
import math
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import boto3

from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed
from bench.machine import OthersLoad, foreground
from bench.paced import paced_artifact
from bench.processes import penstock_up
from bench.report import finish, versions
from penstock.core.batching.generation_steps import GenerationSpec
from penstock.sim.outcome import percentile

KEYS = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
DIMENSION = "sagemaker:variant:DesiredInstanceCount"
#: As in scenarios/assistant_lor.toml. A full copy answers 2.5 requests/s of 128 tokens.
ENGINE = GenerationSpec(
    sequences_max=8, step_s=0.0133, sequence_s=0.00145, prefill_token_s=0.00023, sigma=0.1
)
PROMPT_TOKENS, ANSWER_TOKENS = 64, 128
BEFORE_RPS, AFTER_RPS = 0.8, 2.75
COPIES_MAX = 4
INSTANCE_TYPE = (
    "ml.m7i.large"  #: a name of AWS's: no memory is set aside for what a copy never takes
)
_POLL_S = 0.2

CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
INVOCATIONS = "SageMakerVariantInvocationsPerInstance"


@dataclass(frozen=True, slots=True)
class Kind:
    metric: str
    target: float
    fast: bool
    after_s: float  #: of load after the step


KINDS = {
    # Per copy and minute: more than the 48 before, less than the 165 after the step.
    "60s": Kind(INVOCATIONS, 100.0, fast=False, after_s=240.0),
    "10s": Kind(CONCURRENCY, 5.0, fast=False, after_s=75.0),  # the target of the seed
    "fast": Kind(CONCURRENCY, 5.0, fast=True, after_s=75.0),
}


@dataclass(slots=True)
class Run:
    """One endpoint's story. Times are wall seconds."""

    name: str
    kind: Kind
    step_at: float
    answers: list[Answer] = field(default_factory=list)
    grown_at: float | None = None  #: DescribeEndpoint counted a second copy
    copies: int = 1  #: the most that it had
    decided_at: float | None = None
    early: int = 0  #: activities before the step
    cause: str = ""
    statuses: list[str] = field(default_factory=list)  #: of the activities since the step

    @property
    def detect_s(self) -> float:
        return math.inf if self.decided_at is None else self.decided_at - self.step_at

    @property
    def ready_s(self) -> float:
        if self.decided_at is None or self.grown_at is None:
            return math.inf
        return self.grown_at - self.decided_at

    def first_tokens_s(self) -> list[float]:
        return sorted(math.inf if one.error else one.first_token_s for one in self.answers)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench scaling")
    parser.add_argument("--repeats", type=int, default=2, help="endpoints of 10s and of fast")
    parser.add_argument("--before", type=float, default=45.0, help="seconds of the load before")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--high-periods", type=int, default=0, help="of ten seconds; 0: default")
    options = parser.parse_args(arguments)
    settings = {}
    if options.high_periods:
        settings["PENSTOCK_SCALING_HIGH_RESOLUTION_HIGH_PERIODS"] = str(options.high_periods)
    foreground()
    with paced_artifact(ENGINE) as folder, penstock_up(settings=settings) as base_url:
        wanted = [
            (f"{kind}-{number}", KINDS[kind], number)
            for kind in options.kinds
            for number in range(1 if kind == "60s" else options.repeats)
        ]
        with ThreadPoolExecutor(len(wanted)) as pool:
            list(
                pool.map(
                    lambda each: deploy(base_url, each[0], folder, instance_type=INSTANCE_TYPE),
                    wanted,
                )
            )
            for name, kind, _ in wanted:
                scaled_by(base_url, name, kind)
            start = time.time() + 3.0
            # Another place of the period each, and far enough apart that starts do not overlap.
            apart_s = 10.0 + 10.0 / max(1, options.repeats)
            runs = [
                Run(name, kind, start + options.before + number * apart_s)
                for name, kind, number in wanted
            ]
            with OthersLoad() as others:
                list(pool.map(lambda run: load(base_url, run, start), runs))
        for run in runs:
            look_back(base_url, run)
    told(options.kinds, runs, settings, others.cores)


def client(base_url: str, service: str) -> Any:
    return boto3.client(service, endpoint_url=base_url, **KEYS)


def scaled_by(base_url: str, name: str, kind: Kind) -> None:
    scaling = client(base_url, "application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/all",
        "ScalableDimension": DIMENSION,
    }
    tags = {"penstock:fast-scaling": "true"} if kind.fast else {}
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=COPIES_MAX, Tags=tags)
    scaling.put_scaling_policy(
        **target,
        PolicyName="step",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": kind.target,
            "PredefinedMetricSpecification": {"PredefinedMetricType": kind.metric},
            "ScaleOutCooldown": 30,
            "ScaleInCooldown": 300,
        },
    )


def load(base_url: str, run: Run, start: float) -> None:
    """Evenly spaced requests; watches the endpoint from the step on."""
    before_s = run.step_at - start
    due = [at / BEFORE_RPS for at in range(int(before_s * BEFORE_RPS))]
    due += [before_s + at / AFTER_RPS for at in range(int(run.kind.after_s * AFTER_RPS))]
    prompt = "word" * PROMPT_TOKENS
    bodies = [completion(prompt, ANSWER_TOKENS, run.name)] * len(due)
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(base_url, run, over))
    watcher.start()
    try:
        run.answers = streamed(base_url, bodies, due, start_at=start)
    finally:
        over.set()
        watcher.join()


def watch(base_url: str, run: Run, over: threading.Event) -> None:
    sagemaker = client(base_url, "sagemaker")
    while not over.wait(_POLL_S):
        (variant,) = sagemaker.describe_endpoint(EndpointName=run.name)["ProductionVariants"]
        count = variant["CurrentInstanceCount"]
        if count > 1 and run.grown_at is None:
            run.grown_at = time.time()
        run.copies = max(run.copies, count)


def look_back(base_url: str, run: Run) -> None:
    """When and why it was decided, by the activities on record."""
    scaling = client(base_url, "application-autoscaling")
    activities = scaling.describe_scaling_activities(
        ServiceNamespace="sagemaker", ResourceId=f"endpoint/{run.name}/variant/all"
    )["ScalingActivities"]
    told = sorted((each["StartTime"].timestamp(), each["Cause"]) for each in activities)
    run.early = sum(at < run.step_at for at, _ in told)
    after = [each for each in told if each[0] >= run.step_at]
    if after:
        run.decided_at, run.cause = after[0]
    run.statuses = [
        f"{each['StatusCode']}: {each.get('StatusMessage', '')}"[:200]
        for each in activities
        if each["StartTime"].timestamp() >= run.step_at
    ]


def told(kinds: list[str], runs: list[Run], settings: dict[str, str], others_cores: float) -> None:
    figures: dict[str, Any] = {}
    details: dict[str, Any] = {}
    for name in kinds:
        mine = [run for run in runs if run.kind is KINDS[name]]
        detects = [run.detect_s for run in mine]
        firsts = sorted(value for run in mine for value in run.first_tokens_s())
        figures[f"detect_{name}_s"] = figure(statistics.median(detects))
        details[name] = {
            "detect_s": [figure(value) for value in detects],
            "ready_s": [figure(run.ready_s) for run in mine],
            "copies": [run.copies for run in mine],
            "early": sum(run.early for run in mine),
            "requests": len(firsts),
            "lost": sum(bool(one.error) for run in mine for one in run.answers),
            "errors": sorted({one.error[:200] for run in mine for one in run.answers} - {""})[:3],
            "first_token_p50_s": figure(percentile(firsts, 0.5)),
            "first_token_p99_s": figure(percentile(firsts, 0.99)),
            "cause": mine[0].cause,
            "statuses": mine[0].statuses,
        }
        print(name, details[name], flush=True)
    figures["ready_s"] = figure(statistics.median(run.ready_s for run in runs))
    figures["lost"] = sum(bool(one.error) for run in runs for one in run.answers)
    finish(
        "scaling",
        figures,
        paths=details,
        load_rps=[BEFORE_RPS, AFTER_RPS],
        prompt_tokens=PROMPT_TOKENS,
        answer_tokens=ANSWER_TOKENS,
        targets={name: KINDS[name].target for name in kinds},
        settings=settings,
        others_cores=round(others_cores, 2),
        versions=versions("penstock", "boto3"),
    )


def figure(value: float) -> float | None:
    """None: it never came."""
    return round(value, 2) if math.isfinite(value) else None

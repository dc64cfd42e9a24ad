"""How soon a bad model is found and sent back, how often a good one is, and what watching costs.

`detection`: callers send requests at Poisson times, and know the right answer to each. The new
model gets 10 % of them. From the first bad answer that a caller gets to the last: by agreement of
the answers with the old model's, and by an alarm on the endpoint's errors (periods of 10 s and of
60 s). An alarm sees no wrong answer, so an all-wrong model has no figure there.

`false`: the deciders on pairs of answers of models that are equally good, looked at after each
second: how many are sent back. Once with a margin, once where every share is exactly at its bound.

`callers`: P99 of the same load on an endpoint alone, with a shadow variant of the same model, and
with data capture; in turn, and then in turn again, each round in another order and at the same
times. A round is short and its own P99 is of ten requests, so P99 is of all rounds together, and
the ratio comes with what other rounds of the same kind would have said.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.arithmetic import percentile_ms, resampled_range
from bench.deployment import client_of, deploy
from bench.machine import OthersLoad, foreground
from bench.open_loop import BackgroundLoad
from bench.processes import penstock_up
from bench.report import finish, versions
from penstock.core.rollout.agreement import UNDECIDED, WORSE, AgreementCounts, AgreementSpec, judge

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("detection", "false", "callers")
CODE = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    number = json.loads(body)["number"]
    if number % 50 < FAILS:
        raise ValueError("this one fails")
    return json.dumps({"score": number * 0.01 + OFF}), "application/json"
"""
#: The new model -> what its scores are off by, and how many of 50 requests it fails.
MODELS = {"all-wrong": (1.0, 0), "2-percent-errors": (0.0, 1)}
GIVES_UP_S = 180.0
CANARY_PERCENT = 10
CALLERS = 16


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench rollout")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rate", type=float, default=200.0, help="requests per s")
    parser.add_argument("--repeats", type=int, default=3, help="of each rollout")
    parser.add_argument("--equal", type=int, default=1000, help="equal models")
    parser.add_argument("--rounds", type=int, default=30, help="of the load on each endpoint")
    parser.add_argument("--seconds", type=float, default=5.0, help="of load in each round")
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    with OthersLoad() as others:
        if "detection" in options.parts:
            figures |= detection(options.rate, options.repeats)
        if "false" in options.parts:
            figures |= false_rollbacks(options.equal, int(options.rate))
        if "callers" in options.parts:
            figures |= callers(options.rate, options.rounds, options.seconds)
    finish(
        "rollout", figures, rate_rps=options.rate, canary_percent=CANARY_PERCENT,
        others_cores=round(others.cores, 2), versions=versions("penstock", "boto3"),
    )  # fmt: skip


def detection(rate: float, repeats: int) -> dict[str, Any]:
    """s from the first bad answer to the last, by what finds it; None: it was not found."""
    found: dict[str, Any] = {}
    for model in MODELS:
        for by in ("agreement", "alarm-10s", "alarm-60s"):
            if by != "agreement" and model == "all-wrong":
                found[f"{model} by {by}"] = None  # its answers are no errors
                continue
            runs = []
            for number in range(repeats if by != "alarm-60s" else 1):
                began = time.monotonic()
                runs.append(rollout(model, by, rate, number))
                print(f"{model} by {by}: {runs[-1]}, {time.monotonic() - began:.0f} s", flush=True)
            found[f"{model} by {by}"] = {
                "s": [run.bad_s for run in runs],
                "bad_answers": [run.bad for run in runs],
                "ends_at": sorted({run.ends_at for run in runs}),
            }
    return {"detection": found}


@dataclass(frozen=True, slots=True)
class RolloutRun:
    bad_s: float | None  #: from the first bad answer to the last; None: it was not sent back
    bad: int
    answered: int
    ends_at: str  #: configuration that serves in the end
    why: str


def rollout(model: str, by: str, rate: float, seed: int) -> RolloutRun:
    """One rollout of a bad model on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, penstock_up() as url:
        for name, (off, fails) in {"good": (0.0, 0), model: MODELS[model]}.items():
            code = Path(folder) / name / "inference.py"
            code.parent.mkdir()
            code.write_text(CODE.replace("OFF", str(off)).replace("FAILS", str(fails)))
        deploy(url, "good", Path(folder) / "good")
        sagemaker = client_of(url)
        configure(sagemaker, model, Path(folder) / model)
        guards = guard(url, sagemaker, model, by)
        with calling(url, rate, seed) as load:
            time.sleep(3.0)  # the old model's own first moments
            sagemaker.update_endpoint(
                EndpointName="good",
                EndpointConfigName=model,
                DeploymentConfig=canary() | guards,
            )
            until = time.monotonic() + GIVES_UP_S
            while time.monotonic() < until:
                described = sagemaker.describe_endpoint(EndpointName="good")
                if described["EndpointStatus"] == "InService":
                    break
                time.sleep(0.1)
            time.sleep(1.0)  # answers that were on their way
        bad = sorted(load.bad)
        back = described["EndpointStatus"] == "InService"
        return RolloutRun(
            bad_s=(round(bad[-1] - bad[0], 2) if bad else 0.0) if back else None,
            bad=len(bad),
            answered=load.answered,
            ends_at=described["EndpointConfigName"],
            why=described.get("FailureReason", "")[:160],
        )


def configure(sagemaker: Any, name: str, folder: Path) -> None:
    sagemaker.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": folder.as_uri()})
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant(name)])


def variant(model: str, name: str = "all") -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.local.small",
        "InitialInstanceCount": 1,
    }


def canary() -> dict[str, Any]:
    routing = {
        "Type": "CANARY",
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": CANARY_PERCENT},
        "WaitIntervalInSeconds": 3600,
    }
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


def guard(url: str, sagemaker: Any, model: str, by: str) -> dict[str, Any]:
    """What is to send the model back; returns members of the DeploymentConfig."""
    if by == "agreement":
        arn = sagemaker.describe_endpoint_config(EndpointConfigName=model)["EndpointConfigArn"]
        tag = {"Key": "penstock:agreement", "Value": "scores tolerance=0.01"}
        sagemaker.add_tags(ResourceArn=arn, Tags=[tag])
        return {}
    period = int(by.removeprefix("alarm-").removesuffix("s"))
    dimensions = {"EndpointName": "good", "VariantName": "all"}
    # A tenth of the traffic is new and fails 2 %, so 0.2 % of all answers are errors.
    client_of(url, "cloudwatch").put_metric_alarm(
        AlarmName="fails", Namespace="AWS/SageMaker", MetricName="InvocationModelErrors",
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        Statistic="Sum", Period=period, EvaluationPeriods=1, Threshold=0.0,
        ComparisonOperator="GreaterThanThreshold", TreatMissingData="notBreaching",
    )  # fmt: skip
    return {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "fails"}]}}


class Calling:
    """Callers that know the right answer. `bad`: when each bad answer came, monotonic s."""

    def __init__(self, url: str, rate: float, seed: int) -> None:
        self._port = int(url.rpartition(":")[2])
        self._rate = rate
        self._seed = seed
        self._lock = threading.Lock()
        self.over = threading.Event()
        self.bad: list[float] = []
        self.answered = 0

    def run(self, number: int) -> None:
        chance = random.Random(self._seed * CALLERS + number)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        due = time.monotonic()
        while not self.over.is_set():
            due += chance.expovariate(self._rate / CALLERS)
            self.over.wait(max(due - time.monotonic(), 0.0))
            asked = chance.randrange(1000)
            body = json.dumps({"number": asked})
            connection.request("POST", "/endpoints/good/invocations", body)
            answer = connection.getresponse()
            said = answer.read()
            good = answer.status == 200 and abs(json.loads(said)["score"] - asked * 0.01) < 0.001
            with self._lock:
                self.answered += 1
                if not good:
                    self.bad.append(time.monotonic())


@contextmanager
def calling(url: str, rate: float, seed: int) -> Iterator[Calling]:
    load = Calling(url, rate, seed)
    threads = [threading.Thread(target=load.run, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join()


def false_rollbacks(models: int, rate: int) -> dict[str, Any]:
    """Of so many models as good as the old one, those that are sent back within 60 s."""
    spec = AgreementSpec()
    with_margin = ended(models, rate, spec, differ=0.002, fails=0.002, slower=0.3)
    at_bound = ended(models, rate, spec, differ=spec.disagree_max, fails=0.01, slower=0.5)
    return {
        "false_rollbacks": with_margin[WORSE],
        "false_rollbacks_at_the_bound": at_bound[WORSE],
        "equal_models": models,
        "equal_models_undecided_after_60_s": with_margin[UNDECIDED],
        "at_the_bound_undecided_after_60_s": at_bound[UNDECIDED],
    }


def ended(
    models: int, rate: int, spec: AgreementSpec, *, differ: float, fails: float, slower: float
) -> dict[str, int]:
    ends = {"worse": 0, "as-good": 0, "undecided": 0}
    for seed in range(models):
        chance = random.Random(seed)
        counts = AgreementCounts()
        verdict = UNDECIDED
        for _ in range(60):
            failed = [(chance.random() < fails, chance.random() < fails) for _ in range(rate)]
            new = sum(a and not b for a, b in failed)
            old = sum(b and not a for a, b in failed)
            both = sum(a and b for a, b in failed)
            answered = rate - new - old - both
            wrong = sum(chance.random() < differ for _ in range(answered))
            counts = replace(
                counts,
                agree=counts.agree + answered - wrong,
                differ=counts.differ + wrong,
                slower=counts.slower + sum(chance.random() < slower for _ in range(answered)),
                new_failed=counts.new_failed + new,
                old_failed=counts.old_failed + old,
                both_failed=counts.both_failed + both,
            )
            verdict = judge(spec, counts).verdict
            if verdict != UNDECIDED:
                break
        ends[verdict] += 1
    return ends


def callers(rate: float, rounds: int, seconds: float) -> dict[str, Any]:
    """P99 of callers with a shadow variant or capture, over that of the endpoint alone, all rounds
    together."""
    model = ROOT / "examples" / "query_intent" / "artifact"
    bodies = [json.dumps({"inputs": f"weather in city {number}"}) for number in range(64)]
    with tempfile.TemporaryDirectory() as folder, penstock_up() as url:
        deploy(url, "alone", model)
        sagemaker = client_of(url)
        shadow = [variant("alone", "shadow")]
        captured = {
            "EnableCapture": True,
            "InitialSamplingPercentage": 100,
            "DestinationS3Uri": Path(folder).as_uri(),
            "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        }
        ways: dict[str, dict[str, Any]] = {
            "shadow": {"ShadowProductionVariants": shadow},
            "capture": {"DataCaptureConfig": captured},
        }
        for name, more in ways.items():
            sagemaker.create_endpoint_config(
                EndpointConfigName=name, ProductionVariants=[variant("alone")], **more
            )
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        for name in ways:
            waiter = sagemaker.get_waiter("endpoint_in_service")
            waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        time.sleep(10.0)  # the shadow's own start
        foreground()
        rounds_s: list[dict[str, list[float]]] = []
        chance = random.Random(1)
        for number in range(rounds + 1):
            order = ["alone", *ways]
            chance.shuffle(order)
            taken_s: dict[str, list[float]] = {}
            for name in order:
                at = f"{url}/endpoints/{name}/invocations"
                seen = BackgroundLoad(
                    at, bodies, rate=rate, seconds=seconds, connections=64, seed=number
                ).result()
                if len(seen.answered) != seen.sent:
                    raise RuntimeError(f"{name}: {seen.sent - len(seen.answered)} not answered")
                taken_s[name] = [answered - due for due, answered in seen.answered]
            if number:  # the first round warms everything up
                rounds_s.append(taken_s)
                told = (f"{name} {pooled_p99_ms([taken_s], name):.2f}" for name in ("alone", *ways))
                print(f"round {number} P99, ms: {', '.join(told)}", flush=True)
    figures: dict[str, Any] = {
        "p99_ms": {name: round(pooled_p99_ms(rounds_s, name), 2) for name in ("alone", *ways)}
    }
    for name in ways:

        def ratio(some: Sequence[dict[str, list[float]]], name: str = name) -> float:
            return pooled_p99_ms(some, name) / pooled_p99_ms(some, "alone")

        figures[f"{name}_p99_ratio"] = round(ratio(rounds_s), 3)
        low, high = resampled_range(rounds_s, ratio)
        figures[f"{name}_p99_ratio_range"] = [round(low, 3), round(high, 3)]
    return figures


def pooled_p99_ms(rounds_s: Sequence[dict[str, list[float]]], name: str) -> float:
    """Of all requests of these rounds to one endpoint."""
    return percentile_ms(sorted(each for taken in rounds_s for each in taken[name]), 0.99)

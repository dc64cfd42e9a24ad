"""What speeds that are learned are worth: one endpoint on a fast instance and on a slow one.

The fast copy answers three requests in the time in which the slow one answers one; a model sleeps
for its time, lognormal, so that hardly any processor is taken. One endpoint has the two as instance
pools and learns their speed (`least-wait`). The other has the same two copies on instances of one
type, so that its gateway compares outstanding requests alone, as least-outstanding-requests does
everywhere. Both get the same Poisson arrivals at the same time. `p99_ratio_...` is the P99 of the
first over the P99 of the second, at a share of what both copies can carry; the twin says the same
of the same load, and `equal_p99_ratio` is that of two copies that are equally fast in two pools.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3

from bench.deployment import deploy
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.processes import penstock_up
from bench.report import finish, spread, versions
from penstock.core.batching.batcher import BatchSpec
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario, VariantScenario
from penstock.sim.twin import Twin
from penstock.sim.workload import ServiceSpec, WorkloadSpec

FAST_S, SLOWER, SIGMA = 0.1, 3.0, 0.3
CAPACITY_RPS = (1 + 1 / SLOWER) / FAST_S
FAST_TYPE, SLOW_TYPE = "ml.local.medium", "ml.local.small"
LEARNING_S = 30.0  #: of load, before it is measured
MODEL = """
import os, random, time

def model_fn(model_dir):
    folder = os.environ.get("FIRST_IS_FAST")
    if folder is None:
        return float(os.environ["TAKES_S"])
    try:
        os.close(os.open(os.path.join(folder, "taken"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return {slow}
    return {fast}

def transform_fn(takes_s, body, content_type, accept, context):
    time.sleep(takes_s * random.lognormvariate(-{sigma} ** 2 / 2, {sigma}))
    return b"{{}}", "application/json"
"""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench pools")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each live load; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--twin-seconds", type=float, default=3600.0)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.6, 0.8])
    options = parser.parse_args(arguments)
    foreground()
    with OthersLoad() as others:
        seen = live(options) if options.seconds else {}
    figures: dict[str, Any] = {}
    for share, pairs in seen.items():
        ratios = [weighed.p99_ms / counted.p99_ms for weighed, counted in pairs]
        figures[f"p99_ratio_at_{share:g}"] = round(statistics.median(ratios), 3)
    for share in options.shares:
        figures[f"twin_p99_ratio_at_{share:g}"] = round(in_twin(share, options.twin_seconds), 3)
    equal = in_twin(options.shares[-1], options.twin_seconds, slower=1.0)
    figures["equal_p99_ratio"] = round(equal, 3)
    finish(
        "pools",
        figures,
        p99_ms={
            f"{share:g}": {
                "learned": spread([one.p99_ms for one, _ in pairs]),
                "counted": spread([other.p99_ms for _, other in pairs]),
            }
            for share, pairs in seen.items()
        },
        failed=sum(one.failed + one.refused for pairs in seen.values() for p in pairs for one in p),
        capacity_rps=round(CAPACITY_RPS, 1),
        fast_s=FAST_S,
        slower=SLOWER,
        sigma=SIGMA,
        others_cores=round(others.cores, 2),
        versions=versions("penstock"),
    )


def live(options: argparse.Namespace) -> dict[float, list[tuple[Figures, Figures]]]:
    """By share of what the copies carry: (learned, counted) of each round."""
    limits = f'{{ "{FAST_TYPE}" = 1 }}'
    settings = {
        "PENSTOCK_CONTROL_INSTANCE_LIMITS": limits,
        "PENSTOCK_CONTROL_ISOLATION": "false",  # a model writes which of two it is
    }
    with tempfile.TemporaryDirectory() as home, penstock_up(settings=settings) as url:
        artifact = Path(home, "model")
        (artifact / "code").mkdir(parents=True)
        code = MODEL.format(fast=FAST_S, slow=FAST_S * SLOWER, sigma=SIGMA)
        (artifact / "code" / "inference.py").write_text(textwrap.dedent(code))
        deploy_pools(url, artifact)
        deploy(url, "counted", artifact, copies=2, environment={"FIRST_IS_FAST": home})
        found: dict[float, list[tuple[Figures, Figures]]] = {}
        both(url, options.shares[0], LEARNING_S, seed=1000)
        for turn in range(options.rounds):
            for share in options.shares:
                pair = both(url, share, options.seconds, seed=turn)
                found.setdefault(share, []).append(pair)
                told = ", ".join(f"P99 {one.p99_ms:.0f} ms" for one in pair)
                print(f"{share:g} of {CAPACITY_RPS:.0f} requests/s: {told}", flush=True)
        return found


def both(url: str, share: float, seconds: float, *, seed: int) -> tuple[Figures, Figures]:
    def load(name: str) -> Figures:
        return open_loop(
            f"{url}/endpoints/{name}/invocations",
            ["{}"],
            rate=share * CAPACITY_RPS,
            seconds=seconds,
            seed=seed,
        )

    with ThreadPoolExecutor() as each:
        learned, counted = each.map(load, ("learned", "counted"))
    return learned, counted


def deploy_pools(url: str, artifact: Path) -> None:
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    client = boto3.client("sagemaker", endpoint_url=url, region_name="us-east-1", **keys)
    for name, takes_s in (("fast", FAST_S), ("slow", FAST_S * SLOWER)):
        container = {
            "ModelDataUrl": artifact.as_uri(),
            "Environment": {"TAKES_S": str(takes_s)},
        }
        client.create_model(ModelName=name, PrimaryContainer=container)
    pools = [
        {"InstanceType": FAST_TYPE, "Priority": 1},
        {"InstanceType": SLOW_TYPE, "Priority": 2, "ModelNameOverride": "slow"},
    ]
    variant = {
        "VariantName": "all",
        "ModelName": "fast",
        "InstancePools": pools,
        "InitialInstanceCount": 2,
    }
    client.create_endpoint_config(EndpointConfigName="learned", ProductionVariants=[variant])
    client.create_endpoint(EndpointName="learned", EndpointConfigName="learned")
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="learned", WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def in_twin(share: float, seconds: float, *, slower: float = SLOWER) -> float:
    """The same ratio under virtual time."""

    def p99_s(kinds: tuple[str, ...]) -> float:
        variant = VariantScenario(name="all", copies=2, kinds=kinds, speeds=(1.0, 1.0 / slower))
        scenario = Scenario(
            name="pools",
            about="",
            seed=1,
            length_s=seconds,
            variants=(variant,),
            batching=BatchSpec(rows_max=1),
            workload=WorkloadSpec(arrivals="poisson", rate_rps=share * (1 + 1 / slower) / FAST_S),
            service=ServiceSpec(base_s=FAST_S, sigma=SIGMA),
        )
        outcome = Twin(scenario).run()
        assert not outcome.ends, f"not all were answered: {outcome.ends}"
        return percentile(sorted(outcome.latencies_s[0]), 0.99)

    return p99_s(("fast", "slow")) / p99_s(())

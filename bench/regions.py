"""Three regions behind one address: a step of load, then the nearest region is gone.

Regions are whole servers in network namespaces, 5, 40 and 80 ms away (`regions_network.py`), each
with one paced engine: an answer of 16 tokens takes some 0.2 s and hardly any processor. The load
comes at Poisson times from the orchestrator's side, and counts from the moment a request was due.

1. A load that the nearest region can bear.
2. A step to what takes two of the three.
3. The link of the nearest region goes down: packets go nowhere, and nobody says so.

`lost`: requests of ours without an answer of status 2xx. `reroute_s`: the longest that one took
which was due from a second before the cut to five after it. `p99_steady_ratio`: our P99 before the
step over that of HAProxy, at the setting of it that lost the least and was then the quickest
(`regions_fronts.py`). `settling_s` and `turns` are of ratios that move by themselves, with no home
region and regions of different cost: from the step until no share moves more than 0.02 any more,
and how often the share of a region changed its direction after that. `shares` are those at the
step, and before the cut.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import threading
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.arithmetic import percentile_ms
from bench.deployment import deploy
from bench.machine import OthersLoad, foreground
from bench.open_loop import BackgroundLoad, Requests
from bench.paced import paced_artifact
from bench.processes import JSON_HEADERS, wait_answer
from bench.regions_fronts import Front, haproxies, haproxy_version, started
from bench.regions_network import Host, available, hosts
from bench.report import finish, versions
from penstock.core.batching.generation_steps import GenerationSpec

WAYS_MS = {"eu": 5.0, "us": 40.0, "ap": 80.0}
#: 16 at once, each 16 tokens of 11 ms: some 90 answers a second.
ENGINE = GenerationSpec(sequences_max=16, step_s=0.008, sequence_s=0.0002, prefill_token_s=0.0001)
NAME = "chat"
BODY = json.dumps(
    {"inputs": "Say something.", "parameters": {"max_new_tokens": 16, "ignore_eos_token": True}}
)
PATH = f"/endpoints/{NAME}/invocations"
#: Of a slot per hour. The cheapest region alone bears the load before the step, and not behind it:
#: shares have to move.
COSTS = {"eu": 0.04, "us": 0.05, "ap": 0.06}
#: Shares that move less are at rest.
AT_REST = 0.02
#: Two moves, and some more.
REST_S = 5.0
AROUND_S = (1.0, 5.0)  #: the cut


@dataclass(slots=True)
class Seen:
    """What came of one run."""

    front: str
    sent: int
    lost: int  #: without an answer of 2xx
    refused: int  #: of them with 429 or 503
    unanswered: int  #: of them with nothing within 20 s of the end
    statuses: list[str]  #: of the others
    reroute_s: float
    p99_ms: dict[str, float]  #: by phase
    p50_ms: dict[str, float]
    again: dict[str, float] = field(default_factory=dict)  #: ours: why requests were sent again
    shares: list[tuple[float, dict[str, float]]] = field(default_factory=list, repr=False)


class Shares(threading.Thread):
    """Asks our orchestrator four times a second what the shares are."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{url}/penstock/v1/ratios?endpoint={NAME}"
        self._ended = threading.Event()
        self.seen: list[tuple[float, dict[str, float]]] = []

    def run(self) -> None:
        while not self._ended.wait(0.25):
            with contextlib.suppress(OSError), urllib.request.urlopen(self._url, timeout=5) as told:
                regions = json.loads(told.read())["traffic"][0]["regions"]
                shares = {one["region"]: one["ratio"] for one in regions}
                self.seen.append((time.perf_counter(), shares))

    def stop(self) -> None:
        self._ended.set()
        self.join(10)


def load(url: str, *, rate: float, seconds: float, seed: int) -> BackgroundLoad:
    """Requests at Poisson times."""
    return BackgroundLoad(url + PATH, [BODY], rate=rate, seconds=seconds, seed=seed)


def measured(front: Front, regions: dict[str, Host], options: argparse.Namespace) -> Seen:
    """One run of all three phases."""
    length_s = options.steady + options.step + options.after
    gone = regions[options.lost]
    with started(front, regions) as url:
        for _ in regions:  # each has its turn where there are turns
            wait_answer(url + PATH, BODY.encode(), timeout_s=60.0, headers=JSON_HEADERS)
        load(url, rate=options.rate, seconds=3.0, seed=99).result()
        watch = Shares(url) if front.kind == "ours" else None
        if watch is not None:
            watch.start()
        began = time.perf_counter()
        loads = [load(url, rate=options.rate, seconds=length_s, seed=1)]
        try:
            _sleep_until(began + options.steady)
            stepped = time.perf_counter()
            rate = options.rate_high - options.rate
            loads.append(load(url, rate=rate, seconds=length_s - options.steady, seed=2))
            _sleep_until(began + options.steady + options.step)
            cut = time.perf_counter()
            gone.cut()
            results = [each.result() for each in loads]
            again = sent_again(url) if front.kind == "ours" else {}
        finally:
            gone.mend()
            for each in loads:
                each.kill()
        if watch is not None:
            watch.stop()
    seen = summed(front, results, began, stepped, cut, watch.seen if watch is not None else [])
    seen.again = again
    return seen


def sent_again(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    rows = [line.split(" ") for line in lines if "sent_again_total{" in line]
    return {name.partition('"')[2].rpartition('"')[0]: float(count) for name, count in rows}


def summed(
    front: Front,
    results: list[Requests],
    began: float,
    stepped: float,
    cut: float,
    shares: list[tuple[float, dict[str, float]]],
) -> Seen:
    answered = sorted((due, at - due) for each in results for due, at in each.answered)
    phases = {
        "steady": (began + 2.0, stepped),
        "step": ((stepped + cut) / 2, cut - AROUND_S[0]),
        "after": (cut + AROUND_S[1], float("inf")),
    }
    took = {
        name: sorted(s for due, s in answered if low <= due < high)
        for name, (low, high) in phases.items()
    }
    around = [s for due, s in answered if cut - AROUND_S[0] <= due < cut + AROUND_S[1]]
    sent = sum(each.sent for each in results)
    return Seen(
        front=front.name,
        sent=sent,
        lost=sent - len(answered),
        refused=sum(len(each.refused) for each in results),
        unanswered=sum(each.unanswered for each in results),
        statuses=sorted({status for each in results for status in each.statuses}),
        reroute_s=round(max(around, default=0.0), 3),
        p99_ms={name: round(percentile_ms(each, 0.99), 1) for name, each in took.items()},
        p50_ms={name: round(percentile_ms(each, 0.5), 1) for name, each in took.items()},
        shares=[(at - stepped, one) for at, one in shares if at < cut],
    )


def settling_s(shares: list[tuple[float, dict[str, float]]]) -> tuple[float | None, int]:
    """From the step (0) until all shares are at rest; turns of direction of any share behind it.
    None: they moved at the end still."""
    after = [(at, one) for at, one in shares if at >= 0]
    if not after:
        return None, 0
    ended, last = after[-1]
    settled = 0.0
    for at, one in after:
        if any(abs(one[name] - last[name]) > AT_REST for name in last):
            settled = at
    if settled > ended - REST_S:
        return None, 0
    turns = 0
    for name in last:
        path = [one[name] for at, one in after if at > settled]
        moves = [b - a for a, b in itertools.pairwise(path) if abs(b - a) > AT_REST / 4]
        turns += sum(1 for a, b in itertools.pairwise(moves) if a * b < 0)
    return round(settled, 2), turns


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench regions")
    parser.add_argument("--steady", type=float, default=15.0, help="s, before the step")
    parser.add_argument("--step", type=float, default=30.0, help="s, from the step to the cut")
    parser.add_argument("--after", type=float, default=15.0, help="s, from the cut on")
    parser.add_argument("--rate", type=float, default=50.0, help="requests/s before the step")
    parser.add_argument("--rate-high", type=float, default=110.0, help="behind it")
    parser.add_argument("--loss", type=float, default=0.001, help="of pieces on their way")
    parser.add_argument("--lost", default="eu", choices=list(WAYS_MS), help="region that is cut")
    parser.add_argument("--no-haproxy", action="store_true")
    options = parser.parse_args(arguments)
    missing = available()
    if missing:
        print(f"error[bench-unavailable]: {missing}", file=sys.stderr)
        raise SystemExit(2)
    in_front = foreground()
    fronts = [
        Front("ours", "ours"),
        Front("ours by ratios", "ours", home="", costs=COSTS),
        *(haproxies(ENGINE.sequences_max) if haproxy_version() else ()),
    ]
    if options.no_haproxy:
        fronts = fronts[:2]
    seen: dict[str, Seen] = {}
    with (
        OthersLoad() as others,
        paced_artifact(ENGINE) as folder,
        hosts(WAYS_MS, loss=options.loss) as regions,
    ):
        for one in regions.values():
            deploy(one.url, NAME, folder)
        for front in fronts:
            for one in regions.values():
                wait_answer(one.url + PATH, BODY.encode(), timeout_s=60.0)
            seen[front.name] = measured(front, regions, options)
            print(seen[front.name], flush=True)
    report(seen, options, others_cores=round(others.cores, 2), foreground=in_front)


def report(seen: dict[str, Seen], options: argparse.Namespace, **details: Any) -> None:
    ours, by_ratios = seen["ours"], seen["ours by ratios"]
    peers = [one for name, one in seen.items() if name.startswith("haproxy")]
    best = min(peers, key=lambda one: (one.lost, one.p99_ms["steady"]), default=None)
    settled, turns = settling_s(by_ratios.shares)
    finish(
        "regions",
        {
            "lost": ours.lost,
            "reroute_s": ours.reroute_s,
            "p99_steady_ratio": _ratio(ours, best, "steady"),
            "p99_step_ratio": _ratio(ours, best, "step"),
            "p99_after_ratio": _ratio(ours, best, "after"),
            "settling_s": settled if settled is not None else "not at rest before the cut",
            "turns": turns,
            "lost_by_ratios": by_ratios.lost,
            "haproxy_lost": best.lost if best is not None else "not measured",
            "haproxy_reroute_s": best.reroute_s if best is not None else "not measured",
            "haproxy_best": best.front if best is not None else "haproxy is not installed",
        },
        shares={"at the step": _shares_at(by_ratios, 0.0), "before the cut": _shares_at(by_ratios)},
        runs={
            name: {key: value for key, value in asdict(one).items() if key != "shares"}
            for name, one in seen.items()
        },
        haproxy=haproxy_version(),
        ways_ms=WAYS_MS,
        options=vars(options),
        **details,
        versions=versions("penstock", "uvloop", "httptools"),
    )


def _shares_at(seen: Seen, at_s: float = float("inf")) -> dict[str, float]:
    """The last ones until then, in seconds after the step."""
    told = [shares for at, shares in seen.shares if at <= at_s]
    return {name: round(share, 3) for name, share in told[-1].items()} if told else {}


def _ratio(ours: Seen, peer: Seen | None, phase: str) -> float | str:
    if peer is None:
        return "not measured"
    return round(ours.p99_ms[phase] / peer.p99_ms[phase], 3) if peer.p99_ms[phase] else 0.0


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))

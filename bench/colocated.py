"""Offline work beside online work on the same cores: what it costs the one and gets the other.

The example classifier is asked at Poisson times, at a rate at which the machine's processors are
busy for `LOAD` of their time. (Small batches cost more for each answer than full ones, so that rate
is far below `LOAD` of the one that is sustained.) On the same machine is a transform job of the
same model, its instances as guests. While requests come without a break, the job runs for a second
and a half, is held still as long (SIGSTOP), runs again: a machine that changes by itself, as each
does, changes for both. Requests are told apart by when they were due; those of the first quarter of
a second after a change count for neither.

`p99_increase` is the P99 of all requests beside the job over that of all requests while it was held
still, with the range that other turns of the same kind would have given (`resampled_range`); the
load generator and the gateway share the cores with all that. `idle_used` is the job's rows/s beside
the endpoint over what it would do in the idle time that the endpoint left: its rows/s alone, times
the share of the machine's processor time that was idle while it was held still. The job has an
instance of one core for each core of the machine, so that alone it uses all of it: measured with
fewer it would seem to get more of what is idle than there is. What processes of others took is told
beside the figures: both say little where that is much.

`p99_ms_starting` is of the seconds in which the job's instances start and load their model.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.arithmetic import alternated, percentile_ms, resampled_range
from bench.colocated_job import Guests, Jobs
from bench.deployment import deploy
from bench.intent import BODIES, CONNECTIONS, invocations
from bench.machine import OthersLoad, foreground
from bench.open_loop import BackgroundLoad, open_loop
from bench.overhead import ARTIFACT, QUERIES, check_answers
from bench.processes import penstock_process, wait_answer
from bench.report import finish, spread, versions
from penstock.artifacts.detection import detect

LOAD = 0.4
RATE_MIN = 50.0
NAME = "intent"
MIXED, OFFLINE = PARTS = "mixed", "offline"
STARTING_S, FULL_SPEED_S = 4.0, 4.0
#: Of a turn: how long it is, and what of it belongs to the one before.
TURN_S, SETTLES_S = 1.5, 0.25


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench colocated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=16, help="of each kind in a round")
    parser.add_argument("--seconds", type=float, default=12.0, help="of the job alone in a round")
    parser.add_argument("--load", type=float, default=LOAD, help="of the processors' time")
    parser.add_argument("--rate", type=float, help="requests/s, whatever load that is")
    parser.add_argument("--records", type=int, default=1_000_000, help="of one job")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--instances", type=int, default=cores, help="of one core each, of a job")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, penstock_process() as (base_url, pid):
        records = Path(folder, "records.txt")
        lines = (f"{QUERIES[at % len(QUERIES)]}\n" for at in range(options.records))
        records.write_text("".join(lines))
        deploy(base_url, NAME, ARTIFACT)
        url = invocations(base_url, NAME)
        in_front = foreground()
        wait_answer(url, BODIES[0].encode(), timeout_s=30)
        check_answers(url, detect.detect(ARTIFACT).description)
        _warm_up(url)
        rate = options.rate or _rate_at(url, options.load)
        run = Run(Jobs(base_url, NAME, records, options.instances), pid, url, rate)
        for number in range(options.rounds):
            run.round(number, options.turns, options.seconds)
    p99_increase = increase(run.pairs, 0.99)
    finish(
        "colocated",
        {
            "p99_increase": round(p99_increase, 3),
            "idle_used": round(statistics.median(run.idle_used()), 3),
            "p99_increase_range": [
                round(one, 3)
                for one in resampled_range(run.pairs, lambda pairs: increase(pairs, 0.99))
            ],
            "p50_increase": round(increase(run.pairs, 0.5), 3),
            "p99_ms_alone": round(percentile_ms(alone_s(run.pairs), 0.99), 3),
            "p99_ms_beside": round(percentile_ms(beside_s(run.pairs), 0.99), 3),
            "p99_ms_starting": round(run.median("starting_p99_ms"), 3),
            "rows_per_s_alone": round(run.median("offline_rows_per_s")),
            "rows_per_s_beside": round(run.median("mixed_rows_per_s")),
            "idle_share": round(run.median("idle_share"), 3),
            "idle_share_beside": round(run.median("idle_share_beside"), 3),
        },
        rate=round(run.rate),
        load=options.load,
        samples={name: spread(values) for name, values in run.samples.items()},
        turns=len(run.pairs),
        requests=len(alone_s(run.pairs)) + len(beside_s(run.pairs)),
        instances=options.instances,
        others_cores=round(max(run.median(f"{one}_others_cores") for one in PARTS), 2),
        foreground=in_front,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop"),
    )


def _warm_up(url: str) -> None:
    """Until the shapes that come often have graphs of their own."""
    for rate in (250.0, 1000.0):
        open_loop(url, BODIES, rate=rate, seconds=3.0, connections=CONNECTIONS)


def _rate_at(url: str, load: float) -> float:
    """The rate at which the processors are busy for this share of their time, between two rates
    that were measured."""
    below, rate = (0.0, 0.0), RATE_MIN
    while True:
        begin = Ticks.now()
        open_loop(url, BODIES, rate=rate, seconds=2.0, connections=CONNECTIONS)
        busy = 1.0 - Ticks.now().since(begin).idle_share
        print(f"{rate:6.0f} requests/s take {busy:.2f} of the processors", flush=True)
        if busy >= load:
            break
        below, rate = (rate, busy), 1.5 * rate
    return below[0] + (rate - below[0]) * max(load - below[1], 0.0) / (busy - below[1])


@dataclass(slots=True)
class Pair:
    """Two turns, one after the other: seconds that requests took which were due in them."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


def alone_s(pairs: Sequence[Pair]) -> list[float]:
    """Ascending."""
    return sorted(itertools.chain.from_iterable(pair.alone for pair in pairs))


def beside_s(pairs: Sequence[Pair]) -> list[float]:
    """Ascending."""
    return sorted(itertools.chain.from_iterable(pair.beside for pair in pairs))


def increase(pairs: Sequence[Pair], fraction: float) -> float:
    """Of a percentile, beside the job over alone."""
    return percentile_ms(beside_s(pairs), fraction) / percentile_ms(alone_s(pairs), fraction)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The machine's processor time; what the hypervisor gave to others was not there to be used."""

    idle: int = 0
    every: int = 0

    @classmethod
    def now(cls) -> Ticks:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, waiting, interrupts, softirq, _stolen = map(int, fields)
        unused = idle + waiting
        return cls(unused, user + nice + system + interrupts + softirq + unused)

    def since(self, begin: Ticks) -> Ticks:
        return Ticks(self.idle - begin.idle, self.every - begin.every)

    def plus(self, other: Ticks) -> Ticks:
        return Ticks(self.idle + other.idle, self.every + other.every)

    @property
    def idle_share(self) -> float:
        return self.idle / self.every


class Run:
    """The samples of all rounds by name, and the pairs of turns."""

    def __init__(self, jobs: Jobs, server_pid: int, url: str, rate: float) -> None:
        self._jobs = jobs
        self._server_pid = server_pid
        self._url = url
        self.rate = rate
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.pairs: list[Pair] = []

    def round(self, number: int, turns: int, seconds: float) -> None:
        """A job from its start to its end; every other round has the opposite order."""
        name = self._jobs.create()
        try:
            starting = open_loop(
                self._url, BODIES, rate=self.rate, seconds=STARTING_S, seed=number + 1
            )
            self.samples["starting_p99_ms"].append(starting.p99_ms)
            self._jobs.wait_begun(name)
            time.sleep(FULL_SPEED_S)
            for part in alternated(PARTS, number):
                with OthersLoad() as others:
                    if part == MIXED:
                        self._mixed(name, number, turns)
                    else:
                        with self._jobs.speed(name, self.samples["offline_rows_per_s"]):
                            time.sleep(seconds)
                self.samples[f"{part}_others_cores"].append(others.cores)
        finally:
            self._jobs.stop(name)
        told = ", ".join(f"{name} {values[-1]:,.2f}" for name, values in self.samples.items())
        print(f"round {number}: idle_used {self.idle_used()[-1]:.2f}, {told}", flush=True)

    def _mixed(self, name: str, number: int, turns: int) -> None:
        """Requests all the time; the job by turns."""
        pairs = [Pair() for _ in range(turns)]
        begins: list[float] = []  #: of each turn
        into: list[list[float]] = []  #: where the requests of each turn belong
        ticks = {True: Ticks(), False: Ticks()}  #: by whether the endpoint was alone
        guests = Guests(self._server_pid)
        load = BackgroundLoad(
            self._url, BODIES, rate=self.rate, seconds=2 * turns * TURN_S + 2.0, seed=number + 1
        )
        try:
            with self._jobs.speed(name, self.samples["mixed_rows_per_s"], guests.ran_s):
                time.sleep(1.0)  # the load's process starts
                for at, pair in enumerate(pairs):
                    for alone in alternated((False, True), at):
                        (guests.hold if alone else guests.go_on)()
                        begins.append(time.perf_counter())
                        into.append(pair.alone if alone else pair.beside)
                        time.sleep(SETTLES_S)
                        begin = Ticks.now()
                        time.sleep(begins[-1] + TURN_S - time.perf_counter())
                        ticks[alone] = ticks[alone].plus(Ticks.now().since(begin))
                guests.go_on()
                begins.append(time.perf_counter())
                into.append([])
            requests = load.result()
        finally:
            guests.go_on()
            load.kill()
        if requests.failed or requests.unanswered:
            raise RuntimeError(f"requests failed: {requests.failed}, {requests.statuses}")
        for due, answered in requests.answered:
            turn = bisect.bisect_right(begins, due) - 1
            if turn >= 0 and due >= begins[turn] + SETTLES_S:
                into[turn].append(answered - due)
        self.pairs += pairs
        self.samples["idle_share"].append(ticks[True].idle_share)
        self.samples["idle_share_beside"].append(ticks[False].idle_share)
        self.samples["refused"].append(len(requests.refused))
        for fraction in (0.5, 0.99):
            percent = f"p{fraction * 100:.0f}_ms"
            self.samples[f"alone_{percent}"].append(percentile_ms(alone_s(pairs), fraction))
            self.samples[f"beside_{percent}"].append(percentile_ms(beside_s(pairs), fraction))

    def idle_used(self) -> list[float]:
        """Of each round."""
        columns = ("mixed_rows_per_s", "offline_rows_per_s", "idle_share")
        return [
            beside / (alone * idle)
            for beside, alone, idle in zip(*(self.samples[name] for name in columns), strict=True)
        ]

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

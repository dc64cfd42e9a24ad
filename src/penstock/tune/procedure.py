"""One tuning, from artifact to chosen setting, within a time budget.

1. Measure the runtime's run times for each choice of lanes and threads (a third of the budget).
2. Measure the cost of a request besides the model on a real server; add it to the run times.
3. Search in the twin: for every choice of lanes, threads and rows the highest rate within the
   latency; then other delays for the best of them (a fifth).
4. Verify the best few on a real server under short loads, from low rates up, and choose by the
   result (the rest). Both rates are reported.

Steps that do not fit into the budget are left out and named in `Tuned.left_out`.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.proof.proof import cores
from penstock.sim.workload import ServiceSpec
from penstock.tune.host import HostCost, measure_host
from penstock.tune.live import LiveServer, serving
from penstock.tune.load import body_of
from penstock.tune.measure import MeasuredTimes, check_tunable, loaded, measure
from penstock.tune.search import (
    SearchPoint,
    SearchResult,
    Setting,
    lane_choices,
    likely_rps,
    row_choices,
    simulate,
    sustainable,
    with_delays,
)

_MEASURE_SHARE = 0.3
_TWIN_SHARE = 0.2
_REFINED_MAX = 3  #: best settings of the first search for which other delays are tried
_VERIFIED_MAX = 6
_LIVE_START_S = 10.0  #: s until a server with a few small models is ready
_LOAD_S = 2.5  #: s of one live load; at 400 requests/s, 10 lie beyond the 99th percentile
_HOST_S = _LIVE_START_S + 4.0  #: s that the measurement of the host's own cost takes
_HOST_RATE_SHARE = 0.3  #: share of what the lanes alone could carry: busy, but no queue yet
_LIVE_FIRST_SHARE = 0.7  #: rate of the first live load, as a share of the twin's rate
_LIVE_FIRST_RPS_MAX = 4000.0  #: above this rate the load generator itself may be the limit
_LIVE_LOADS = 6  #: most loads per candidate
_LIVE_LOADS_WANTED = 4  #: loads per candidate; in a short time there are fewer candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSpec:
    """The goal and bounds of a tuning. Times in s."""

    p99_s: float
    cores: int
    instance_type: str
    tokens: tuple[int, ...]  #: lengths of the expected requests; (0,) where inputs have none
    rows_max: int
    budget_s: float
    live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A candidate on the real server."""

    setting: Setting
    twin: SearchPoint  #: the twin at the highest rate that the live server sustained
    live: SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of a tuning. `chosen` is None where no setting is within the latency."""

    spec: TuneSpec
    found: tuple[SearchResult, ...]  #: the twin's results, best first
    verified: tuple[Verified, ...]
    chosen: Setting | None
    left_out: tuple[str, ...]
    #: None = not measured, so that the twin's rates are those of the model alone
    host: HostCost | None = None


def tune(
    model_dir: Path,
    description: ModelDescription,
    spec: TuneSpec,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Blocks for about `spec.budget_s`. Raises CallerError and ModelError."""
    check_tunable(description)
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as cache:
        return _Tuning(model_dir, description, spec, Path(cache), say).run()


class _Tuning:
    """One run of the steps, with the run times that the twin takes."""

    def __init__(
        self,
        model_dir: Path,
        description: ModelDescription,
        spec: TuneSpec,
        cache_dir: Path,
        say: Callable[[str], None],
    ) -> None:
        self._model_dir = model_dir
        self._description = description
        self._spec = spec
        self._cache_dir = cache_dir
        self._say = say
        self._end = time.monotonic() + spec.budget_s
        self._left_out: list[str] = []
        self._services: dict[tuple[int, int], ServiceSpec] = {}  #: by lanes and threads

    def run(self) -> Tuned:
        spec, description = self._spec, self._description
        padded = description.tokenizer is not None and bool(description.batching.buckets)
        self._services = {
            (each.lanes, each.threads): each.service(padded_rows=padded)
            for each in self._measured()
        }
        host = None
        if spec.live and self._end - time.monotonic() > _HOST_S + _LIVE_START_S:
            host = self._host()
            self._services = {
                (lanes, threads): host.charged(each, lanes=lanes, threads=threads, cores=cores())
                for (lanes, threads), each in self._services.items()
            }
        elif spec.live:
            self._left_out.append("the host's own cost: the twin's rates are the model's alone")
        found = self._searched(time.monotonic() + spec.budget_s * _TWIN_SHARE)
        verified: tuple[Verified, ...] = ()
        candidates = unlike(found)[:_VERIFIED_MAX]
        left_s = self._end - time.monotonic() - _LIVE_START_S
        if spec.live and candidates:
            count = min(len(candidates), int(left_s / (_LIVE_LOADS_WANTED * _LOAD_S)))
            if not count and left_s > 2 * _LOAD_S:
                count = 1
            if count < len(candidates):
                self._left_out.append(f"live verification of {len(candidates) - count} candidates")
            if count > 0:
                verified = self._verified(candidates[:count], left_s)
        chosen = max(
            (each for each in verified if each.live.best is not None),
            key=lambda each: each.live.rate_rps,
            default=None,
        )
        setting = chosen.setting if chosen is not None else None
        if not verified and candidates:
            setting = candidates[0].setting
        return Tuned(
            spec=spec,
            found=tuple(found),
            verified=verified,
            chosen=setting,
            left_out=tuple(self._left_out),
            host=host,
        )

    def _measured(self) -> list[MeasuredTimes]:
        spec, description = self._spec, self._description
        buckets = sorted({_bucket(description, tokens) for tokens in spec.tokens})
        sizes = [(rows, bucket) for bucket in buckets for rows in row_choices(spec.rows_max)]
        choices = lane_choices(spec.cores)
        until = time.monotonic() + spec.budget_s * _MEASURE_SHARE
        size_s = min(1.0, spec.budget_s * _MEASURE_SHARE / (len(choices) * len(sizes)))
        batching = dataclasses.replace(description.batching, rows_max=spec.rows_max)
        measured: list[MeasuredTimes] = []
        for lanes, threads in choices:
            if measured and time.monotonic() >= until:
                self._left_out.append(f"measuring {lanes} lanes of {threads} threads")
                continue
            self._say(f"measuring {lanes} x {threads} threads: {len(sizes)} sizes")
            measured.append(
                measure(
                    self._model_dir,
                    dataclasses.replace(description, batching=batching),
                    lanes=lanes,
                    threads=threads,
                    sizes=sizes,
                    size_s=size_s,
                    cache_dir=self._cache_dir,
                )
            )
            self._say(f"  {measured[-1].told()}")
        return measured

    def _host(self) -> HostCost:
        """Measures with the fastest choice of lanes, at a rate that does not fill it."""
        rates_rps = {
            choice: self._likely_rps(Setting(*choice, self._spec.rows_max))
            for choice in self._services
        }
        lanes, threads = max(rates_rps, key=lambda choice: rates_rps[choice])
        setting = Setting(lanes, threads, self._spec.rows_max)
        rate_rps = min(2 * rates_rps[lanes, threads] * _HOST_RATE_SHARE, _LIVE_FIRST_RPS_MAX)
        self._say(f"measuring the host's own cost at {rate_rps:.0f} requests per s")
        with self._serving([setting]) as server:
            host = measure_host(server, setting, max(1.0, rate_rps))
        self._say(f"  {host.told()}")
        return host

    def _likely_rps(self, setting: Setting) -> float:
        service = self._services[setting.lanes, setting.threads]
        return likely_rps(setting, service, _bucket(self._description, self._spec.tokens[0]))

    def _serving(self, settings: list[Setting]) -> AbstractContextManager[LiveServer]:
        """A server for the settings, which is sent requests of the longest length."""
        spec = self._spec
        body = _body(self._model_dir, self._description, max(spec.tokens))
        return serving(
            self._model_dir,
            self._description,
            settings,
            instance_type=spec.instance_type,
            body=body,
        )

    def _simulated(self, setting: Setting, rate_rps: float) -> SearchPoint:
        service = self._services[setting.lanes, setting.threads]
        return simulate(setting, self._description, service, self._spec.tokens, rate_rps)

    def _searched(self, until: float) -> list[SearchResult]:
        """All settings without a delay, then other delays for the best; best rate first."""
        spec = self._spec

        def look(setting: Setting, start_rps: float) -> SearchResult:
            run = partial(self._simulated, setting)
            return sustainable(run, setting, spec.p99_s, start_rps)

        firsts = [
            Setting(lanes, threads, rows)
            for lanes, threads in self._services
            for rows in row_choices(spec.rows_max)
        ]
        self._say(f"searching {len(firsts)} settings in the twin")
        found: list[SearchResult] = []
        for at, setting in enumerate(firsts):
            if found and time.monotonic() >= until:
                self._left_out.append(f"{len(firsts) - at} settings in the twin")
                break
            found.append(look(setting, self._likely_rps(setting)))
        found.sort(key=lambda each: -each.rate_rps)
        refined = [
            (other, each.rate_rps)
            for each in found[:_REFINED_MAX]
            if each.best is not None
            for other in with_delays(each.setting, spec.p99_s)
        ]
        for at, (setting, start_rps) in enumerate(refined):
            if time.monotonic() >= until:
                self._left_out.append(f"{len(refined) - at} delays in the twin")
                break
            found.append(look(setting, start_rps))
        return sorted(found, key=lambda each: -each.rate_rps)

    def _verified(self, candidates: list[SearchResult], left_s: float) -> tuple[Verified, ...]:
        loads = min(_LIVE_LOADS, max(2, int(left_s / (len(candidates) * _LOAD_S))))
        settings = [each.setting for each in candidates]
        self._say(f"verifying {len(settings)} settings live, {loads} loads of {_LOAD_S:g} s each")
        verified = []
        with self._serving(settings) as server:
            for at, candidate in enumerate(candidates):
                setting = candidate.setting
                server.run(at, setting, max(1.0, candidate.rate_rps / 10), 1.0)  # warms it up
                live = _loaded(server, at, candidate, self._spec.p99_s, loads)
                seen = live.best or live.points[-1]
                twin = self._simulated(setting, seen.rate_rps)
                verified.append(Verified(setting=setting, twin=twin, live=live))
        return tuple(verified)


def unlike(found: list[SearchResult]) -> list[SearchResult]:
    """The candidates for live loads: the best of each choice of lanes and threads, because the twin
    can't judge their share of the machine; then the best of each other kind of delay. Candidates
    close to one of these would teach nothing new."""
    firsts: dict[tuple[object, ...], SearchResult] = {}
    others: dict[tuple[object, ...], SearchResult] = {}
    for each in found:
        setting = each.setting
        lanes = (setting.lanes, setting.threads)
        delay = setting.delay_kind
        if each.best is not None and firsts.setdefault(lanes, each) is not each:
            others.setdefault((*lanes, delay), each)
    seen = {(*lanes, each.setting.delay_kind) for lanes, each in firsts.items()}
    return [*firsts.values(), *(each for kind, each in others.items() if kind not in seen)]


def _loaded(
    server: LiveServer, at: int, candidate: SearchResult, p99_s: float, loads: int
) -> SearchResult:
    """The highest rate within the latency that a few short loads find."""
    points: list[SearchPoint] = []
    low, high = 0.0, math.inf
    rate_rps = min(candidate.rate_rps * _LIVE_FIRST_SHARE, _LIVE_FIRST_RPS_MAX)
    for _ in range(loads):
        points.append(server.run(at, candidate.setting, rate_rps, _LOAD_S))
        if points[-1].within(p99_s):
            low = rate_rps
        else:
            high = rate_rps
        if not low:
            rate_rps = high / 4
        elif high == math.inf:
            rate_rps = low * 1.5
        else:
            rate_rps = (low + high) / 2
    return SearchResult.of(candidate.setting, points, p99_s)


def _body(model_dir: Path, description: ModelDescription, tokens: int) -> bytes:
    runtime = loaded(model_dir, description, cores=1)
    try:
        return body_of(model_dir, description, runtime.inputs, tokens)
    finally:
        runtime.close()


def _bucket(description: ModelDescription, tokens: int) -> int:
    """The length that a request of `tokens` tokens is padded to."""
    buckets = description.batching.buckets
    return next(
        (bucket for bucket in buckets if bucket >= tokens), buckets[-1] if buckets else tokens
    )

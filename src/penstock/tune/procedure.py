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
from dataclasses import dataclass
from pathlib import Path

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.proof.proof import cores
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime
from penstock.sim.service import ServiceSpec
from penstock.tune.host import HostCost, measure_host
from penstock.tune.live import LiveServer, serving
from penstock.tune.load import body_of
from penstock.tune.measure import MeasuredTimes, check_tunable, measure
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
    start = time.monotonic()
    left_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as cache:
        measured = _measured(model_dir, description, spec, Path(cache), say, left_out)
        padded = description.tokenizer is not None and bool(description.batching.buckets)
        services = {
            (each.lanes, each.threads): each.service(padded_rows=padded) for each in measured
        }
        left_s = spec.budget_s - (time.monotonic() - start)
        host = None
        if spec.live and left_s > _HOST_S + _LIVE_START_S:
            host = _host(model_dir, description, spec, services, say)
            services = {
                (lanes, threads): host.charged(each, lanes=lanes, threads=threads, cores=cores())
                for (lanes, threads), each in services.items()
            }
        elif spec.live:
            left_out.append("the host's own cost: the twin's rates are the model's alone")
        until = time.monotonic() + spec.budget_s * _TWIN_SHARE
        found = _searched(description, spec, services, until, say, left_out)
        verified: tuple[Verified, ...] = ()
        candidates = unlike(found)[:_VERIFIED_MAX]
        left_s = spec.budget_s - (time.monotonic() - start) - _LIVE_START_S
        if spec.live and candidates:
            count = min(len(candidates), int(left_s / (_LIVE_LOADS_WANTED * _LOAD_S)))
            if not count and left_s > 2 * _LOAD_S:
                count = 1
            if count < len(candidates):
                left_out.append(f"live verification of {len(candidates) - count} candidates")
            if count > 0:
                verified = _verified(
                    model_dir, description, spec, services, candidates[:count], left_s, say
                )
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
        left_out=tuple(left_out),
        host=host,
    )


def _host(
    model_dir: Path,
    description: ModelDescription,
    spec: TuneSpec,
    services: dict[tuple[int, int], ServiceSpec],
    say: Callable[[str], None],
) -> HostCost:
    """Measures with the fastest choice of lanes, at a rate that does not fill it."""

    def alone_rps(lanes: int, threads: int) -> float:
        setting = Setting(lanes, threads, spec.rows_max)
        bucket = _bucket(description, spec.tokens[0])
        return likely_rps(setting, services[lanes, threads], bucket)

    lanes, threads = max(services, key=lambda choice: alone_rps(*choice))
    setting = Setting(lanes, threads, spec.rows_max)
    rate_rps = min(2 * alone_rps(lanes, threads) * _HOST_RATE_SHARE, _LIVE_FIRST_RPS_MAX)
    say(f"measuring the host's own cost at {rate_rps:.0f} requests per s")
    body = _body(model_dir, description, max(spec.tokens))
    with serving(
        model_dir, description, [setting], instance_type=spec.instance_type, body=body
    ) as server:
        host = measure_host(server, setting, max(1.0, rate_rps))
    say(f"  {host.told()}")
    return host


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


def _measured(
    model_dir: Path,
    description: ModelDescription,
    spec: TuneSpec,
    cache_dir: Path,
    say: Callable[[str], None],
    left_out: list[str],
) -> list[MeasuredTimes]:
    buckets = sorted({_bucket(description, tokens) for tokens in spec.tokens})
    sizes = [(rows, bucket) for bucket in buckets for rows in row_choices(spec.rows_max)]
    choices = lane_choices(spec.cores)
    until = time.monotonic() + spec.budget_s * _MEASURE_SHARE
    size_s = min(1.0, spec.budget_s * _MEASURE_SHARE / (len(choices) * len(sizes)))
    measured: list[MeasuredTimes] = []
    for lanes, threads in choices:
        if measured and time.monotonic() >= until:
            left_out.append(f"measuring {lanes} lanes of {threads} threads")
            continue
        say(f"measuring {lanes} x {threads} threads: {len(sizes)} sizes")
        measured.append(
            measure(
                model_dir,
                dataclasses.replace(
                    description,
                    batching=dataclasses.replace(description.batching, rows_max=spec.rows_max),
                ),
                lanes=lanes,
                threads=threads,
                sizes=sizes,
                size_s=size_s,
                cache_dir=cache_dir,
            )
        )
        say(f"  {measured[-1].told()}")
    return measured


def _searched(
    description: ModelDescription,
    spec: TuneSpec,
    services: dict[tuple[int, int], ServiceSpec],
    until: float,
    say: Callable[[str], None],
    left_out: list[str],
) -> list[SearchResult]:
    """All settings without a delay, then other delays for the best; best rate first."""

    def look(setting: Setting, start_rps: float = 0.0) -> SearchResult:
        service = services[setting.lanes, setting.threads]
        start_rps = start_rps or likely_rps(setting, service, _bucket(description, spec.tokens[0]))

        def run(rate_rps: float) -> SearchPoint:
            return simulate(setting, description, service, spec.tokens, rate_rps)

        return sustainable(run, setting, spec.p99_s, start_rps)

    firsts = [
        Setting(lanes, threads, rows)
        for lanes, threads in services
        for rows in row_choices(spec.rows_max)
    ]
    say(f"searching {len(firsts)} settings in the twin")
    found: list[SearchResult] = []
    for at, setting in enumerate(firsts):
        if found and time.monotonic() >= until:
            left_out.append(f"{len(firsts) - at} settings in the twin")
            break
        found.append(look(setting))
    found.sort(key=lambda each: -each.rate_rps)
    refined = [
        (other, each.rate_rps)
        for each in found[:_REFINED_MAX]
        if each.best is not None
        for other in with_delays(each.setting, spec.p99_s)
    ]
    for at, (setting, start_rps) in enumerate(refined):
        if time.monotonic() >= until:
            left_out.append(f"{len(refined) - at} delays in the twin")
            break
        found.append(look(setting, start_rps))
    return sorted(found, key=lambda each: -each.rate_rps)


def _verified(
    model_dir: Path,
    description: ModelDescription,
    spec: TuneSpec,
    services: dict[tuple[int, int], ServiceSpec],
    candidates: list[SearchResult],
    left_s: float,
    say: Callable[[str], None],
) -> tuple[Verified, ...]:
    tokens = max(spec.tokens)
    body = _body(model_dir, description, tokens)
    loads = min(_LIVE_LOADS, max(2, int(left_s / (len(candidates) * _LOAD_S))))
    settings = [each.setting for each in candidates]
    say(f"verifying {len(settings)} settings live, {loads} loads of {_LOAD_S:g} s each")
    verified = []
    with serving(
        model_dir, description, settings, instance_type=spec.instance_type, body=body
    ) as server:
        for at, candidate in enumerate(candidates):
            setting = candidate.setting
            server.run(at, setting, max(1.0, candidate.rate_rps / 10), 1.0)  # warms it up
            live = _loaded(server, at, candidate, spec.p99_s, loads)
            service = services[setting.lanes, setting.threads]
            seen = live.best or live.points[-1]
            twin = simulate(setting, description, service, spec.tokens, seen.rate_rps)
            verified.append(Verified(setting=setting, twin=twin, live=live))
    return tuple(verified)


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
    best = max(
        (point for point in points if point.within(p99_s)),
        key=lambda point: point.rate_rps,
        default=None,
    )
    return SearchResult(candidate.setting, best, tuple(points))


def _body(model_dir: Path, description: ModelDescription, tokens: int) -> bytes:
    runtime = load_tensor_runtime(
        LoadContext(
            model_dir=model_dir,
            description=description,
            endpoint_name="tune",
            variant_name="tune",
            cores=1.0,
            memory_bytes_max=0,
        )
    )
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

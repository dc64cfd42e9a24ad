"""`python -m penstock.sim scenarios/`: run scenario files through the twin.

`SEED` in the environment (or `--seed`) replaces the seed of every file. Each run is reported as a
block of text, and the last line is one JSON object for all. Wrong input prints
`error[code]: message` and `hint: ...`, and the exit status is 2.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import CallerError
from penstock.sim.record import DecisionRecorder
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin

_BAR_WIDTH = 40
_BARS_MAX = 12  #: batch sizes shown one by one; with more, neighbours are merged


def main(arguments: list[str], environment: dict[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="scenario files or their directories")
    parser.add_argument("--seed", help="instead of the seed of each file")
    parser.add_argument(
        "--json", type=Path, default=Path("build/sim.json"), help="file for the whole report"
    )
    chosen = parser.parse_args(arguments)
    try:
        seed = _seed(chosen.seed or environment.get("SEED"))
        if seed is not None:
            print(f"seed {seed}\n")
        report = run_files(chosen.paths, seed)
    except CallerError as error:
        print(f"error[{error.code}]: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 2
    written = orjson.dumps(report, option=orjson.OPT_INDENT_2)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_bytes(written)
    print(summary(report))
    print(f"all figures: {chosen.json}")
    return 0


def summary(report: Mapping[str, Any]) -> str:
    """One line for each scenario, and one for all."""
    rows = [
        f"{name:<28} {one['answered']:>9,} of {one['requests']:>9,} answered, "
        f"P99 {one['latency_ms'].get('p99', 0.0):,.1f} ms, digest {one['digest'][:12]}"
        for name, one in report["scenarios"].items()
    ]
    speed = f"{report['simulated_requests_per_s']:,.0f} requests simulated per second"
    return "\n".join([*rows, f"{len(rows)} scenarios, {speed}"])


def _seed(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise CallerError(
            "invalid-seed", f"the seed is {text!r}", hint="SEED and --seed take a whole number."
        ) from None


def scenario_files(paths: list[Path]) -> list[Path]:
    """Files as they are, directories as the `*.toml` in them, by name. Raises `CallerError`."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise CallerError(
                "no-scenarios", f"{path} holds no *.toml", hint="Name a scenario file."
            )
        files += found
    return files


def run_scenario(scenario: Scenario, seed: int | None) -> dict[str, Any]:
    """One run, timed; the JSON-ready report of it."""
    twin = Twin(scenario, seed=seed, recorder=DecisionRecorder())
    started = time.perf_counter()
    outcome = twin.run()
    real_s = time.perf_counter() - started
    digest = twin.recorder.digest()
    lanes = len(twin.copies) * scenario.batching.lanes
    return {
        "seed": scenario.seed if seed is None else seed,
        "length_s": scenario.length_s,
        **outcome.report(lanes=lanes, length_s=scenario.length_s),
        "actions": twin.recorder.count,
        "digest": digest,
        "real_s": real_s,
        "requests_per_real_s": outcome.requests / real_s,
        "events_per_real_s": outcome.events / real_s,
    }


def run_files(paths: list[Path], seed: int | None) -> dict[str, Any]:
    """Runs all scenarios one by one, printing each; returns all as one JSON-ready value."""
    reports: dict[str, Any] = {}
    for path in scenario_files(paths):
        scenario = load_scenario(path)
        report = reports[scenario.name] = run_scenario(scenario, seed)
        print(block(scenario, report), flush=True)
    real_s = sum(report["real_s"] for report in reports.values())
    return {
        "simulated_requests_per_s": sum(r["requests"] for r in reports.values()) / real_s,
        "events_per_s": sum(r["events"] for r in reports.values()) / real_s,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "scenarios": reports,
    }


def block(scenario: Scenario, report: dict[str, Any]) -> str:
    """The report of one run for people."""
    latency = report["latency_ms"]
    lines = [
        f"{scenario.name}  (seed {report['seed']}, {report['length_s']:g} s)",
        f"  {scenario.about}",
        f"  requests      {report['requests']:,}, answered {report['answered']:,}"
        f" ({report['answered_rps']:,.1f}/s), cancelled {report['cancelled']:,},"
        f" retried {report['retries']:,}",
        f"  latency ms    {_latencies(latency)}",
    ]
    if "first_token_ms" in report:
        lines.append(
            f"  first token   {_latencies(report['first_token_ms'])}"
            f"  ({report['tokens_per_s']:,.0f} tokens/s)"
        )
    for level, latencies in enumerate(report.get("latency_ms_by_priority", ())):
        lines.append(f"    priority {level}  {_latencies(latencies)}")
    lines.append(f"  not answered  {_counts(report['not_answered']) or 'none'}")
    if scenario.generation is not None:
        lines.append(
            f"  steps         {report['batches']:,} of {report['batch_rows_mean']:.2f} sequences on"
            " average"
        )
    else:
        lines.append(
            f"  batches       {report['batches']:,} of {report['batch_rows_mean']:.2f} rows on"
            f" average; left because: {_counts(report['batch_reasons'])}"
        )
    lines += _histogram({int(size): count for size, count in report["batch_rows"].items()})
    lines.append(f"  utilisation   {report['utilisation']:.3f}")
    lines.append(f"  digest        {report['digest']} over {report['actions']:,} actions")
    lines.append(
        f"  speed         {report['requests_per_real_s']:,.0f} requests,"
        f" {report['events_per_real_s']:,.0f} events per second of real time\n"
    )
    return "\n".join(lines)


def _latencies(latency: dict[str, float]) -> str:
    return "  ".join(
        f"{name.upper().replace('_', '.')} {value:.3f}" for name, value in latency.items()
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _histogram(counts: dict[int, int]) -> list[str]:
    """Batches by rows, with neighbours merged if there are many sizes."""
    if not counts:
        return []
    width = -(-max(counts) // _BARS_MAX)
    bars: dict[int, int] = {}
    for size, count in counts.items():
        bars[(size - 1) // width] = bars.get((size - 1) // width, 0) + count
    most = max(bars.values())
    lines = []
    for bar, count in sorted(bars.items()):
        first, last = bar * width + 1, (bar + 1) * width
        label = str(first) if width == 1 else f"{first}-{last}"
        mark = "#" * max(1, round(_BAR_WIDTH * count / most))
        lines.append(f"    {label:>7} rows  {mark} {count:,}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))

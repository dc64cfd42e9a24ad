"""The result of a tuning: rows for a table, plots as text and PNG, an object for programs.

The plots show rate against P99. The PNG has all runs of the twin, the best of them, and the live
loads. Matplotlib belongs to the extra `tune`, and is imported when a PNG is requested.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from penstock.distribution import install_command
from penstock.durable_files import check_output, output
from penstock.errors import CallerError
from penstock.tune.procedure import Tuned
from penstock.tune.search import SearchPoint, SearchResult, Setting, pareto

COLUMNS = (
    "lanes", "threads", "rows", "delay", "twin rps", "twin P99 ms", "live rps", "live P99 ms",
    "twin P99 ms there",
)  # fmt: skip
_ROWS_SHOWN = 12
_WIDTH, _HEIGHT = 64, 16


def rows(tuned: Tuned) -> list[tuple[str, ...]]:
    """The best settings, the chosen one first and marked; `twin ... there` is at the live rate."""
    live = {each.setting: each for each in tuned.verified}
    ranked = sorted(
        tuned.found,
        key=lambda found: (found.setting != tuned.chosen, found.setting not in live),
    )
    table = []
    for found in ranked[:_ROWS_SHOWN]:
        setting = found.setting
        mark = "*" if setting == tuned.chosen else ""
        cells = [f"{mark}{setting.lanes}", str(setting.threads), str(setting.rows_max)]
        cells += [setting.delay, *_rate(found)]
        seen = live.get(setting)
        cells += [*_rate(seen.live), f"{seen.twin.p99_s * 1e3:.1f}"] if seen else ["", "", ""]
        table.append(tuple(cells))
    return table


def _rate(found: SearchResult) -> tuple[str, str]:
    if found.best is None:
        return "none", ""
    return f"{found.best.rate_rps:.0f}", f"{found.best.p99_s * 1e3:.1f}"


def as_json(tuned: Tuned) -> dict[str, Any]:
    """For programs; rates per s, times in ms."""
    return {
        "p99_ms": tuned.spec.p99_s * 1e3,
        "cores": tuned.spec.cores,
        "host_us_per_request": None
        if tuned.host is None
        else {
            "loops": [each * 1e6 for each in tuned.host.loops_s],
            "load": tuned.host.load_s * 1e6,
        },
        "tokens": list(tuned.spec.tokens),
        "chosen": None if tuned.chosen is None else _setting(tuned.chosen),
        "twin": [_setting(each.setting) | _best(each) for each in tuned.found],
        "live": [
            _setting(each.setting)
            | _best(each.live)
            | {"twin_p99_ms_at_that_rate": each.twin.p99_s * 1e3}
            for each in tuned.verified
        ],
        "left_out": list(tuned.left_out),
    }


def _setting(setting: Setting) -> dict[str, Any]:
    level_s = setting.latency_s_p99_max
    return {
        "lanes": setting.lanes,
        "threads_per_lane": setting.threads,
        "rows_max": setting.rows_max,
        "wait_ms_max": setting.wait_s_max * 1e3,
        "latency_ms_p99_max": None if level_s is None else level_s * 1e3,
    }


def _best(found: SearchResult) -> dict[str, Any]:
    best = found.best
    return {
        "rate_rps": found.rate_rps,
        "latency_ms_p99": None if best is None else best.p99_s * 1e3,
    }


def closest(tuned: Tuned) -> str:
    """Where no setting keeps the service level: the one that came nearest to it."""
    runs = [(point.p99_s, found.setting) for found in tuned.found for point in found.points]
    if not runs:
        return "no setting could be tried"
    p99_s, setting = min(runs, key=lambda run: run[0])
    return (
        f"no setting keeps P99 within {tuned.spec.p99_s * 1e3:g} ms: the closest is"
        f" {p99_s * 1e3:.1f} ms, with {setting.lanes} lanes of {setting.threads} threads and"
        f" {setting.rows_max} rows"
    )


def plot(tuned: Tuned) -> str:
    """Rate against P99 of the twin's runs: `o` unbeaten in both, `.` others, `-` the P99 bound."""
    points = points_of(tuned)
    if not points:
        return ""
    rate_max = max(point.answered_rps for point in points)
    p99_max = tuned.spec.p99_s * 1.5
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    level = _line(tuned.spec.p99_s, p99_max)
    grid[level] = ["-"] * _WIDTH
    front = set(map(id, pareto(points)))
    for point in sorted(points, key=lambda point: id(point) in front):
        column = min(_WIDTH - 1, int(point.answered_rps / rate_max * (_WIDTH - 1)))
        grid[_line(point.p99_s, p99_max)][column] = "o" if id(point) in front else "."
    lines = []
    for number, cells in enumerate(grid):
        label = ""
        if number == level:
            label = f"{tuned.spec.p99_s * 1e3:.1f}"
        elif number == 0:
            label = "P99 ms"
        lines.append(f"{label:>8} |{''.join(cells).rstrip()}")
    lines.append(f"{'0':>8} +{'-' * _WIDTH}")
    lines.append(f"{'':>9}0{f'{rate_max:.0f} answers/s':>{_WIDTH}}")
    return "\n".join(lines)


def points_of(tuned: Tuned) -> list[SearchPoint]:
    """The twin's runs that a plot shows."""
    return [
        point
        for found in tuned.found
        for point in found.points
        if point.p99_s <= tuned.spec.p99_s * 1.5
    ]


def _line(p99_s: float, p99_max: float) -> int:
    return min(_HEIGHT - 1, max(0, round((1 - p99_s / p99_max) * (_HEIGHT - 1))))


_MARKS = "sD^vPX"  #: one shape per live candidate


def check_drawable(path: Path) -> None:
    """Raises CallerError (`matplotlib-missing`, `output-impossible`) if no PNG can be written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CallerError(
            "matplotlib-missing",
            f"{path} cannot be drawn: matplotlib is not installed",
            hint="Leave --png out (the plot is printed as text), or install it: "
            + install_command("tune"),
        )
    check_output(path)


def write_png(tuned: Tuned, path: Path) -> None:
    """Writes the PNG. Raises CallerError as `check_drawable`."""
    check_drawable(path)
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 5.5))
    axes = figure.subplots()
    points = points_of(tuned)
    front = pareto(points)
    p99_ms = tuned.spec.p99_s * 1e3
    _draw(axes, points, ".", color="0.75", label="runs of the twin")
    _draw(axes, front, "o-", color="tab:blue", label="best of the twin")
    for number, each in enumerate(tuned.verified):
        mark = _MARKS[number % len(_MARKS)]
        chosen = " (chosen)" if each.setting == tuned.chosen else ""
        setting = each.setting
        label = f"{setting.lanes} x {setting.threads}, {setting.rows_max} rows, {setting.delay}"
        _draw(axes, each.live.points, mark, label=f"live {label}{chosen}")
    axes.axhline(p99_ms, linestyle="--", color="tab:red", label=f"P99 {p99_ms:g} ms")
    axes.set(
        title=f"{tuned.spec.cores} cores, {', '.join(map(str, tuned.spec.tokens))} tokens",
        xlabel="answers per second",
        ylabel="P99 in ms",
        xlim=(0, None),
        ylim=(0, p99_ms * 1.5),
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    with output(path):
        figure.savefig(path, dpi=120, bbox_inches="tight")


def _draw(axes: Any, points: Any, style: str, **options: Any) -> None:
    rates = [point.answered_rps for point in points]
    axes.plot(rates, [point.p99_s * 1e3 for point in points], style, **options)

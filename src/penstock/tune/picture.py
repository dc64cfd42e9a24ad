"""Rate against P99 as a PNG: all that the twin ran, the best of it, and what was seen live.

Matplotlib is of the extra `tune`, and imported when a picture is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from penstock.durable_files import check_output, output
from penstock.errors import CallerError
from penstock.tune.procedure import Tuned
from penstock.tune.report import points_of
from penstock.tune.search import pareto
from penstock.tune.settings import Setting

_MARKS = "sD^vPX"  #: one shape per live candidate


def check_drawable(path: Path) -> None:
    """Raises CallerError (`matplotlib-missing`, `output-impossible`) where none can be written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CallerError(
            "matplotlib-missing",
            f"{path} cannot be drawn: matplotlib is not installed",
            hint="pip install 'penstock[tune]', or leave --png out: the plot is printed as text.",
        )
    check_output(path)


def write_png(tuned: Tuned, path: Path) -> None:
    """Raises CallerError as `check_drawable`."""
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
        _draw(axes, each.live.points, mark, label=f"live {_label(each.setting)}{chosen}")
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


def _label(setting: Setting) -> str:
    return f"{setting.lanes} x {setting.threads}, {setting.rows_max} rows, {setting.delay}"

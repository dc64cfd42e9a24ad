"""Run times from an artifact's compile report, as the batcher's first estimates.

With them a service level holds from the first request on; later the copy's own measurements replace
them (`core.run_times`). An unusable report never prevents loading: it counts as missing.

An estimate must not be too long. A request whose deadline can't be met by the estimate is refused,
and if all are refused, no run can correct it. So times are used only on the processor on which they
were measured. For another number of threads they are estimated from below: unchanged for fewer
threads, and reduced in proportion for more.
"""

from __future__ import annotations

import math
from pathlib import Path

from penstock.artifacts.description.description import Batching
from penstock.compile.report import read_report
from penstock.runtimes.processor import instruction_set_here, processor

RunsMeasured = tuple[tuple[int, int, float], ...]


def runs_measured(model_dir: Path, batching: Batching, *, threads: int) -> RunsMeasured:
    """(rows, length, run s) of the report beside the model, as `BatchSpec` takes them.

    `threads` are those of a lane. Reads a small file.
    """
    report = read_report(model_dir)
    try:
        here = instruction_set_here().name
        if report["processor"] != processor() or report.get("instruction_set", here) != here:
            return ()
        scale = min(1.0, report["threads"] / threads)
        found = [
            (int(each["rows"]), int(each["tokens"]), float(each["after_ms"]) / 1e3 * scale)
            for each in report["timings"]
        ]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return ()
    longest = batching.buckets[-1] if batching.buckets else 0
    return tuple(
        (rows, length if batching.buckets else 0, run_s)
        for rows, length, run_s in found
        if 1 <= rows <= max(1, batching.rows_max)
        and (length <= longest or not batching.buckets)
        and 0.0 < run_s < math.inf
    )

"""The results of a compile: `report.json` for programs, a table for people, the provenance.

This module only renders figures; it measures and decides nothing.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.compile.contract import Compiled, Options, Timing
from penstock.compile.source.source import Source
from penstock.compile.targets import CompileTarget, accelerator_of
from penstock.runtimes.processor import instruction_set_here, processor

REPORT = "report.json"
_BYTES_MAX = 1_000_000  #: bound of a report to read; a report has about 3 kB
PROVENANCE = "provenance.json"
_PACKAGES = (
    "torch", "transformers", "openvino", "nncf", "onnxruntime", "tokenizers", "safetensors",
    "sentencepiece", "numpy",
)  # fmt: skip


def report_of(
    compiled: Compiled, target: CompileTarget, *, artifact_bytes: int, threads: int
) -> Any:
    """The content of report.json. Times are in ms, rates in rows (texts) per second."""
    parity = compiled.parity
    return {
        "schema": 1,
        "target": target.name,
        "task": compiled.description.task,
        "parity": {
            "compared": parity.unit,
            "measure": parity.measure,
            "samples": parity.samples,
            "batches_kept": compiled.proof_batches,
            "difference_max": parity.difference_max,
            "difference_mean": parity.difference_mean,
            "agreement": parity.agreement,
            "tolerance": {
                "difference_max": parity.tolerance.difference_max,
                "difference_mean": parity.tolerance.difference_mean,
                "agreement_min": parity.tolerance.agreement_min,
            },
        },
        "size": {"source_bytes": compiled.source_bytes, "artifact_bytes": artifact_bytes},
        "before": compiled.framework,
        "after": f"{compiled.description.runtime} {compiled.description.precision}".strip(),
        "threads": threads,
        "processor": processor(),
        "instruction_set": instruction_set_here().name,
        **({"accelerator": board} if (board := accelerator_of(target)) else {}),
        "timings": [_timing(each) for each in compiled.timings],
        "notes": compiled.notes,
        **({"auto": compiled.auto} if compiled.auto else {}),
    }


def provenance_of(
    source: Source,
    compiled: Compiled,
    options: Options,
    target: CompileTarget,
    *,
    started: datetime,
    seconds: float,
) -> Any:
    """The content of provenance.json. Paths are cut to names: one machine's folders are of no
    use."""
    chosen = {
        name: getattr(options, name)
        for name in ("task", "name", "tokens_max", "rows_max", "tolerance", "trust", "inputs")
    }
    files = {
        name: path.name
        for name in ("calibration", "samples", "description", "tokenizer")
        if (path := getattr(options, name)) is not None
    }
    return {
        "schema": 1,
        "source": {
            "name": source.path.resolve().name,
            "kind": source.kind,
            "sha256": source.digest,
            "weights_bytes": source.size,
        },
        "target": target.name,
        "options": {**{key: value for key, value in chosen.items() if value}, **files},
        "choices": {"precision": compiled.description.precision, **compiled.choices},
        "versions": {"penstock": __version__, "python": platform.python_version(), **_versions()},
        "processor": processor(),
        "instruction_set": instruction_set_here().name,
        "started": started.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
    }


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def read_report(folder: Path) -> Any:
    """The JSON of the report in a model's folder; None where it is missing or broken."""
    path = folder / REPORT
    try:
        return json.loads(path.read_bytes()) if path.stat().st_size <= _BYTES_MAX else None
    except (OSError, ValueError, RecursionError):
        return None


def parity_rows(report: Any) -> list[tuple[str, str, str]]:
    """(what, value, allowed) for the printed table."""
    parity, size = report["parity"], report["size"]
    limits = parity["tolerance"]
    rows = [
        (
            f"largest difference ({parity['compared']})",
            f"{parity['difference_max']:.2e}",
            f"at most {limits['difference_max']:g}",
        ),
        (
            "mean difference",
            f"{parity['difference_mean']:.2e}",
            f"at most {limits['difference_mean']:g}",
        ),
    ]
    if parity["agreement"] is not None:
        rows.append(
            ("agreement", f"{parity['agreement']:.2%}", f"at least {limits['agreement_min']:.0%}")
        )
    rows.append(("samples", str(parity["samples"]), ""))
    rows.append(
        (
            "size",
            f"{size['artifact_bytes'] / 1e6:.1f} MB",
            f"source {size['source_bytes'] / 1e6:.1f} MB",
        )
    )
    return rows


def auto_rows(report: Any) -> list[tuple[str, str, str]]:
    """(candidate, speed against the source, mean difference) for the printed table."""
    story = report["auto"]
    return [
        (
            each["candidate"] + (" (chosen)" if each["candidate"] == story["chosen"] else ""),
            "refused" if "refused" in each else f"{each['speedup'] or 1.0:.2f}x",
            each.get("refused") or f"{each['difference_mean']:.2e}",
        )
        for each in story["tried"]
    ]


def timing_rows(report: Any) -> list[tuple[str, ...]]:
    """(shape, before, after, rows/s before, after, ratio) for the printed table."""
    return [
        (
            f"{each['rows']} x {each['tokens']}" if each["tokens"] else f"{each['rows']} rows",
            f"{each['before_ms']:.2f} ms",
            f"{each['after_ms']:.2f} ms",
            f"{each['before_rows_per_s']:,.0f}/s",
            f"{each['after_rows_per_s']:,.0f}/s",
            f"{each['speedup']:.1f}x",
        )
        for each in report["timings"]
    ]


def _timing(timing: Timing) -> dict[str, float]:
    return {
        "rows": timing.rows,
        "tokens": timing.tokens,
        "before_ms": round(timing.before_s * 1000, 4),
        "after_ms": round(timing.after_s * 1000, 4),
        "after_ms_p99": round(timing.after_s_p99 * 1000, 4),
        "before_rows_per_s": round(timing.rows / timing.before_s, 2),
        "after_rows_per_s": round(timing.rows / timing.after_s, 2),
        "speedup": round(timing.before_s / timing.after_s, 3),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

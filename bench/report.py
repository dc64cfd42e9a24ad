"""What every benchmark prints last: a JSON object that says what was measured, on what, and how."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock.runtimes.processor import instruction_set_here, instruction_set_limit, processor

ROOT = Path(__file__).resolve().parent.parent


def hardware() -> dict[str, Any]:
    """The machine in words: model name, the instruction set in force (and what limits it, if
    something does), cores this process may use, memory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = instruction_set_limit()
    return {
        "cpu": processor(),
        "instruction_set": instruction_set_here().name,
        **({"instruction_set_limit": limit} if limit else {}),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
    }


def versions(*packages: str) -> dict[str, str]:
    """Installed versions in this environment; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit measured, with `+changes` when the tree differs from it."""
    run = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+changes"],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or "unknown"


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median and range of repeated measurements."""
    return {
        "median": round(statistics.median(samples), 4),
        "min": round(min(samples), 4),
        "max": round(max(samples), 4),
        "samples": len(samples),
    }


def finish(name: str, figures: dict[str, Any], **details: Any) -> None:
    """Prints the closing line. `figures` come first, under the names that documents quote."""
    line = {
        "bench": name,
        **figures,
        **details,
        "hardware": hardware(),
        "commit": commit(),
        "command": f"make bench NAME={name}",
        "arguments": sys.argv[2:],
    }
    print(json.dumps(line))

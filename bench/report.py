"""What every benchmark prints last: a JSON object that says what was measured, on what, and how."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from tools.environments import interpreter

from penstock.runtimes.processor import instruction_set_here, instruction_set_limit, processor

ROOT = Path(__file__).resolve().parent.parent
_BEGAN = time.monotonic()


def hardware() -> dict[str, Any]:
    """The machine in words: model name and number, the instruction set in force (and what limits
    it, if something does) and what of it matters here, cores this process may use, memory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = instruction_set_limit()
    return {
        "cpu": processor(),
        **cpu_facts(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        "instruction_set": instruction_set_here().name,
        **({"instruction_set_limit": limit} if limit else {}),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
    }


#: Instructions that decide how fast a model is, by the kernel's names.
_TELLING = (
    "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_bf16", "amx_int8", "asimd", "sve", "bf16", "i8mm",
)  # fmt: skip


def cpu_facts(cpuinfo: str) -> dict[str, Any]:
    """Of the first core in /proc/cpuinfo: the model's number and the instructions it has, whatever
    is in force. A hypervisor may hide the model's name and seldom hides these."""
    first = cpuinfo.partition("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = fields.get("flags", fields.get("Features", "")).split()
    number = [fields[name] for name in ("cpu family", "model", "stepping") if name in fields]
    return {
        **({"cpu_family_model_stepping": "/".join(number)} if number else {}),
        "instructions": [each for each in _TELLING if each in flags],
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


def versions_in(environment: str, *packages: str) -> dict[str, str]:
    """The same of a peer's environment (`tools/environments.py`)."""
    places = interpreter(environment).parents[1].glob("lib/python3*/site-packages")
    found = {each.name: each.version for each in distributions(path=[str(at) for at in places])}
    return {name: found[name] for name in packages if name in found}


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
    arguments = sys.argv[2:]
    again = f"make bench NAME={name}"
    if arguments:
        again = " ".join((".venv/bin/python -m bench", name, *arguments))
    line = {
        "bench": name,
        **figures,
        **details,
        "took_s": round(time.monotonic() - _BEGAN),
        "hardware": hardware(),
        "commit": commit(),
        "command": again,
    }
    print(json.dumps(line))

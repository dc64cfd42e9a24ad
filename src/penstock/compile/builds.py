"""One artifact with a build for each of several processors, each compiled and proven separately.

Each build is compiled in a process that is limited to the instructions of its processor
(ONEDNN_MAX_CPU_ISA): recipe, formats, `auto` and the proof follow from that. So this processor must
have all the instructions that any of them needs. Other effects of a processor are checked when the
build is loaded (`instance/loading/proof_here.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts.description.builds import write_builds
from penstock.compile.child import child_failure, start_child
from penstock.compile.contract import Options, Say, options_text
from penstock.compile.report import read_report
from penstock.compile.staging import check_free, staged
from penstock.core.models.instruction_sets import NAMES, Build, can_run, demand, named
from penstock.errors import CallerError, ModelError
from penstock.runtimes.processor import LIMITS, instruction_set_here


def compile_builds(
    path: Path,
    out: Path,
    options: Options,
    chips: Sequence[str],
    *,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Compiles `path` into `out`, once for each of `chips`. Returns their reports.

    Raises CallerError, and then leaves nothing behind: `chip-unknown`, `target-absent`, and those
    of `compile_model`, which name the build; ModelError (`compile-crashed`).
    """
    check_free(out)
    wanted = {_set_of(chip): chip.strip().lower() for chip in chips}
    here = instruction_set_here().name
    for needs, chip in wanted.items():
        if not can_run(needs, here):
            raise CallerError(
                "target-absent",
                f"a build for {chip} ({needs}) can't be proven here: this processor has {here}",
                hint="Compile it on a processor that has it, and add its folder to builds.yaml.",
            )
    told: list[dict[str, Any]] = []
    builds: list[Build] = []
    with staged(out) as staging:
        for needs in sorted(wanted, key=demand, reverse=True):
            folder = wanted[needs]
            say(f"build {folder}, for processors with {needs}")
            _compile(path, staging / folder, options, needs, say)
            report: dict[str, Any] = read_report(staging / folder) or {}
            builds.append(Build(folder=folder, needs=needs, target=report.get("target", "")))
            told.append({"folder": folder, "needs": needs, "report": report})
        write_builds(staging, builds)
    return {"schema": 1, "builds": told}


def _set_of(chip: str) -> str:
    found = named(chip)
    if not found:
        raise CallerError(
            "chip-unknown",
            f"--for {chip[:40]!r} is no instruction set",
            hint=f"Use avx2, avx512, vnni, bf16, amx, or one of {', '.join(NAMES)}.",
        )
    return found


def _compile(path: Path, out: Path, options: Options, needs: str, say: Say) -> None:
    arguments = [str(path), str(out), options.target, options_text(options)]
    try:
        child = start_child(arguments, dict.fromkeys(LIMITS, needs))
    except OSError as error:
        raise ModelError("compile-crashed", f"no process can be started: {error}") from None
    lines: list[str] = []
    with child:
        for line in child.stdout or ():
            lines.append(line)
            if not line.startswith("{"):
                say(line.rstrip())
    if child.returncode:
        raise child_failure(child.returncode, lines)

"""`make mutants`: does a test notice when a rule is broken? Small changes, one at a time.

::

    make mutants                             every module of core/, gateway/, wire/ ... (long)
    make mutants MODULE=core/batching/batcher.py     one module
    make mutants MODULE=core/routing         a folder
    make mutants FLAGS='--max 50 --seed 7'   at most so many of each module, drawn by seed
    make mutants FLAGS='--diff main'         only lines that differ from a revision
    make mutants MODULE=... FLAGS='--lines 100-140'
    make mutants MODULE=... FLAGS='--killed' shows which test killed what, too

What a mutant is: `changes.py`. How it is run: `session.py`. Which tests concern a module:
`tests_of.py`. A mutant that behaves as the original does is listed, with the reason, in
`equivalent/<folder>.toml`; it is counted neither as killed nor as survived. The last line of
output is JSON. The exit status is 1 only when something could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from tools.mutants.equivalents import Equivalent, read_equivalents
from tools.mutants.lifetime import stop_on_signals
from tools.mutants.tests_of import COVERED, ROOT, SOURCE, TESTS_OF


def main() -> int:
    stop_on_signals()
    arguments = _parser().parse_args()
    modules = _modules(arguments.module)
    known = read_equivalents()
    whole = arguments.max is None and arguments.lines is None and arguments.diff is None
    results = []
    for module in modules:
        lines = _lines_of(module, arguments)
        if lines == []:
            continue
        began = time.monotonic()
        said = _run(module, lines, arguments)
        if "failed" in said:
            print(f"{module}: the tests fail without a change: {said['failed']}\n{said['why']}")
            results.append({"module": module, "failed": said["failed"]})
            continue
        mine = [one for one in known if one.module == module]
        results.append(
            report(module, said["changes"], mine, whole=whole, show_killed=arguments.killed)
        )
        print(f"  in {time.monotonic() - began:.0f} s")
        sys.stdout.flush()
    print(json.dumps({"mutants": results, "seed": arguments.seed, "max": arguments.max}))
    return 1 if any("failed" in one for one in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("module", nargs="*", help="modules or folders below src/penstock")
    parser.add_argument("--max", type=int, help="at most so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="draws them")
    parser.add_argument("--lines", help="only lines A-B")
    parser.add_argument("--diff", help="only lines that differ from this revision")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument("--killed", action="store_true", help="show also what killed each")
    return parser


def _modules(wanted: list[str]) -> list[str]:
    if not wanted:
        return sorted(TESTS_OF)
    chosen = []
    for said in wanted:
        name = said.removeprefix("src/penstock/").rstrip("/")
        found = [module for module in TESTS_OF if module == name or module.startswith(name + "/")]
        if not found:
            sys.exit(
                f"error[unknown-module]: {said}: make mutants knows no such module or folder\n"
                f"hint: name one below {', '.join(COVERED)}, as in MODULE=core/batching/batcher.py;"
                " a new module gets a row in tools/mutants/tests_of.py."
            )
        chosen += sorted(found)
    return chosen


def _lines_of(module: str, arguments: argparse.Namespace) -> list[tuple[int, int]] | None:
    """None: all lines; an empty list: none."""
    if arguments.lines:
        first, _, last = arguments.lines.partition("-")
        return [(int(first), int(last or first))]
    if not arguments.diff:
        return None
    command = ["git", "diff", "-U0", arguments.diff, "--", str(SOURCE / module)]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", shown, re.MULTILINE)
    return [(int(at), int(at) + int(count or 1) - 1) for at, count in hunks if count != "0"]


def _run(module: str, lines: list[tuple[int, int]] | None, arguments: Any) -> dict[str, Any]:
    wish = {
        "file": str(SOURCE / module),
        "name": "penstock." + module.removesuffix(".py").replace("/", "."),
        "root": str(ROOT),
        "tests": [f"tests/{test}" for test in TESTS_OF[module]],
        "lines": lines,
        "most": arguments.max,
        "seed": arguments.seed,
        "jobs": arguments.jobs,
    }
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tools.mutants.session", json.dumps(wish)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as session:
        try:
            answer, _ = session.communicate()
        except SystemExit:
            session.terminate()  # it ends what it started; leaving this block waits for it
            raise
    if session.returncode != 0:
        return {"failed": "the session", "why": f"it ended with {session.returncode}"}
    said: dict[str, Any] = json.loads(answer)
    return said


def report(
    module: str,
    changes: list[dict[str, Any]],
    equivalents: list[Equivalent],
    *,
    whole: bool,
    show_killed: bool,
) -> dict[str, Any]:
    """Prints one module's mutants. Returns its figures."""
    reasons = {(one.function, one.change): one for one in equivalents}
    used: Counter[tuple[str, str]] = Counter()
    killed, survived, equal = [], [], []
    for one in changes:
        key = (one["function"], one["change"])
        if one["killed_by"]:
            killed.append(one)
        elif key in reasons:
            used[key] += 1
            equal.append(one)
        else:
            survived.append(one)
    counted = len(killed) + len(survived)
    rate = round(100 * len(killed) / counted, 1) if counted else 100.0
    print(
        f"{module}: {counted + len(equal)} mutants, {len(killed)} killed, {len(survived)} survived,"
        f" {len(equal)} equivalent: {rate} % killed"
    )
    for one in survived:
        unseen = "" if one["reached"] else " (no test runs this line)"
        print(f"  survived  src/penstock/{module}:{one['line']} {one['function']}:"
              f" {one['words']}{unseen}\n            {one['change']}")  # fmt: skip
    for one in equal:
        why = reasons[one["function"], one["change"]].why
        print(f"  equivalent  {module}:{one['line']} {one['change']}\n              {why}")
    for one in killed if show_killed else ():
        print(f"  killed  {module}:{one['line']} {one['change']}\n          {one['killed_by']}")
    gone = [one for key, one in reasons.items() if whole and not used[key]]
    for entry in gone:
        print(f"  an equivalent that no longer applies  {entry.function}: {entry.change}")
    return {
        "module": module,
        "mutants": counted + len(equal),
        "killed": len(killed),
        "survived": len(survived),
        "equivalent": len(equal),
        "no_longer_equivalent": len(gone),
        "killed_percent": rate,
    }


if __name__ == "__main__":
    sys.exit(main())

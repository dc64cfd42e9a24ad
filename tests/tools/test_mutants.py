"""`make mutants`: what is changed, which tests are run, and what is reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.polling import wait_until
from tools.mutants.changes import mutants_of
from tools.mutants.tests_of import ROOT, SOURCE, TESTS_OF, covered_modules


def test_every_module_whose_rules_are_held_has_its_tests_named() -> None:
    assert sorted(TESTS_OF) == covered_modules()


def test_every_test_that_is_named_is_there() -> None:
    named = {test for tests in TESTS_OF.values() for test in tests}
    assert [test for test in sorted(named) if not (ROOT / "tests" / test).is_file()] == []
    assert [module for module in TESTS_OF if not (SOURCE / module).is_file()] == []


def _changes(source: str) -> list[tuple[int, str, str]]:
    return [(one.line, one.words, one.change) for one in mutants_of(source)]


def test_what_a_guard_can_suffer() -> None:
    source = """\
def f(x, y=2):
    if x < 0 and not y:
        return 0
    return min(x, y)
"""
    head, guard = "if x < 0 and (not y): -> ", "if x <= 0 and (not y):"
    assert _changes(source) == [
        (1, "another constant", "def f(x, y=2): -> def f(x, y=3):"),
        (1, "another constant", "def f(x, y=2): -> def f(x, y=1):"),
        (2, "condition negated", head + "if not (x < 0 and (not y)):"),
        (2, "guard left out", head + "(left out)"),
        (2, "and/or swapped", head + "if x < 0 or not y:"),
        (2, "the comparison's edge", head + guard),
        (2, "`not` left out", head + "if x < 0 and (not not y):"),
        (2, "another constant", head + "if x < 1 and (not y):"),
        (3, "return left out", "return 0 -> (left out)"),
        (3, "another constant", "return 0 -> return 1"),
        (4, "min/max, any/all swapped", "return min(x, y) -> return max(x, y)"),
    ]


def test_a_change_is_compiled_without_a_trace_in_the_others() -> None:
    one, other = mutants_of("def f(x):\n    return x + 1\n")[:2]
    spaces: list[dict[str, object]] = [{}, {}, {}]
    exec(one.code("f.py"), spaces[0])
    exec(other.code("f.py"), spaces[1])
    exec(one.code("f.py"), spaces[2])
    values = [space["f"](10) for space in spaces]  # type: ignore[operator]
    assert values == [9, 10, 9]


def test_assertions_logs_and_texts_are_left_alone() -> None:
    source = '''\
"""A module of 1 or 2 things."""
def f(x):
    """At most 3."""
    assert x < 4
    log.info("%d", 5)
    raise ValueError(f"not {x + 6}")
'''
    assert _changes(source) == []


def test_of_a_long_statement_only_what_differs_is_shown() -> None:
    names = ", ".join(f"name_{number}" for number in range(60))
    source = f"def f():\n    return ({names}, 7 < 8)\n"
    (said,) = (change for _, words, change in _changes(source) if words.endswith("edge"))
    before, after = said.split(" -> ")
    assert before == "... name_55, name_56, name_57, name_58, name_59, 7 < 8)"
    assert after == "... name_55, name_56, name_57, name_58, name_59, 7 <= 8)"


RULE = """\
def fits(rows, limit):
    return rows <= limit

def left(rows, limit):
    while rows > limit:
        rows -= limit
    return rows

def price(rows, base=2):
    return base * rows

def unused(rows):
    return not rows
"""
TESTS = """\
import rule

def test_the_edge():
    assert rule.fits(3, 3)

def test_the_rest():
    assert rule.left(7, 3) == 1

def test_the_price_of_one():
    assert rule.price(1) == 2
"""


def _run_session(folder: Path, tests: str) -> dict[str, Any]:
    (folder / "rule.py").write_text(RULE)
    (folder / "test_rule.py").write_text(tests)
    wish = {
        "file": str(folder / "rule.py"),
        "name": "rule",
        "root": str(folder),
        "tests": [str(folder / "test_rule.py")],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants.session", json.dumps(wish)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_broken_rule_is_killed_by_the_test_that_holds_it_and_what_none_holds_survives(
    tmp_path: Path,
) -> None:
    said = _run_session(tmp_path, TESTS)
    edge, rest, one = (
        f"test_rule.py::test_{name}" for name in ("the_edge", "the_rest", "the_price_of_one")
    )
    assert {each["change"]: each["killed_by"] for each in said["changes"]} == {
        "return rows <= limit -> return rows < limit": edge,
        "while rows > limit: -> while not rows > limit:": rest,
        "while rows > limit: -> while rows >= limit:": None,
        "rows -= limit -> (left out)": "its limits",
        "rows -= limit -> rows += limit": "its limits",
        "def price(rows, base=2): -> def price(rows, base=3):": one,
        "def price(rows, base=2): -> def price(rows, base=1):": one,
        "return base * rows -> return base / rows": None,
        "return not rows -> return not not rows": None,
    }
    assert [each["change"] for each in said["changes"] if not each["reached"]] == [
        "return not rows -> return not not rows"
    ]


def test_tests_that_fail_without_a_change_are_told_and_prove_nothing(tmp_path: Path) -> None:
    said = _run_session(tmp_path, "def test_it():\n    assert 1 == 2\n")
    assert said["failed"] == "test_rule.py::test_it"
    assert "assert 1 == 2" in said["why"]


def test_a_module_that_is_not_there_is_named_with_those_that_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", "core/batch.py"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    first, hint = done.stderr.splitlines()
    assert first.startswith("error[unknown-module]: core/batch.py: ")
    assert "core, gateway, wire, artifacts, file_schema.py, metrics/series/sketch.py" in hint


def test_an_interruption_leaves_neither_a_process_nor_a_folder(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "tools.mutants", "core/batching/stepping.py"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    try:
        wait_until(lambda: len(_processes_with(tmp_path)) >= 3, "a mutant runs")
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=60)
    finally:
        run.kill()
        run.communicate()
    wait_until(lambda: not _processes_with(tmp_path), "every process has ended")
    assert list(tmp_path.iterdir()) == []


def _processes_with(folder: Path) -> list[str]:
    """Those that were started with this folder as TMPDIR, and their forks."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue  # not a process, or gone
    return found

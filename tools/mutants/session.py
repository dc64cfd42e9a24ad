"""Runs one module's mutants: one pytest that has collected the tests, and a fork for each mutant.

A fork shares everything that was imported, so a mutant costs its tests and little more:

1. *Baseline*: the tests run once, traced, and must pass. It shows which test reaches which line,
   and how long it takes.
2. *Swap*: in a fork the changed function's code takes the place of the original's, and the tests
   that reach the changed lines run, the quickest first, until one fails.
3. *Fresh*: what a swap cannot show (a default, a class's field, a line that runs at import) runs in
   a fork of a process that has imported nothing of ours: all tests of the module, on a fresh import
   of the changed source.

Nothing in the tree is written. A mutant that runs away is ended with its process group: by the
processor time that it takes, or, when it only waits, by the clock. What stays behind all the same
is ended and removed with the session: see `lifetime.py`.

Its argument is what `run_module` takes, as JSON; so is its answer.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from tools.mutants.changes import Mutant, mutants_of
from tools.mutants.forks import Fork, Task, run_forks
from tools.mutants.lifetime import nothing_left_behind

#: start threads when they are imported, so they are not imported before a fork
_NOT_BEFORE_A_FORK = {
    *("torch", "grpc", "openvino", "onnxruntime", "obstore", "vllm", "tokenizers")
}
_OPTIONS = ["-x", "-s", "-p", "no:cacheprovider", "--tb=short"]
#: of a property; a tenth of a minute per survivor is what more of them would cost
_EXAMPLES_MAX = 25
#: stands for the time before the first test in `Trace.tests_of_line`
_AT_IMPORT = "import"
#: what every mutant may take beside its tests, in s of the processor
_SPARE_S = 4.0
#: times a test's time in the baseline, which is traced and so several times too long already
_SLOWER = 2.0


class Trace:
    """Which test runs which line of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.test = _AT_IMPORT
        self.tests_of_line: dict[int, set[str]] = {}

    def start(self) -> None:
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._on_line if frame.f_code.co_filename == self._file else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.tests_of_line.setdefault(frame.f_lineno, set()).add(self.test)
        return self._on_line


class Watcher:
    """A pytest plugin: the same examples in every run, and the first test that fails."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.why = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        settings.register_profile(
            "mutants",
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Fewer examples: a rule that only the hundredth one shows needs a test of its own."""
        for item in items:
            owner: Any = getattr(item, "obj", None)
            owner = getattr(owner, "__func__", owner)
            for holder, name in (
                (owner, "_hypothesis_internal_use_settings"),
                (getattr(item, "cls", None), "settings"),
            ):
                given = getattr(holder, name, None)
                if isinstance(given, settings) and given.max_examples > _EXAMPLES_MAX:
                    setattr(holder, name, settings(given, max_examples=_EXAMPLES_MAX))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed, self.why = report.nodeid, report.longreprtext

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed, self.why = f"{report.nodeid} (at import)", report.longreprtext


class Collected(Watcher):
    """The pytest whose tests are collected once: the baseline and the swaps are its forks."""

    def __init__(self, file: str, mutants: Sequence[Mutant], jobs: int) -> None:
        super().__init__()
        self._file, self._mutants, self._jobs = file, mutants, jobs
        self._trace = Trace(file)
        self._seconds: dict[str, float] = {}
        self.answer: dict[str, Any] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._trace.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._trace.stop()
        self._tests = {item.nodeid: item for item in session.items}
        known = set(sys.modules)
        baseline = Fork(lambda: self._baseline(session), limit_s=1200)
        while not baseline.read():
            pass
        seen: Any = baseline.end()
        self.answer = seen or {"failed": "the tests' process", "why": "it ended at once"}
        self.answer["imported"] = sorted(known)
        if not self.answer.get("failed"):
            self._swap_all()
        return True

    def _baseline(self, session: pytest.Session) -> object:
        seconds: dict[str, float] = {}
        began = time.process_time()
        for test in self._run([item.nodeid for item in session.items], self._trace):
            now = time.process_time()
            seconds[test], began = now - began, now
        if self.failed:
            return {"failed": self.failed, "why": self.why}
        lines = {str(line): sorted(of) for line, of in self._trace.tests_of_line.items()}
        return {"seconds": seconds, "tests_of_line": lines}

    def _run(self, tests: Sequence[str], trace: Trace | None = None) -> Iterator[str]:
        """Runs tests in this order until one fails; yields each."""
        items = [self._tests[one] for one in tests]
        for item, after in zip(items, [*items[1:], None], strict=True):
            if trace is not None:
                trace.test = item.nodeid
                trace.start()
            elif item.nodeid in self._seconds:
                # The signal ends the process: a loop without an end costs a second, no more.
                limit_s = _SPARE_S / 4 + _SLOWER * self._seconds[item.nodeid]
                signal.setitimer(signal.ITIMER_PROF, limit_s)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if trace is not None:
                trace.stop()
            if self.failed:
                return
            yield item.nodeid

    def _swap_all(self) -> None:
        functions = _functions_of(self._file)
        seconds: dict[str, float] = self.answer["seconds"]
        self._seconds = seconds
        killed: dict[str, str] = {}
        fresh: list[int] = []
        unreached: list[int] = []
        tasks: list[Task] = []
        for mutant in self._mutants:
            reached = self._reached(mutant)
            function = functions.get(mutant.swappable) if mutant.swappable else None
            if mutant.swappable and not reached:
                unreached.append(mutant.number)
            elif function is None or _AT_IMPORT in reached:
                fresh.append(mutant.number)
            else:
                tests = sorted(reached, key=lambda test: (seconds[test], test))
                limit_s = _SPARE_S + _SLOWER * sum(seconds[test] for test in tests)
                tasks.append((mutant.number, self._swap(mutant, function, tests), limit_s))
        gc.collect()
        gc.freeze()
        for number, answer in run_forks(iter(tasks), self._jobs):
            if answer == "fresh":
                fresh.append(number)
            elif answer != "survived":
                killed[str(number)] = str(answer) if answer else "its limits"
        self.answer |= {"killed": killed, "fresh": fresh, "unreached": unreached}

    def _reached(self, mutant: Mutant) -> set[str]:
        of: dict[str, list[str]] = self.answer["tests_of_line"]
        lines = range(mutant.line_first, mutant.line_last + 1)
        return {test for line in lines for test in of.get(str(line), ())}

    def _swap(self, mutant: Mutant, function: FunctionType, tests: list[str]) -> Any:
        def work() -> object:
            code = _code_in(mutant.code(self._file), mutant.swappable)
            if code is None or code.co_freevars != function.__code__.co_freevars:
                return "fresh"
            function.__code__ = code
            list(self._run(tests))
            return self.failed or "survived"

        return work


def _functions_of(file: str) -> dict[tuple[str, int], FunctionType]:
    """The functions of a file that exist now, by qualified name and first line."""
    found: dict[tuple[str, int], FunctionType] = {}
    doubtful: set[tuple[str, int]] = set()
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == file:
            key = (one.__code__.co_qualname, one.__code__.co_firstlineno)
            if found.setdefault(key, one) is not one:
                doubtful.add(key)
    return {key: one for key, one in found.items() if key not in doubtful}


def _code_in(code: CodeType, key: tuple[str, int] | None) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == key:
                return constant
            inner = _code_in(constant, key)
            if inner is not None:
                return inner
    return None


class _ChangedModule(importlib.machinery.SourceFileLoader):
    """Gives one module's changed code to whoever imports it."""

    def __init__(self, name: str, file: str, code: CodeType) -> None:
        super().__init__(name, file)
        self._code = code

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        """As a finder on `sys.meta_path`."""
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)

    def exec_module(self, module: Any) -> None:
        module.__file__ = self.path
        exec(self._code, module.__dict__)  # noqa: S102 - the changed module is what this is for


def _fresh_tasks(
    file: str, name: str, arguments: list[str], mutants: Sequence[Mutant], limit_s: float
) -> Iterator[Task]:
    for mutant in mutants:

        def work(mutant: Mutant = mutant) -> object:
            changed: Any = _ChangedModule(name, file, mutant.code(file))
            sys.meta_path.insert(0, changed)
            watcher = Watcher()
            if pytest.main(arguments, plugins=[watcher]) == 0:
                return "survived"
            return watcher.failed or "import"

        yield mutant.number, work, limit_s


def run_module(
    *,
    file: str,
    name: str,
    root: str,
    tests: list[str],
    lines: list[tuple[int, int]] | None = None,
    most: int | None = None,
    seed: int = 0,
    jobs: int = 2,
) -> dict[str, Any]:
    """The mutants of one module and what became of each.

    Args:
        file: the module's source.
        name: what tests import it as.
        root: pytest's root directory.
        tests: files, or folders of them.
        lines: only mutants that touch one of these ranges.
        most: at most so many, drawn by `seed`.
        jobs: mutants at once.
    """
    mutants = mutants_of(Path(file).read_text())
    if lines is not None:
        mutants = [
            one for one in mutants if any(a <= one.line_last and one.line <= b for a, b in lines)
        ]
    if most is not None and len(mutants) > most:
        mutants = random.Random(seed).sample(mutants, most)
    arguments = [*_OPTIONS, "--rootdir", root, *tests]

    def collect() -> object:
        collected = Collected(file, mutants, jobs)
        pytest.main(arguments, plugins=[collected])
        return collected.answer or {"failed": collected.failed, "why": collected.why}

    collecting = Fork(collect, limit_s=7200)
    while not collecting.read():
        pass
    answer: Any = collecting.end()
    if answer.get("failed"):
        return {"failed": answer["failed"], "why": answer["why"]}
    ours = {"penstock", "tests", "tools", name, *(Path(test).stem for test in tests)}
    for known in answer["imported"]:
        if known.split(".")[0] not in ours | _NOT_BEFORE_A_FORK:
            _import_quietly(known)
    again = [one for one in mutants if one.number in set(answer["fresh"])]
    limit_s = 2 * _SPARE_S + _SLOWER * sum(answer["seconds"].values())
    killed: dict[str, str] = answer["killed"]
    for number, said in run_forks(_fresh_tasks(file, name, arguments, again, limit_s), jobs):
        if said != "survived":
            killed[str(number)] = str(said) if said else "its limits"
    return {
        "changes": [
            {
                "line": one.line,
                "function": one.function,
                "words": one.words,
                "change": one.change,
                "killed_by": killed.get(str(one.number)),
                "reached": one.number not in answer["unreached"],
            }
            for one in sorted(mutants, key=lambda one: one.number)
        ],
    }


def _import_quietly(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException:  # only to be quick: whoever needs it imports it again
        return


if __name__ == "__main__":
    with nothing_left_behind():
        said = run_module(**json.loads(sys.argv[1]))
    print(json.dumps(said))

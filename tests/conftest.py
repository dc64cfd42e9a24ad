"""What holds for every test: a machine's speed decides nothing, and nothing is left out unseen.

A test that skips gives its reason. With CI=true it fails, unless the reason is listed here. A
package or an environment that is missing is a fault there, for `make test` makes them.

Files that take long begin first, where xdist keeps the order (`--no-loadscope-reorder`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import re
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.kit.stories import STARTED, story, waited_in_vain
from tests.long_files import SECONDS

# Images often set it. Each process that a test starts would compile Penstock anew, for a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

#: Reasons, as regular expressions, that CI accepts, by what is missing: nothing that pip installs.
SKIPS_ALLOWED: dict[str, tuple[str, ...]] = {
    "another processor": (
        r"one core: none can be set apart",
        r"the limit is one of x86 processors",
        r".* has no VNNI",
        r"this machine runs as \w+: the checks ran so already",
        r"\w+: no more than one kind of processor can be compiled for here",
        r"this processor or kernel can't let CPUID fault .*",
    ),
    "a GPU, or none where the test is of its absence": (
        r"needs a CUDA device",
        r"a GPU is here",
        r"needs a machine without a CUDA device",
    ),
    "another kernel": (
        r"this kernel has no Landlock: .*",
        r"this kernel's Landlock is older than version 6: .*",
        r"this machine gives ports from \d+ on to outgoing connections",
        r"this machine has no IPv6: .*",
        r"this machine has no such address: .*",
    ),
    "a program of the operating system": (
        r"there is no C compiler",
        r"needs a C\+\+ compiler",
        r"there is no Chromium",
        r"curl is not here, or was built without HTTP/2",
        r"promtool \(Debian's package prometheus\) is missing",
        r"PostgreSQL's initdb and postgres are not on PATH",
        r"PostgreSQL can't run as root, and there is no other user",
        r"no other Python is installed on this machine",
        r"no container engine: .*",
    ),
    # An engine of several GB for three tests, which takes minutes to start on a processor.
    "vLLM, which `make test` does not install": (r"no environment vllm: .*",),
    "TensorFlow, 2 GB for tests of Keras and of SavedModel": (r"no environment keras: .*",),
}


def skip_allowed(reason: str) -> bool:
    allowed = (each for group in SKIPS_ALLOWED.values() for each in group)
    return any(re.fullmatch(each, reason, re.DOTALL) for each in allowed)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on a loop of its own: asyncio's, or by what its marker `loop`
    names, which takes the coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    test = functools.partial(pyfuncitem.obj, **given)
    marker = pyfuncitem.get_closest_marker("loop")
    run = marker.kwargs["by"] if marker is not None else asyncio.run
    run(test() if run is asyncio.run else test)
    return True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: -SECONDS.get(item.nodeid.partition("::")[0], 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was done of the pages of documentation, and how long each took."""
    passed = terminalreporter.stats.get("passed", [])
    told = [value for report in passed for name, value in report.user_properties if name == "page"]
    if not told:
        return
    pages = sorted((json.loads(value) for value in told), key=lambda page: -page["seconds"])
    typed = sum(page.get(kind, 0) for page in pages for kind in ("shell", "python", "terminal"))
    compared, checked = (sum(page.get(kind, 0) for page in pages) for kind in ("output", "check"))
    terminalreporter.section("pages of documentation")
    terminalreporter.line(
        f"{len(pages)} pages, {typed} blocks typed, {compared} outputs compared, {checked} checked"
    )
    for page in pages:
        terminalreporter.line(f"{page['seconds']:6.1f} s  {page['page']}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, object]:
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if report.when == "call" and report.failed and waited_in_vain(error):
        running = [one for one in STARTED if one.runs]
        report.sections += [("a server of the test", story(one)) for one in running]
    return judged(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Iterator[None]:
    """A module that skips as a whole does so while it is collected."""
    return judged((yield))


def judged(report: pytest.TestReport | pytest.CollectReport) -> object:
    """The report, failed where CI may not skip. One that is expected to fail is no skip."""
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not skip_allowed(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}\n(CI=true allows no skip for it: see tests/conftest.py)"
    return report

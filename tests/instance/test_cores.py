"""Pinned lanes have cores of their own; a core has one owner, until its process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.instance.engines.lane_threads import CoreClaims, stay_on

#: What the machine has in these tests, whatever it really has.
CORES = frozenset({0, 1, 2, 3, 4})


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Of these tests' own claims; nobody else's are in their way."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(CORES))
    return f"\0penstock-test-{os.getpid()}-core-"


def test_each_lane_gets_its_cores_from_the_last_one_down(name: str) -> None:
    assert CoreClaims(name).claim(2, 2) == (frozenset({4, 3}), frozenset({2, 1}))


def test_a_core_that_one_copy_has_is_not_given_to_another(name: str) -> None:
    first, second = CoreClaims(name), CoreClaims(name)
    assert first.claim(2, 1) == (frozenset({4}), frozenset({3}))
    assert second.claim(1, 1) == (frozenset({2}),)
    first.close()
    assert CoreClaims(name).claim(1, 1) == (frozenset({4}),)


def test_the_last_free_core_belongs_to_nobody(name: str) -> None:
    assert CoreClaims(name).claim(5, 1) == ()


def test_too_few_free_cores_are_not_held_in_vain(name: str) -> None:
    holder = CoreClaims(name)
    assert holder.claim(3, 1) != ()
    assert CoreClaims(name).claim(2, 1) == ()
    assert CoreClaims(name).claim(1, 1) == (frozenset({1}),)


def test_a_killed_process_gives_its_cores_back(name: str) -> None:
    program = (
        "import os, sys; from penstock.instance.engines.lane_threads import CoreClaims\n"
        "os.sched_getaffinity = lambda _: {0, 1, 2, 3, 4}\n"
        "claims = CoreClaims(chr(0) + sys.argv[1]); claims.claim(4, 1)\n"
        "print('claimed', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, name[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "claimed\n"
        assert CoreClaims(name).claim(1, 1) == ()
        child.kill()
        child.wait()
        assert CoreClaims(name).claim(1, 1) == (frozenset({4}),)


def test_a_thread_stays_on_its_cores_and_one_that_has_ended_is_no_error() -> None:
    core = max(os.sched_getaffinity(0))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stay_on, [core]).result()
        assert pool.submit(os.sched_getaffinity, 0).result() == {core}
        ended = threading.Thread(target=str)
        ended.start()
        ended.join()
        assert ended.native_id is not None
        stay_on([core], [ended.native_id])

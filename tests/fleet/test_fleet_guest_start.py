"""`guests.py`: what a program finds that it starts, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import guests

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE"), reason="the kernel has no policy for guests"
)

#: As a program of ours does when it starts threads that compute, and loops that wait.
SAYS = """
import json, os, sys, threading
from penstock import scheduling
scheduling.compute(); scheduling.wait_for_messages()
seen = []
def look(): scheduling.compute(); seen.append(os.sched_getscheduler(0))
thread = threading.Thread(target=look); thread.start(); thread.join()
print(json.dumps({
    "arguments": sys.argv[1:],
    "policies": [os.sched_getscheduler(0), *seen],
    "nice": os.getpriority(os.PRIO_PROCESS, 0) - int(os.environ["NICE"]),
    "cores": len(os.sched_getaffinity(0)),
    "pid": os.getpid(),
}))
"""


def started(*, cores_max: int = 0) -> dict[str, object]:
    argv = guests.command((sys.executable, "-c", SAYS, "a", "b c"), cores_max=cores_max)
    env = {**os.environ, "NICE": str(os.getpriority(os.PRIO_PROCESS, 0))}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, start_new_session=True) as one:
        assert one.stdout is not None
        found = json.loads(one.stdout.read())
        assert found.pop("pid") == one.pid  # it has become the program
    return found


def test_no_thread_chooses_another_policy() -> None:
    """The one that scheduling chooses for loops and lanes is not for guests."""
    assert started() == {
        "arguments": ["a", "b c"],
        "policies": [os.SCHED_IDLE, os.SCHED_IDLE],
        "nice": 0,
        "cores": len(os.sched_getaffinity(0)),
    }


def test_it_stays_on_as_many_cores_as_it_may() -> None:
    assert started(cores_max=1)["cores"] == 1
    assert started(cores_max=10_000)["cores"] == len(os.sched_getaffinity(0))


def test_guests_share_a_control_group_that_is_idle_as_a_whole(tmp_path: Path) -> None:
    for _ in range(2):  # the second guest finds it there
        assert guests._enter_idle_group(tmp_path)
        group = tmp_path / "penstock-guests"
        assert (group / "cpu.idle").read_text() == "1"
        assert (group / "cgroup.procs").read_text() == str(os.getpid())


def test_where_no_control_group_can_be_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "cpu").touch()
    assert not guests._enter_idle_group(tmp_path / "cpu")
    assert not guests._enter_idle_group(tmp_path / "missing")


@pytest.mark.parametrize(
    ("cgroups", "divided", "in_root"),
    [
        ("4:memory:/a\n1:cpu,cpuacct:/\n0::/a", "", True),
        ("4:memory:/\n1:cpu,cpuacct:/a\n0::/", "", False),
        ("0::/", "cpu memory", True),
        ("0::/system.slice/penstock.service", "cpuset cpu io memory pids", False),
        # Desktops: a login has a group, but none that divides processors
        ("0::/user.slice/user-1000.slice/session-3.scope", "memory pids", True),
    ],
)
def test_sessions_are_groups_of_the_scheduler_where_no_control_group_divides_processors(
    cgroups: str, divided: str, *, in_root: bool
) -> None:
    assert guests._in_root_group(cgroups, divided) == in_root


def test_the_end_of_a_guest_is_that_of_its_session() -> None:
    code = "import subprocess as s; s.Popen(['sleep', '600']); print(1, flush=True); input()"
    argv = guests.command((sys.executable, "-c", code))
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"1\n"
        guests.end(one.pid)
        assert one.wait(60) == -signal.SIGKILL
        assert one.stdout.read() == b""  # whoever else had it open has ended, too
    guests.end(one.pid)  # nothing is left: no error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a guest its priority back")
def test_a_guest_that_is_ended_is_an_ordinary_process_first() -> None:
    """Else it would wait for a core to give its memory back on."""
    argv = guests.command((sys.executable, "-c", "print(1, flush=True); input()"))
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"1\n"
        assert os.sched_getscheduler(one.pid) == os.SCHED_IDLE
        guests._be_ordinary(one.pid)
        assert os.sched_getscheduler(one.pid) == os.SCHED_OTHER
        assert "penstock-guests" not in Path(f"/proc/{one.pid}/cgroup").read_text()
        one.kill()

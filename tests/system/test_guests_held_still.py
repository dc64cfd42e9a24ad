"""Instances of transform jobs are stopped (SIGSTOP) while they start, as who needs the machine may
do: the jobs say why they wait, and end as if nothing had been."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from tests.kit.polling import wait_until
from tests.kit.processes import alive, instances_of
from tests.kit.transform import ANSWER, GOOD, TransformSite, transform_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

#: Much longer than what answers requests may stand still.
HELD_S = 15.0
LINES = 50


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformSite]:
    top = tmp_path_factory.mktemp("held")
    with transform_site(top) as made:
        made.put("in/a.csv", [GOOD] * LINES)
        yield made


def begun(site: TransformSite, job: str) -> int:
    """The instance of a new job, stopped at its first steps."""
    server = site.server.pid
    before = set(instances_of(server))
    site.begin(job, "affine", site.uri("in/a.csv"))
    [guest] = wait_until(
        lambda: set(instances_of(server)) - before, seconds=60, what=f"the instance of {job}"
    )
    os.kill(guest, signal.SIGSTOP)
    return int(guest)


def reasons_until(site: TransformSite, job: str, condition: Callable[[], bool]) -> set[str]:
    """Why it computes nothing, each time that it is looked at until then."""
    seen: set[str] = set()

    def look() -> bool:
        told = site.describe(job)["PenstockProgress"]
        assert told["Records"] == 0
        seen.add(str(told.get("Waiting", "")))
        return condition()

    wait_until(look, seconds=150, what=f"what {job} waits for")
    return seen


def completes(site: TransformSite, job: str) -> int:
    """How often an instance of it was ended for standing still."""
    ended = site.ended(job)
    assert ended["TransformJobStatus"] == "Completed", ended
    assert site.outputs(job) == {"a.csv.out": f"{ANSWER}\n" * LINES}
    folder = site.server.state_dir / "logs"
    logs = [path.read_text() for path in folder.rglob("*.log") if job in str(path)]
    assert logs
    return "".join(logs).count("was stopped by a signal (SIGSTOP) and did not go on")


def test_a_guest_that_is_held_still_for_a_while_goes_on(site: TransformSite) -> None:
    guest, since = begun(site, "held"), time.monotonic()
    seen = reasons_until(site, "held", lambda: time.monotonic() >= since + HELD_S)
    assert seen == {"instance-starting"}
    os.kill(guest, signal.SIGCONT)
    assert completes(site, "held") == 0


def test_in_the_place_of_one_that_is_held_for_good_comes_another(site: TransformSite) -> None:
    guest, since = begun(site, "lost"), time.monotonic()
    seen = reasons_until(site, "lost", lambda: not alive(guest))
    print(f"ended after {time.monotonic() - since:.1f} s; reasons: {seen}")
    assert "instance-starting" in seen
    assert "" not in seen
    assert completes(site, "lost") > 0

"""When a foreign server that is starting is asked again, and when it is given up."""

from __future__ import annotations

from penstock.core.machine.server_start import CERTAIN_S, HealthObserved, ServerStart, StartStep

NOBODY = HealthObserved()


def test_it_is_ready_once_it_says_so() -> None:
    start = ServerStart(now=0.0)
    assert start.looked(NOBODY, now=0.0) == StartStep("not-ready", pause_s=0.05)
    assert start.looked(HealthObserved(200), now=0.1) == StartStep("ready")


def test_pauses_grow_up_to_a_second() -> None:
    start = ServerStart(now=0.0)
    pauses = [start.looked(NOBODY, now=0.0).pause_s for _ in range(70)]
    assert pauses[:9] == [0.05] * 9
    assert pauses[9:19] == [0.1] * 10
    assert pauses[-1] == 1.0


def test_a_path_that_is_not_there_is_certain_after_some_seconds() -> None:
    start = ServerStart(now=0.0)
    assert start.looked(HealthObserved(404), now=2.0).reason == "not-ready"
    assert start.looked(HealthObserved(404), now=2.0 + CERTAIN_S - 0.1).reason == "not-ready"
    step = start.looked(HealthObserved(404), now=2.0 + CERTAIN_S)
    assert (step.reason, step.failed) == ("path-refused", True)


def test_a_server_that_is_not_ready_yet_is_waited_for() -> None:
    """5xx, no answer, and the 4xx that mean later: as long as the start may last."""
    for status in (500, 503, 429, None):
        start = ServerStart(now=0.0)
        for now in range(0, 500, 10):
            assert start.looked(HealthObserved(status), now=now).reason == "not-ready"


def test_a_path_that_comes_late_is_not_given_up() -> None:
    start = ServerStart(now=0.0)
    start.looked(HealthObserved(404), now=1.0)
    start.looked(HealthObserved(503), now=5.0)
    assert start.looked(HealthObserved(404), now=1.0 + CERTAIN_S).reason == "not-ready"
    assert start.looked(HealthObserved(200), now=9.0).reason == "ready"


def test_a_server_that_listens_elsewhere_is_given_up_only_if_it_is_the_one() -> None:
    metrics = HealthObserved(None, ("0.0.0.0:9100",), serves_elsewhere=False)
    start = ServerStart(now=0.0)
    assert [start.looked(metrics, now=now).reason for now in (1.0, 50.0)] == ["not-ready"] * 2
    itself = HealthObserved(None, ("0.0.0.0:8000",), serves_elsewhere=True)
    assert start.looked(itself, now=60.0).reason == "not-ready"
    assert start.looked(itself, now=60.0 + CERTAIN_S).reason == "listens-elsewhere"


def test_the_log_gets_a_line_now_and_then() -> None:
    start = ServerStart(now=0.0)
    noted = [now for now in range(200) if start.looked(NOBODY, now=now).note]
    assert noted == [5, 15, 35, 75, 135, 195]

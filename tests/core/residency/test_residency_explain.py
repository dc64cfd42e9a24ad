"""What can be asked of a host and of one model."""

from __future__ import annotations

import json

import pytest
from tests.kit.core_residency import Host, bytes_

from penstock.core.residency.actions import ResidencyStory
from penstock.core.residency.model import State


def test_a_loaded_model_is_told_whole() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 30, 2.0, prepare_s=2.0, artifact="sha256:1")
    host.loaded("a", 20, 5.0, load_s=3.0)
    host.idle("a", 5.0)
    host.bring("b", 10, 6.0)
    host.called("a", 10.0)
    host.pin("a", 11.0)
    told = host.explain("a", 20.0)
    story = told.pop("story")
    assert told == {
        "model": "a",
        "state": "loaded",
        "loaded_because": "first-call",
        "drains_because": "",
        "unloaded_because": "",
        "pinned": True,
        "busy": False,
        "waiting": 0,
        "artifact": "sha256:1",
        "footprint": {"host_bytes": 20, "accelerator_bytes": 0, "basis": "measured"},
        "load_s": 3.0,
        "prepare_s": 2.0,
        "loads": 1,
        "evictions": 0,
        "hits": 1,
        "misses": 1,
        "called_ago_s": 10.0,
        "minimum_residency_left_s": 0.0,
        "rivals": [{"model": "b", "called_ago_s": 14.0}],
        "refused_because": "",
        "refused_for_s": 0.0,
        "message": "",
    }
    assert story == [
        {"ago_s": 20.0, "what": "prepare", "why": "first-call"},
        {"ago_s": 18.0, "what": "load", "why": "first-call"},
        {"ago_s": 15.0, "what": "loaded", "why": "first-call", "cost_s": 3.0},
        {"ago_s": 9.0, "what": "pinned", "why": "asked"},
    ]
    json.dumps(host.explain("a"))


def test_without_a_moment_seconds_are_counted_from_the_last_input() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.bring("b", 10, 7.0)
    assert host.explain("a")["called_ago_s"] == 7.0
    host.began("b", 9.0)
    assert host.explain("a")["called_ago_s"] == 9.0


def test_of_rivals_the_three_that_would_go_first_are_shown() -> None:
    host = Host()
    for at, model in enumerate("abcde"):
        host.bring(model, 10, float(at))
    host.began("a", 9.0)
    rivals = [rival["model"] for rival in host.explain("e", 10.0)["rivals"]]
    assert rivals == ["b", "c", "d"]


def test_a_model_that_only_was_estimated_says_so() -> None:
    host = Host()
    host.request("a", 0.0)
    told = host.explain("a")
    assert (told["footprint"], told["state"]) == (None, "preparing")
    host.prepared("a", 30, 1.0)
    assert host.explain("a")["footprint"]["basis"] == "estimated"
    assert host.explain("a")["waiting"] == 1


def test_a_model_that_was_never_heard_of_is_unknown() -> None:
    assert Host().explain("a") == {"model": "a", "state": "unknown", "story": []}


def test_a_model_that_is_refused_for_good_has_no_end_of_it() -> None:
    host = Host()
    host.request("a", 0.0)
    host.failed("a", 1.0, "broken", permanent=True)
    told = host.explain("a", 5.0)
    assert told["refused_for_s"] is None
    assert told["message"] == "broken"
    json.dumps(told)


def test_the_state_of_a_host_is_told_whole() -> None:
    host = Host(used=5, loads_max=2)
    host.bring("a", 40, 0.0)
    host.began("a", 1.0)
    host.ask("b", 30, 2.0)
    host.ask("c", 60, 3.0)
    host.dismiss("a", 4.0)
    host.idle("a", 5.0)
    assert host.machine.snapshot() == {
        "memory": {
            "budget": {"host_bytes": 100, "accelerator_bytes": 0},
            "measured": {"host_bytes": 45, "accelerator_bytes": 0},
            "committed": {"host_bytes": 75, "accelerator_bytes": 0},
            "shared": {"host_bytes": 5, "accelerator_bytes": 0},
            "loading": {"host_bytes": 30, "accelerator_bytes": 0},
            "leaving": {"host_bytes": 40, "accelerator_bytes": 0},
        },
        "loaded": [],
        "loading": ["b"],
        "leaving": ["a"],
        "queue": ["c"],
        "waiting": {"b": 1, "c": 1},
        "known": 3,
        "loads": 1,
        "hits": 1,
        "misses": 3,
    }


def test_a_story_keeps_its_last_sixteen_events() -> None:
    story = ResidencyStory()
    for at in range(20):
        story.tell("load", f"reason-{at}", now=float(at))
    told = story.told(now=20.0)
    assert [event["why"] for event in told] == [f"reason-{at}" for at in range(4, 20)]


def test_refusals_in_a_row_for_one_reason_are_one_event() -> None:
    story = ResidencyStory()
    story.tell("loaded", "first-call", now=0.0)
    for at in range(50):
        story.tell("refused", "no-room", now=float(at), text="full")
    story.tell("refused", "not-in-time", now=60.0)
    assert story.told(now=60.0) == [
        {"ago_s": 60.0, "what": "loaded", "why": "first-call"},
        {"ago_s": 11.0, "what": "refused", "why": "no-room", "message": "full"},
        {"ago_s": 0.0, "what": "refused", "why": "not-in-time"},
    ]


def test_refusals_are_in_the_story() -> None:
    host = Host(waiting_max=1)
    host.request("a", 0.0)
    host.request("a", 1.0)
    assert [event["why"] for event in host.explain("a")["story"]] == [
        "first-call", "too-many-waiting",
    ]  # fmt: skip


def test_models_that_nobody_called_for_long_are_forgotten_and_others_are_not() -> None:
    host = Host(1000)
    host.bring("loaded", 10, 0.0)
    host.pin("pinned", 0.0)
    for at in range(4200):
        model = f"m-{at:04}"
        host.machine.request(model, now=1.0 + at)
        host.machine.abandoned(model, now=1.0 + at)
        if host.explain(model)["state"] == "preparing":
            host.machine.prepared(model, bytes_(1), now=1.0 + at, prepare_s=0.0)
    known = host.machine.snapshot()["known"]
    assert 3584 <= known <= 4096
    assert host.explain("m-0000")["state"] == "unknown"
    assert host.explain("m-4199")["state"] == "unloaded"
    assert host.machine.is_loaded("loaded")
    assert host.explain("pinned")["pinned"] is True


def test_failures_and_crashes_are_in_the_story() -> None:
    host = Host()
    host.request("a", 0.0)
    host.failed("a", 1.0, "broken")
    host.bring("b", 10, 2.0)
    host.crashed("b", 3.0)
    assert host.explain("a", 3.0)["story"][-2:] == [
        {"ago_s": 2.0, "what": "failed", "why": "load-failed", "message": "broken"},
        {"ago_s": 2.0, "what": "refused", "why": "load-failed", "message": "broken"},
    ]
    assert host.explain("b", 3.0)["story"][-1] == {
        "ago_s": 0.0, "what": "crashed", "why": "worker-died", "message": "1 in a row",
    }  # fmt: skip


def test_a_contradiction_is_found_in_every_part() -> None:
    def broken(host: Host) -> str:
        with pytest.raises(AssertionError) as caught:
            host.machine.check_invariants()
        return str(caught.value)

    host = Host()
    host.bring("a", 10, 0.0)
    host.machine._table.models["a"].state = State.DRAINING
    assert broken(host) == "a: drains without a request in flight"
    host = Host()
    host.bring("a", 10, 0.0)
    host.machine._account._charged = bytes_(11)
    assert "parts" in broken(host)
    host = Host()
    host.request("a", 0.0)
    host.machine._table.queue.clear()
    assert broken(host) == "the queue is not what waits in it"


def test_a_refusal_ends_at_its_moment() -> None:
    host = Host(failure_s=5.0)
    host.request("a", 0.0)
    host.failed("a", 1.0, "broken")
    told = host.explain("a", 5.9)
    assert (told["refused_because"], told["message"]) == ("load-failed", "broken")
    assert told["refused_for_s"] == pytest.approx(0.1)
    told = host.explain("a", 6.0)
    assert (told["refused_because"], told["message"], told["refused_for_s"]) == ("", "", 0.0)


def test_a_model_that_was_never_called_says_so() -> None:
    host = Host()
    host.wish("a", 0.0)
    assert host.explain("a")["called_ago_s"] is None


def test_rivals_are_those_who_may_go_longest_unused_first_and_last_who_stays_its_minimum() -> None:
    host = Host(residency_s_min=8.0)
    host.bring("young", 10, 5.0)
    host.bring("b", 10, 0.0)
    host.bring("a", 10, 1.0)
    host.bring("pinned", 10, 0.0)
    host.pin("pinned", 0.0)
    told = host.explain("pinned", 10.0)
    assert told["rivals"] == [
        {"model": "b", "called_ago_s": 10.0},
        {"model": "a", "called_ago_s": 9.0},
        {"model": "young", "called_ago_s": 5.0},
    ]
    assert told["minimum_residency_left_s"] == 0.0
    assert host.explain("young", 10.0)["minimum_residency_left_s"] == 3.0


def test_what_is_measured_elsewhere_is_called_measured() -> None:
    host = Host()
    host.request("a", 0.0)
    host.machine.prepared("a", bytes_(10), now=0.0, prepare_s=0.0, measured=True)
    assert host.explain("a")["footprint"]["basis"] == "measured"


# A model in a line: what a list of thousands shows of it.


def test_a_line_tells_state_pin_last_call_and_last_event() -> None:
    host = Host()
    machine = host.machine
    assert machine.brief("a", now=1.0) == {
        "state": "unknown", "pinned": False, "called_ago_s": None, "last_event": None,
    }  # fmt: skip
    host.request("a", 1.0)
    host.prepared("a", 10, 2.0)
    host.loaded("a", 10, 3.0)
    host.called("a", 4.0)
    machine.pin("a", True, now=4.0)
    brief = machine.brief("a", now=6.0)
    whole = machine.explain("a", now=6.0)
    assert brief["state"] == "loaded"
    assert brief["pinned"] is True
    assert brief["called_ago_s"] == whole["called_ago_s"]
    assert brief["last_event"] == whole["story"][-1]

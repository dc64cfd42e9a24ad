"""From a call to a loaded model: who waits, who is refused, what is counted."""

from __future__ import annotations

import pytest
from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Footprint, Load, Prepare, RefuseParked, Unload


def test_a_first_call_prepares_loads_and_is_admitted() -> None:
    host = Host()
    assert not host.machine.is_loaded("a")
    assert host.request("a", 0.0) == [Prepare("a", "first-call")]
    assert host.prepared("a", 30, 1.0, prepare_s=1.0) == [Load("a", "first-call")]
    assert not host.machine.is_loaded("a")
    assert host.loaded("a", 30, 3.0, load_s=2.0) == [Admit("a", "loaded")]
    assert host.machine.is_loaded("a")
    host.began("a", 3.0)
    assert host.idle("a", 3.1) == []
    assert host.machine.is_loaded("a")


def test_one_load_serves_all_who_wait() -> None:
    host = Host()
    assert host.request("a", 0.0) == [Prepare("a", "first-call")]
    assert host.request("a", 0.1) == []
    assert host.prepared("a", 30, 1.0) == [Load("a", "first-call")]
    assert host.request("a", 1.5) == []
    assert host.loaded("a", 30, 2.0) == [Admit("a", "loaded")]
    for _ in range(3):
        host.began("a", 2.0)
    assert host.idle("a", 2.5) == []
    told = host.explain("a")
    assert (told["misses"], told["hits"], told["loads"]) == (3, 0, 1)


def test_a_call_of_a_loaded_model_is_a_hit() -> None:
    host = Host()
    host.bring("a", 30, 0.0)
    assert host.called("a", 5.0) == []
    told = host.explain("a", 7.0)
    assert (told["misses"], told["hits"], told["called_ago_s"]) == (1, 1, 2.0)


def test_a_request_that_came_while_the_model_became_ready_goes_at_once() -> None:
    host = Host()
    host.bring("a", 30, 0.0)
    assert host.request("a", 1.0) == [Admit("a", "loaded")]
    host.began("a", 1.0)
    assert host.idle("a", 1.0) == []
    assert host.explain("a")["hits"] == 1


def test_a_model_that_nobody_waits_for_any_more_is_not_begun() -> None:
    host = Host(loads_max=1)
    host.request("a", 0.0)
    assert host.request("b", 0.1, 50.0) == []
    assert host.request("b", 0.2, 60.0) == []
    assert host.abandoned("b", 0.3, 50.0) == []
    assert host.machine.snapshot()["waiting"] == {"a": 1, "b": 1}
    assert host.abandoned("b", 0.4, 60.0) == []
    assert host.machine.snapshot()["queue"] == ["a"]
    assert host.prepared("a", 10, 1.0) == [Load("a", "first-call")]


def test_of_parked_requests_the_one_with_the_deadline_named_is_gone() -> None:
    host = Host()
    host.request("a", 0.0, 5.0)
    host.request("a", 0.0, 9.0)
    host.request("a", 0.0)
    host.abandoned("a", 1.0, 9.0)
    assert host.timer(5.0) == [
        RefuseParked("a", "not-in-time", "model a is not loaded before the deadline", 0.0, 5.0)
    ]
    assert host.deadline is None
    host.abandoned("a", 6.0)
    assert host.machine.snapshot()["waiting"] == {}


def test_abandoning_what_was_never_parked_changes_nothing() -> None:
    host = Host()
    assert host.abandoned("a", 0.0) == []
    host.bring("a", 10, 0.0)
    assert host.abandoned("a", 1.0) == []
    assert host.machine.is_loaded("a")


def test_a_model_whose_callers_left_while_it_was_prepared_is_not_loaded() -> None:
    host = Host()
    host.request("a", 0.0)
    assert host.abandoned("a", 0.5) == []
    assert host.prepared("a", 10, 1.0) == []
    assert host.explain("a")["state"] == "unloaded"


def test_a_model_whose_callers_left_while_it_loaded_stays_for_the_next() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 1.0)
    assert host.abandoned("a", 1.5) == []
    assert host.loaded("a", 10, 2.0) == []
    assert host.machine.is_loaded("a")
    assert host.explain("a")["busy"] is False


def test_no_more_than_the_limit_wait_for_one_model() -> None:
    host = Host(waiting_max=2)
    host.request("a", 0.0)
    host.request("a", 0.0)
    assert host.request("a", 0.0) == [
        RefuseParked(
            "a", "too-many-waiting", "2 requests wait for model a to be loaded", 0.0,
            newest_only=True,
        )
    ]  # fmt: skip
    assert host.machine.snapshot()["waiting"] == {"a": 2}


# deadlines


def test_who_can_not_be_served_in_time_is_told_at_once_and_a_retry_finds_the_model() -> None:
    host = Host(keep=False)
    host.request("a", 0.0)
    host.prepared("a", 30, 1.0, prepare_s=1.0)
    host.loaded("a", 30, 5.0, load_s=4.0)
    host.began("a", 5.0)
    host.idle("a", 5.0)
    host.unloaded("a", 5.0)
    assert host.request("a", 10.0, 14.9) == [
        RefuseParked(
            "a", "not-in-time",
            "loading model a is expected to take 5.0 s, and the deadline is in 4.9 s",
            5.0, newest_only=True,
        ),
        Prepare("a", "retry-expected"),
    ]  # fmt: skip
    assert host.prepared("a", 30, 11.0, prepare_s=1.0) == [Load("a", "retry-expected")]
    # A second comes in the middle of the load: three of its four seconds are to come.
    assert host.request("a", 12.0, 15.0) == []
    assert host.loaded("a", 30, 15.0, load_s=4.0) == [Admit("a", "loaded")]


@pytest.mark.parametrize(("deadline", "parks"), [(15.0, True), (14.99, False)])
def test_exactly_in_time_is_in_time(deadline: float, parks: bool) -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 30, 1.0, prepare_s=1.0)
    host.loaded("a", 30, 5.0, load_s=4.0)
    host.began("a", 5.0)
    host.idle("a", 5.0)
    host.crashed("a", 6.0)
    actions = host.request("a", 10.0, deadline)
    assert (actions == [Prepare("a", "called-again")]) is parks


def test_a_deadline_in_the_past_is_refused_whatever_is_known() -> None:
    host = Host()
    refused, prepare = host.request("a", 10.0, 10.0)
    assert isinstance(refused, RefuseParked)
    assert (refused.reason, refused.newest_only) == ("not-in-time", True)
    assert prepare == Prepare("a", "retry-expected")


def test_what_a_first_load_takes_is_told_from_the_size_once_it_is_known() -> None:
    host = Host()
    host.bring("a", 20, 0.0, load_s=2.0)  # a tenth of a second per byte
    host.request("b", 10.0, 14.0)
    host.prepared("b", 40, 11.0)
    refused = host.request("b", 11.0, 14.9)
    assert [action.reason for action in refused] == ["not-in-time"]
    assert host.request("b", 11.0, 15.0) == []


def test_a_parked_request_is_refused_when_its_deadline_can_not_be_met_any_more() -> None:
    """Not at the deadline: the caller has time left to go elsewhere."""
    host = Host(loads_max=1)
    host.bring("a", 10, 0.0, load_s=3.0)
    host.crashed("a", 1.0)
    host.request("b", 10.0)
    host.prepared("b", 10, 10.0)
    host.request("a", 10.0, 20.0)
    host.request("a", 10.0, 40.0)
    assert host.prepared("a", 10, 10.0) == []
    assert host.deadline == 17.0
    assert host.timer(16.9) == []
    assert host.timer(17.0) == [
        RefuseParked("a", "not-in-time", "model a is not loaded before the deadline", 3.0, 20.0)
    ]
    assert host.deadline == 37.0
    assert host.timer(37.0) == [
        RefuseParked("a", "not-in-time", "model a is not loaded before the deadline", 3.0)
    ]
    assert host.deadline is None
    assert host.machine.snapshot()["queue"] == ["a"], "it loads on for those who come again"
    assert host.loaded("b", 10, 38.0) == [Admit("b", "loaded"), Load("a", "retry-expected")]


def test_while_it_loads_a_deadline_ends_where_it_is() -> None:
    host = Host()
    host.request("a", 0.0, 5.0)
    host.prepared("a", 10, 0.0)
    assert host.deadline == 5.0
    assert host.timer(5.0) == [
        RefuseParked("a", "not-in-time", "model a is not loaded before the deadline", 0.0)
    ]
    assert host.loaded("a", 10, 9.0) == []
    assert host.machine.is_loaded("a")


# order and parallelism


def test_loads_and_preparations_are_bounded_each() -> None:
    host = Host(loads_max=2)
    assert host.request("a", 0.0) == [Prepare("a", "first-call")]
    assert host.request("b", 0.1) == [Prepare("b", "first-call")]
    assert host.request("c", 0.2) == []
    assert host.request("d", 0.3) == []
    assert host.prepared("a", 10, 1.0) == [Prepare("c", "first-call"), Load("a", "first-call")]
    assert host.prepared("b", 10, 1.1) == [Prepare("d", "first-call"), Load("b", "first-call")]
    assert host.prepared("c", 10, 1.2) == []
    assert host.loaded("a", 10, 2.0) == [Admit("a", "loaded"), Load("c", "first-call")]


def test_the_queue_is_by_how_long_the_first_caller_has_waited() -> None:
    host = Host(loads_max=1)
    host.request("z", 0.0)
    host.request("m", 1.0)
    host.request("a", 2.0)
    for _ in range(5):
        host.request("a", 2.0)
    assert host.prepared("z", 10, 3.0) == [Prepare("m", "first-call"), Load("z", "first-call")]
    assert host.machine.snapshot()["queue"] == ["m", "a"]


def test_callers_go_before_wishes_and_wishes_before_those_who_may_come_again() -> None:
    host = Host(loads_max=1)
    host.request("running", 0.0)
    host.request("retry", 1.0, 1.0)
    host.wish("wished", 2.0)
    host.request("called", 3.0)
    assert host.machine.snapshot()["queue"] == ["running", "called", "wished", "retry"]


def test_a_wish_that_a_caller_shares_goes_as_a_call() -> None:
    host = Host(loads_max=1)
    host.request("running", 0.0)
    host.wish("a", 1.0)
    host.request("b", 2.0)
    host.request("a", 3.0)
    assert host.machine.snapshot()["queue"] == ["running", "a", "b"]


# failures


def test_a_failed_load_is_the_answer_of_all_who_wait_and_of_those_who_come_soon() -> None:
    host = Host(failure_s=5.0)
    host.request("a", 0.0)
    host.request("a", 0.5)
    host.prepared("a", 10, 1.0)
    assert host.failed("a", 2.0) == [RefuseParked("a", "load-failed", "no weights", 5.0)]
    assert host.request("a", 6.0) == [
        RefuseParked("a", "load-failed", "no weights", 1.0, newest_only=True)
    ]
    assert host.request("a", 7.0) == [Prepare("a", "first-call")]


def test_a_failure_is_remembered_twice_as_long_each_time_up_to_a_bound() -> None:
    host = Host(failure_s=5.0, failure_s_max=12.0)
    now, waits = 0.0, []
    for _ in range(4):
        host.request("a", now)
        (refused,) = host.failed("a", now)
        assert isinstance(refused, RefuseParked)
        assert refused.retry_after_s is not None
        waits.append(refused.retry_after_s)
        now += refused.retry_after_s
    assert waits == [5.0, 10.0, 12.0, 12.0]


def test_a_load_that_works_ends_the_row_of_failures() -> None:
    host = Host(failure_s=5.0)
    host.request("a", 0.0)
    host.failed("a", 0.0)
    host.bring("a", 10, 5.0)
    host.crashed("a", 6.0)
    host.request("a", 7.0)
    assert host.failed("a", 7.0) == [RefuseParked("a", "load-failed", "no weights", 5.0)]


def test_a_permanent_failure_stays_until_the_artifact_changes() -> None:
    host = Host()
    host.request("a", 0.0)
    assert host.failed("a", 0.0, permanent=True) == [
        RefuseParked("a", "load-failed", "no weights", None)
    ]
    assert host.request("a", 1e6) == [
        RefuseParked("a", "load-failed", "no weights", None, newest_only=True)
    ]
    assert host.explain("a")["refused_because"] == "load-failed"
    host.replaced("a", 1e6)
    assert host.request("a", 1e6) == [Prepare("a", "first-call")]


def test_an_explicit_load_tries_again_whatever_failed_before() -> None:
    host = Host()
    host.request("a", 0.0)
    host.failed("a", 0.0, permanent=True)
    assert host.wish("a", 1.0) == [Prepare("a", "wished")]
    assert host.failed("a", 2.0, "still none") == [
        RefuseParked("a", "load-failed", "still none", 5.0)
    ], "who wished is told as well"


def test_a_failure_that_nobody_waits_for_is_only_remembered() -> None:
    host = Host()
    host.request("a", 0.0)
    host.abandoned("a", 0.5)
    assert host.failed("a", 1.0) == []
    assert host.request("a", 2.0)[0].reason == "load-failed"


def test_a_failure_frees_its_place_for_the_next() -> None:
    host = Host(loads_max=1)
    host.request("a", 0.0)
    host.request("b", 0.0)
    host.prepared("a", 90, 1.0)
    host.prepared("b", 90, 1.0)
    assert host.failed("a", 2.0) == [
        RefuseParked("a", "load-failed", "no weights", 5.0),
        Load("b", "first-call"),
    ]


# crashes


def test_a_crashed_model_is_loaded_again_by_the_next_call() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    assert host.crashed("a", 2.0) == []
    assert not host.machine.is_loaded("a")
    assert host.request("a", 2.0) == [Prepare("a", "called-again")]


def test_crashes_in_a_row_end_in_quarantine_and_others_go_on() -> None:
    host = Host(crashes_max=2, quarantine_s=60.0)
    host.bring("other", 10, 0.0)
    host.bring("a", 10, 0.0)
    host.crashed("a", 1.0)
    host.bring("a", 10, 2.0)
    assert host.crashed("a", 3.0) == []
    assert host.request("a", 4.0) == [
        RefuseParked("a", "quarantined", "model a crashed 2 times in a row", 59.0, newest_only=True)
    ]
    assert host.called("other", 4.0) == []
    assert host.explain("a", 4.0)["refused_because"] == "quarantined"
    # One more chance after it; one more crash, and it is back.
    host.bring("a", 10, 63.0)
    host.crashed("a", 64.0)
    assert host.request("a", 64.0)[0].reason == "quarantined"


def test_a_model_that_ran_as_long_as_a_quarantine_lasts_begins_a_new_row() -> None:
    host = Host(crashes_max=2, quarantine_s=60.0)
    host.bring("a", 10, 0.0)
    host.crashed("a", 1.0)
    host.bring("a", 10, 2.0)
    host.crashed("a", 62.0)
    assert host.request("a", 62.0) == [Prepare("a", "called-again")]


def test_a_death_while_it_loads_is_tried_again_for_those_who_wait() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0)
    assert host.crashed("a", 1.0, "SIGKILL") == [Prepare("a", "first-call")]
    assert host.crashed("a", 2.0, "SIGKILL") == [Prepare("a", "first-call")]  # what compiles it
    assert host.prepared("a", 10, 2.0) == [Load("a", "first-call")]
    assert host.crashed("a", 3.0, "SIGKILL") == [
        RefuseParked(
            "a", "quarantined", "model a died while it was loaded 3 times in a row: SIGKILL", 300.0
        )
    ]


def test_deaths_with_a_load_in_between_are_not_in_a_row() -> None:
    """Whoever kills workers at random kills one model's loads now and then."""
    host = Host(crashes_max=2)
    again = "first-call"
    for at in range(0, 100, 10):
        host.request("a", at)
        host.prepared("a", 10, at)
        assert host.crashed("a", at + 1) == [Prepare("a", again)]
        host.prepared("a", 10, at + 2)
        assert host.loaded("a", 10, at + 3) == [Admit("a", "loaded")]
        host.began("a", at + 4)
        host.idle("a", at + 5)
        host.dismiss("a", at + 6)
        host.unloaded("a", at + 7)
        again = "called-again"


def test_deaths_of_a_loaded_model_and_of_its_loads_are_two_rows() -> None:
    host = Host(crashes_max=2)
    host.bring("a", 10, 0.0)
    host.crashed("a", 1.0)
    host.request("a", 2.0)
    assert host.crashed("a", 3.0) == [Prepare("a", "called-again")]
    host.prepared("a", 10, 4.0)
    host.loaded("a", 10, 5.0)
    host.crashed("a", 6.0)
    assert host.request("a", 7.0)[0].reason == "quarantined"


def test_a_host_may_be_told_of_a_model_that_crashed_others_and_leaves_it_alone_for_so_long() -> (
    None
):
    host = Host()
    assert host.quarantined("a", 60.0, "it crashed 2 hosts", 10.0) == []
    assert host.request("a", 20.0) == [
        RefuseParked("a", "quarantined", "it crashed 2 hosts", 50.0, newest_only=True)
    ]
    assert host.explain("a", 20.0)["refused_because"] == "quarantined"
    assert [type(action) for action in host.request("b", 20.0)] == [Prepare]
    assert "quarantined" not in [action.reason for action in host.request("a", 70.0)]


def test_a_wish_of_a_schedule_ends_no_quarantine() -> None:
    """Each new host of a model that ends its host would begin with loading it again."""
    host = Host()
    host.quarantined("a", 60.0, "it crashed 2 hosts", 10.0)
    assert host.wish("a", 20.0, pardon=False) == [
        RefuseParked("a", "quarantined", "it crashed 2 hosts", 50.0)
    ]
    assert host.request("a", 21.0)[0].reason == "quarantined"
    assert host.wish("a", 70.0, pardon=False) == [Prepare("a", "wished")]


def test_quarantine_ends_with_another_artifact_or_a_wish() -> None:
    for pardon in (Host.replaced, Host.wish):
        host = Host(crashes_max=1)
        host.bring("a", 10, 0.0)
        host.crashed("a", 1.0)
        assert host.request("a", 2.0)[0].reason == "quarantined"
        pardon(host, "a", 3.0)
        assert "quarantined" not in [action.reason for action in host.request("a", 4.0)]


def test_a_model_that_dies_while_it_is_unloaded_is_gone_and_nothing_else() -> None:
    host = Host(crashes_max=1)
    host.bring("a", 60, 0.0)
    assert host.ask("b", 60, 20.0) == [Unload("a", "least-recently-used", "b")]
    assert host.crashed("a", 21.0) == [Load("b", "room-made")]
    assert host.explain("a", 21.0)["refused_because"] == ""


def test_news_of_a_model_that_is_not_here_are_only_a_look_at_memory() -> None:
    host = Host()
    host.used = bytes_(20)
    assert host.crashed("stranger", 1.0) == []
    host.sizes["stranger"] = bytes_(5)
    assert host.unloaded("stranger", 1.0) == []
    assert host.machine.snapshot()["memory"]["measured"]["host_bytes"] == 15


def test_a_report_about_a_model_that_was_not_told_to_load_is_a_bug_of_the_driver() -> None:
    host = Host()
    with pytest.raises(ValueError, match="model a is unknown"):
        host.loaded("a", 10, 0.0)
    host.bring("a", 10, 0.0)
    with pytest.raises(ValueError, match="model a is loaded"):
        host.prepared("a", 10, 0.0)
    with pytest.raises(ValueError, match="model a is loaded"):
        host.failed("a", 0.0)


def test_sizes_of_messages_are_told_in_both_dimensions() -> None:
    mib = 2**20
    host = Host(100 * mib, 50 * mib)
    (refused,) = host.ask("a", Footprint(host_bytes=10 * mib, accelerator_bytes=60 * mib), 0.0)
    assert refused == RefuseParked(
        "a",
        "larger-than-budget",
        "model a needs 10 MiB and 60 MiB of accelerator memory, and the budget is 100 MiB and "
        "50 MiB of accelerator memory, of which 0 MiB are taken without any model",
    )


def test_a_refusal_is_of_all_who_are_parked_unless_it_says_otherwise() -> None:
    refused = RefuseParked("a", "load-failed", "no weights")
    assert (refused.retry_after_s, refused.deadline_max, refused.newest_only) == (None, None, False)


def test_how_long_a_load_still_takes_is_when_to_come_again() -> None:
    host = Host(waiting_max=1)
    host.bring("a", 10, 0.0, load_s=4.0)
    host.crashed("a", 1.0)
    host.request("a", 10.0)
    host.prepared("a", 10, 11.0)
    (refused,) = host.request("a", 12.0)
    assert isinstance(refused, RefuseParked)
    assert refused.retry_after_s == 3.0


def test_a_model_that_was_taken_back_is_busy_before_the_request_begins() -> None:
    host = Host()
    host.bring("a", 60, 0.0)
    host.began("a", 1.0)
    host.dismiss("a", 2.0)
    host.idle("a", 2.0)
    host.unloaded("a", 2.0)
    host.bring("b", 60, 3.0)
    assert host.request("b", 4.0) == [Admit("b", "loaded")]
    assert host.ask("a", 60, 20.0) == []


def test_the_time_per_byte_is_learned_an_eighth_at_a_time() -> None:
    host = Host()
    host.bring("a", 10, 0.0, load_s=10.0)  # one second per byte
    host.bring("b", 10, 1.0, load_s=90.0)  # nine
    host.request("c", 200.0)
    host.prepared("c", 10, 200.0)
    assert [action.reason for action in host.request("c", 200.0, 219.9)] == ["not-in-time"]
    assert host.request("c", 200.0, 220.0) == []


def test_the_last_answer_of_a_model_that_crashed_meanwhile_changes_nothing() -> None:
    host = Host(keep=False)
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0)
    host.loaded("a", 10, 1.0)
    host.crashed("a", 2.0)
    assert host.idle("a", 2.5) == []
    assert host.explain("a")["state"] == "unloaded"

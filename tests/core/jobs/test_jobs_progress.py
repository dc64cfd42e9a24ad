"""How fast a job goes and when it will be through."""

from __future__ import annotations

from penstock.core.jobs.progress import JobPace, JobProgress, Stuck


def test_nothing_is_known_before_two_moments_were_told_of() -> None:
    progress = JobProgress(bytes_total=1000)
    assert progress.pace(now=5.0) == JobPace(None, None)
    progress.under_way((0, 0), 10, now=5.0)
    assert progress.pace(now=5.0) == JobPace(None, None)
    progress.under_way((0, 0), 20, now=7.0)
    assert progress.pace(now=7.0) == JobPace(5.0, None)  # of a record nobody knows the bytes yet


def test_what_is_left_is_bytes_at_the_bytes_that_a_record_has() -> None:
    progress = JobProgress(bytes_total=1000)
    progress.under_way((0, 0), 0, now=0.0)
    progress.done((0, 0), 50, 500, now=10.0)  # 5 records/s of 10 bytes
    assert progress.pace(now=10.0) == JobPace(5.0, 10.0)
    progress.under_way((0, 1), 25, now=15.0)
    assert (progress.records, progress.bytes_in) == (75, 750)
    assert progress.pace(now=15.0) == JobPace(5.0, 5.0)


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    """100 records/s while the machine was idle, then 10/s beside other work."""
    progress = JobProgress(bytes_total=10_000, records=1, bytes_in=1)
    for second in range(61):
        records = min(second, 30) * 100 + max(second - 30, 0) * 10
        progress.under_way((0, 0), records, now=float(second))
    assert progress.pace(now=60.0).records_per_s == 10.0


def test_a_span_that_is_done_is_not_under_way_any_more() -> None:
    progress = JobProgress(bytes_total=1000)
    progress.under_way((0, 0), 10, 1, now=0.0)
    progress.done((0, 0), 12, 120, now=1.0)
    assert (progress.records, progress.refused_under_way) == (12, 0)


def test_a_slow_job_has_an_end_too() -> None:
    """Half a record a second."""
    progress = JobProgress(bytes_total=300, records=10, bytes_in=100)
    progress.under_way((0, 0), 0, now=0.0)
    progress.under_way((0, 0), 10, now=20.0)
    assert progress.pace(now=20.0) == JobPace(0.5, 20.0)


def test_one_moment_is_no_rate_however_long_ago_it_was() -> None:
    progress = JobProgress(bytes_total=300, records=10, bytes_in=100)
    progress.under_way((0, 0), 5, now=0.0)
    assert progress.pace(now=10.0) == JobPace(None, None)


def test_the_rate_is_from_the_last_moment_before_the_window() -> None:
    """Told of every twenty seconds: two moments are always kept, and the first of them counts."""
    progress = JobProgress(bytes_total=10**6)
    for number, records in enumerate((0, 1000, 1100, 1200)):
        progress.under_way((0, 0), records, now=20.0 * number)
    # The window begins at 30; what was told at 20 says what was there by then.
    assert progress.pace(now=60.0).records_per_s == 5.0
    # It begins at 90: of the two that are left the older one is before it, too.
    assert progress.pace(now=120.0).records_per_s == 100.0 / 80.0


def test_a_job_that_stands_still_has_no_end_in_sight() -> None:
    progress = JobProgress(bytes_total=1000, records=10, bytes_in=100)
    progress.under_way((0, 0), 5, now=0.0)
    progress.under_way((0, 0), 5, now=10.0)
    assert progress.pace(now=10.0) == JobPace(0.0, None)


def test_moments_that_are_told_in_one_burst_are_one() -> None:
    progress = JobProgress(bytes_total=1000)
    progress.under_way((0, 0), 0, now=0.0)
    for part in range(1, 5):
        progress.under_way((0, 0), part, now=part / 10)
    progress.under_way((0, 0), 5, now=0.5)
    assert progress.pace(now=0.5).records_per_s == 10.0


def test_a_span_that_is_begun_anew_takes_its_records_back() -> None:
    progress = JobProgress(bytes_total=1000)
    progress.done((0, 0), 10, 100, now=0.0)
    progress.under_way((0, 1), 40, 2, now=1.0)
    assert (progress.records, progress.refused_under_way) == (50, 2)
    progress.not_done((0, 1), now=2.0)
    assert (progress.records, progress.refused_under_way) == (10, 0)
    assert progress.pace(now=2.0) == JobPace(None, None)  # what was read does not count as speed
    progress.not_done((0, 7), now=3.0)  # had told nothing yet
    progress.under_way((0, 1), 10, now=4.0)
    assert progress.pace(now=4.0).records_per_s == 5.0


def test_bytes_are_never_more_than_there_are() -> None:
    progress = JobProgress(bytes_total=100, records=1, bytes_in=50)
    progress.under_way((0, 0), 9, now=0.0)
    assert progress.bytes_in == 100


# What waits for a disk or a store: when it is tried again, and for how long.


def test_pauses_double_up_to_half_a_minute() -> None:
    stuck = Stuck()
    pauses = []
    now = 0.0
    for _ in range(9):
        due = stuck.failed("a", "no room", full=True, now=now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_day_is_what_it_is_waited_for_from_the_first_time() -> None:
    stuck = Stuck()
    stuck.failed("a", "no room", full=True, now=10.0)
    assert stuck.failed("a", "no room", full=True, now=86_409.9) == 86_410.9
    assert stuck.failed("a", "no room", full=True, now=86_410.0) is None
    assert (stuck.message, stuck.full) == ("", False)


def test_what_was_done_between_begins_anew() -> None:
    stuck = Stuck()
    stuck.failed("a", "no room", full=True, now=10.0)
    stuck.over("a")
    stuck.over("a")  # harmless
    assert stuck.failed("a", "no room", full=True, now=86_410.0) == 86_410.5


def test_it_tells_of_what_has_waited_longest_and_whether_room_is_what_is_missing() -> None:
    stuck = Stuck()
    assert (stuck.message, stuck.full) == ("", False)
    stuck.failed("a", "the store is away", full=False, now=0.0)
    stuck.failed("b", "no room", full=True, now=1.0)
    assert (stuck.message, stuck.full) == ("the store is away", True)
    stuck.over("a")
    assert (stuck.message, stuck.full) == ("no room", True)

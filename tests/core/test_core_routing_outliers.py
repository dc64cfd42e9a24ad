"""`core/routing/outliers.py`: who answers nothing while others do is left out, probed, let back."""

from __future__ import annotations

from penstock.core.routing.outliers import (
    Action,
    CopyAnswersObserved,
    Eject,
    InstanceLooks,
    Outliers,
    Probe,
    Readmit,
)


class Pool:
    """Copies 1, 2, ... and what is seen of them, looked at each quarter of a second."""

    def __init__(self, copies: int, *, by_times: bool = True) -> None:
        self.machine = Outliers(by_times=by_times)
        self.answers = dict.fromkeys(range(1, copies + 1), 0)
        self.outstanding = dict.fromkeys(self.answers, 1)
        self.missed = dict.fromkeys(self.answers, 0)
        self.silent: set[int] = set()
        self.now = 100.0
        self.look()

    def look(self, took_s_max: float = 0.0) -> list[Action]:
        seen = [
            CopyAnswersObserved(
                copy, self.outstanding[copy], count, self.missed[copy], copy in self.silent
            )
            for copy, count in self.answers.items()
        ]
        return self.machine.look(seen, took_s_max=took_s_max, now=self.now)

    def go_on(
        self, seconds: float, *answering: int, took_s: float = 0.0
    ) -> list[tuple[float, Action]]:
        """Looks on for so long, with an answer of these copies before each; what was decided,
        with the moments."""
        decided = []
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            for copy in answering:
                self.answers[copy] += 1
            decided += [(self.now, action) for action in self.look(took_s)]
        return decided


def test_a_silent_instance_is_left_out_at_once_and_all_it_has_is_taken_back() -> None:
    pool = Pool(3)
    assert pool.go_on(0.5, 2, 3) == []
    pool.silent = {1}
    assert pool.go_on(0.25, 2, 3) == [(100.75, Eject(1, "instance-silent", 105.75, begun=True))]
    assert pool.go_on(60.0, 2, 3) == []  # for as long as it is silent
    pool.silent = set()
    assert pool.go_on(0.25, 2, 3) == [(161.0, Probe(1))]
    assert pool.go_on(0.25, 1, 2, 3) == [(161.25, Readmit(1))]


def test_one_that_is_quiet_for_two_seconds_beside_quick_ones_is_left_out() -> None:
    """What it has begun stays with it: it may be computing, and then answers yet."""
    pool = Pool(2)
    assert pool.go_on(10.0, 1, 2, took_s=0.02) == []
    assert pool.go_on(2.25, 2) == [(112.25, Eject(1, "answers-nothing", 117.25, begun=False))]
    assert pool.go_on(1.0, 1, 2) == [(112.5, Readmit(1))]


def test_a_slow_model_is_not_left_out_for_being_as_slow_as_usual() -> None:
    pool = Pool(3)
    assert pool.go_on(1.0, 1, 2, 3, took_s=4.0) == []
    assert pool.go_on(12.0, 2, 3) == []
    assert pool.go_on(0.25, 2, 3) == [(113.25, Eject(1, "answers-nothing", 118.25, begun=False))]


def test_what_was_slow_ten_minutes_ago_is_not_usual_any_more() -> None:
    pool = Pool(2)
    assert pool.go_on(1.0, 1, 2, took_s=40.0) == []
    assert pool.go_on(610.0, 1, 2, took_s=0.1) == []
    assert pool.go_on(2.25, 2) == [(713.25, Eject(1, "answers-nothing", 718.25, begun=False))]


def test_where_nobody_answers_nobody_is_left_out() -> None:
    """An overloaded pool, a model that hangs on every request, a gateway that could not run."""
    pool = Pool(3)
    pool.missed = {1: 9, 2: 9, 3: 9}
    assert pool.go_on(60.0) == []
    pool.silent = {1, 2, 3}
    assert pool.go_on(60.0) == []


def test_a_copy_that_leaves_the_pool_is_no_answer_of_others() -> None:
    pool = Pool(3)
    pool.go_on(1.0, 1, 2, 3)
    assert pool.go_on(1.0) == []  # all are quiet
    del pool.answers[3]
    assert pool.go_on(20.0) == []


def test_one_slow_batch_under_overload_does_not_flap() -> None:
    """Answers of the pool take up to three seconds, of which one copy's last batch takes eight."""
    pool = Pool(4)
    assert pool.go_on(2.0, 1, 2, 3, 4, took_s=3.0) == []
    assert pool.go_on(8.0, 2, 3, 4, took_s=3.0) == []
    assert pool.go_on(8.0, 1, 2, 3, 4, took_s=8.0) == []


def test_deadlines_missed_in_a_row_weigh_more_than_mere_quiet() -> None:
    pool = Pool(2)
    pool.missed[1] = 2
    assert pool.go_on(1.5, 2) == []
    pool.missed[1], pool.outstanding[1] = 3, 0
    assert pool.go_on(0.25, 2) == [(101.75, Eject(1, "deadlines-missed", 106.75, begun=False))]


def test_a_copy_with_nothing_to_do_is_not_quiet() -> None:
    pool = Pool(2)
    pool.outstanding[1] = 0
    assert pool.go_on(60.0, 2) == []
    pool.outstanding[1] = 1
    assert pool.go_on(2.0, 2) == []


def test_a_probe_that_is_not_answered_ends_it_again_and_each_time_is_longer() -> None:
    """And the one request that it cost is taken back, begun or not."""
    pool = Pool(2)
    assert pool.go_on(30.0, 2) == [
        (102.0, Eject(1, "answers-nothing", 107.0, begun=False)),
        (107.0, Probe(1)),
        (109.25, Eject(1, "answers-nothing", 119.25, begun=True)),
        (119.25, Probe(1)),
        (121.5, Eject(1, "answers-nothing", 136.5, begun=True)),
    ]
    assert pool.machine.snapshot(1) == {"state": "out", "reason": "answers-nothing", "times": 3}
    assert pool.machine.snapshot(2) == {}


def test_no_time_out_is_longer_than_a_minute_and_being_well_makes_the_next_one_shorter() -> None:
    pool = Pool(2)
    ejected = [what for _, what in pool.go_on(900.0, 2) if isinstance(what, Eject)]
    pool.go_on(60.0, 2)
    last = ejected[-1]
    assert last.until - pool.now <= 60.0
    pool.go_on(0.25, 1, 2)
    times = int(pool.machine.snapshot(1)["times"])
    pool.go_on(30.0 * (times - 1), 1, 2)
    ((at, again),) = pool.go_on(2.25, 2)
    assert isinstance(again, Eject)
    assert again.until == at + 10.0


def test_by_times_at_most_half_go_the_longest_quiet_first() -> None:
    pool = Pool(5)
    assert pool.go_on(0.5, 1, 5, 2, 4) == []  # 3 is quiet already
    assert [what.copy for _, what in pool.go_on(3.0, 5)] == [3, 1]
    assert pool.go_on(1.0, 5) == []  # 2 and 4 stay, as many as are out


def test_silent_instances_go_first_and_all_of_them_as_long_as_one_copy_answers() -> None:
    pool = Pool(4)
    pool.silent = {2, 3, 4}
    assert [what.copy for _, what in pool.go_on(0.5, 1)] == [2, 3, 4]


def test_the_last_one_stays_whatever_is_said_of_it() -> None:
    pool = Pool(2)
    pool.silent = {1}
    assert [what for _, what in pool.go_on(0.25, 2)] == [
        Eject(1, "instance-silent", 105.25, begun=True)
    ]
    pool.silent = {1, 2}
    pool.missed[2] = 9
    assert pool.go_on(30.0) == []


def test_one_of_two_stays_when_who_answered_has_left_the_pool() -> None:
    pool = Pool(3)
    assert pool.go_on(0.5, 1, 2, 3) == []
    assert pool.go_on(0.5, 3) == []
    pool.silent = {1, 2}
    del pool.answers[3]
    assert [what.copy for _, what in pool.go_on(5.0)] == [1]


def test_of_three_by_times_one_goes_and_of_four_two() -> None:
    three, four = Pool(3), Pool(4)
    assert [what.copy for _, what in three.go_on(3.0, 3)] == [1]
    assert [what.copy for _, what in four.go_on(3.0, 4)] == [1, 2]


def test_deadlines_are_missed_for_a_second_at_least_and_for_longer_where_answers_take_long() -> (
    None
):
    quick, slow = Pool(2), Pool(2)
    quick.missed[1] = slow.missed[1] = 9
    quick.go_on(0.25, 1, 2, took_s=0.1)
    slow.go_on(0.25, 1, 2, took_s=2.0)
    assert [at for at, _ in quick.go_on(1.5, 2)] == [101.5]
    assert [at for at, _ in slow.go_on(3.5, 2)] == [103.5]


def test_looks_a_second_apart_say_nothing_of_what_was_between() -> None:
    pool = Pool(2)
    assert pool.go_on(1.75, 2) == []
    pool.now += 0.75
    assert pool.go_on(2.0, 2) == []


def test_one_that_is_let_back_alone_is_looked_at_anew_when_others_come() -> None:
    pool = Pool(2)
    pool.go_on(1.75, 2)
    gone = pool.answers.pop(2)
    assert pool.go_on(0.25) == []
    pool.answers[2] = gone
    assert pool.go_on(2.0, 2) == []


def test_one_that_is_left_out_is_let_back_when_the_others_are_gone() -> None:
    pool = Pool(2)
    pool.silent = {1}
    assert len(pool.go_on(0.25, 2)) == 1
    del pool.answers[2]
    assert pool.go_on(0.5) == [(100.5, Readmit(1, "only-copy"))]


def test_copies_that_load_what_they_are_asked_for_are_judged_by_silence_alone() -> None:
    pool = Pool(2, by_times=False)
    pool.missed[1] = 9
    assert pool.go_on(60.0, 2) == []
    pool.silent = {1}
    assert [what.reason for _, what in pool.go_on(0.25, 2)] == ["instance-silent"]


def test_after_a_pause_in_looking_what_was_seen_before_does_not_count() -> None:
    """Nothing was in flight for a while, or the gateway itself stood still."""
    pool = Pool(2)
    assert pool.go_on(1.5, 2) == []
    pool.now += 30.0
    assert pool.go_on(2.0, 2) == []
    assert pool.go_on(0.25, 2) == [(133.75, Eject(1, "answers-nothing", 138.75, begun=False))]


def test_a_copy_that_died_comes_back_as_another() -> None:
    pool = Pool(2)
    assert len(pool.go_on(2.25, 2)) == 1
    pool.machine.forget(1)
    assert pool.go_on(0.25, 2) == []
    assert pool.machine.snapshot(1) == {}


def test_an_instance_is_asked_once_it_says_nothing_and_is_silent_four_looks_later() -> None:
    looks = InstanceLooks(heard=7)
    assert not looks.look(heard=8, waits=True)
    assert looks.look(heard=8, waits=True)
    assert [looks.look(heard=8, waits=True) for _ in range(3)] == [False] * 3
    assert not looks.silent
    assert looks.look(heard=8, waits=True)  # and asked again
    assert looks.silent
    assert not looks.look(heard=9, waits=True)
    assert not looks.silent


def test_an_instance_of_which_nothing_is_expected_is_not_asked() -> None:
    looks = InstanceLooks(heard=0)
    assert not any(looks.look(heard=0, waits=False) for _ in range(10))
    assert not looks.silent

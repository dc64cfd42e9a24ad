"""`core/rollout/machine.py` as literal timelines: a policy, what is seen, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.alarms.spec import ALARM, INSUFFICIENT_DATA, OK
from penstock.core.rollout.agreement import (
    AS_GOOD,
    UNDECIDED,
    WORSE,
    AgreementSpec,
    AgreementVerdict,
)
from penstock.core.rollout.machine import RolloutStep, decide
from penstock.core.rollout.policy import (
    ABORT,
    BAKING,
    CANARY,
    CAPACITY_PERCENT,
    CREATING,
    INSTANCE_COUNT,
    LINEAR,
    PAUSE,
    PROMOTE,
    ROLLING,
    ROLLING_BACK,
    TERMINATING,
    RolloutCapacity,
    RolloutPolicy,
    RolloutProgress,
    RolloutSize,
    rollout_capacity,
)

TENTH = RolloutSize(kind=CAPACITY_PERCENT, value=10)
POLICY = RolloutPolicy(
    kind=CANARY, size=TENTH, wait_s=60.0, termination_wait_s=30.0, execution_s_max=600.0,
    alarms=("errors", "latency"),
)  # fmt: skip


def step_of(
    policy: RolloutPolicy,
    progress: RolloutProgress | None,
    wall: float,
    *,
    ready: bool = True,
    old_ready: bool = True,
    failure: str = "",
    alarms: dict[str, str] | None = None,
    verdict: AgreementVerdict | None = None,
) -> RolloutStep:
    return decide(
        policy, progress, instances=4, ready=ready, old_ready=old_ready, failure=failure,
        alarms=alarms or {}, wall=wall, verdict=verdict,
    )  # fmt: skip


def progress_of(stage: str, *, since: float, step: int = 0, share: float = 0.0) -> RolloutProgress:
    return RolloutProgress(stage=stage, began=1000.0, since=since, step=step, share=share)


def test_a_canary_bakes_twice_and_keeps_the_old_generation_for_a_while() -> None:
    created = progress_of(CREATING, since=1000.0)
    assert step_of(POLICY, None, 1000.0, ready=False) == RolloutStep(
        progress=created, reason="rollout-begins", next_deadline=1600.0
    )
    assert step_of(POLICY, created, 1040.0, ready=False) == RolloutStep(
        progress=created, next_deadline=1600.0
    )
    canary = progress_of(BAKING, since=1050.0, step=1, share=0.1)
    assert step_of(POLICY, created, 1050.0) == RolloutStep(
        progress=canary, reason="generation-ready", next_deadline=1110.0
    )
    assert step_of(POLICY, canary, 1109.9) == RolloutStep(progress=canary, next_deadline=1110.0)
    whole = progress_of(BAKING, since=1110.0, step=2, share=1.0)
    assert step_of(POLICY, canary, 1110.0) == RolloutStep(
        progress=whole, reason="share-raised", next_deadline=1170.0
    )
    over = progress_of(TERMINATING, since=1170.0, step=2, share=1.0)
    assert step_of(POLICY, whole, 1170.0) == RolloutStep(
        progress=over, reason="baked", next_deadline=1200.0
    )
    assert step_of(POLICY, over, 1200.0) == RolloutStep(
        progress=over, complete=True, reason="terminated"
    )


def test_linear_steps_are_even_and_end_at_all_of_it() -> None:
    tenths = [each / 10 for each in range(1, 11)]
    assert list(RolloutPolicy(kind=LINEAR, size=TENTH).shares(7)) == pytest.approx(tenths)
    third = RolloutSize(kind=INSTANCE_COUNT, value=1)
    assert list(RolloutPolicy(kind=LINEAR, size=third).shares(3)) == pytest.approx(
        [1 / 3, 2 / 3, 1]
    )
    forty = RolloutSize(kind=CAPACITY_PERCENT, value=40)
    assert list(RolloutPolicy(kind=LINEAR, size=forty).shares(5)) == pytest.approx([0.4, 0.8, 1.0])


@pytest.mark.parametrize(
    ("percent", "steps"),
    [
        (33, [0.33, 0.66, 1.0]),
        (49, [0.49, 1.0]),
        (30, [0.3, 0.6, 0.9, 1.0]),
        (50, [0.5, 1.0]),
        (11, [0.11, 0.22, 0.33, 0.44, 0.55, 0.66, 0.77, 0.88, 1.0]),
    ],
)
def test_less_than_a_tenth_of_a_step_is_no_step_of_its_own(
    percent: int, steps: list[float]
) -> None:
    size = RolloutSize(kind=CAPACITY_PERCENT, value=percent)
    assert list(RolloutPolicy(kind=LINEAR, size=size).shares(3)) == pytest.approx(steps)


@pytest.mark.parametrize(
    ("percent", "instances", "batches"),
    [
        (33, 3, [1, 2, 3]),
        (33, 100, [33, 66, 99, 100]),
        (40, 3, [1, 2, 3]),
        (50, 3, [1, 2, 3]),
        (50, 5, [2, 4, 5]),
        (5, 4, [1, 2, 3, 4]),
        (30, 6, [2, 4, 6]),
        (50, 1, [1]),
    ],
)
def test_batches_are_whole_instances(percent: int, instances: int, batches: list[int]) -> None:
    """33 percent of three is one, as in AWS's sample; half an instance is none."""
    size = RolloutSize(kind=CAPACITY_PERCENT, value=percent)
    shares = list(RolloutPolicy(kind=ROLLING, size=size).shares(instances))
    assert [share * instances for share in shares] == pytest.approx(batches)


def test_a_share_is_of_the_instances_or_in_percent() -> None:
    two = RolloutSize(kind=INSTANCE_COUNT, value=2)
    assert list(RolloutPolicy(kind=CANARY, size=two).shares(8)) == [0.25, 1.0]
    assert list(RolloutPolicy(kind=CANARY, size=two).shares(1)) == [1.0]
    assert list(RolloutPolicy().shares(8)) == [1.0]


def test_without_waits_it_is_over_as_soon_as_it_is_ready() -> None:
    done = step_of(RolloutPolicy(), None, 1000.0)
    assert (done.complete, done.reason) == (True, "generation-ready")
    # Each part of a canary is seen, however short its time.
    canary = step_of(RolloutPolicy(kind=CANARY, size=TENTH), None, 1000.0)
    assert (canary.complete, canary.progress.share, canary.next_deadline) == (False, 0.1, None)
    end = step_of(RolloutPolicy(kind=CANARY, size=TENTH), canary.progress, 1000.0)
    assert (end.complete, end.progress.share) == (True, 1.0)


def test_a_bake_of_less_than_a_second_is_a_bake() -> None:
    whole = step_of(RolloutPolicy(wait_s=0.5), None, 1000.0)
    assert (whole.complete, whole.next_deadline) == (False, 1000.5)


def test_the_old_generation_stays_until_the_new_one_is_whole_again() -> None:
    """Both start again after a restart, and the old one may be ready first."""
    over = progress_of(TERMINATING, since=1170.0, step=2, share=1.0)
    assert step_of(POLICY, over, 1250.0, ready=False) == RolloutStep(progress=over)
    assert step_of(POLICY, over, 1250.0).complete


@pytest.mark.parametrize("step", [1, 2])
def test_an_alarm_sends_it_back_while_it_bakes(step: int) -> None:
    baking = progress_of(BAKING, since=1050.0, step=step, share=0.1 if step == 1 else 1.0)
    seen = step_of(POLICY, baking, 1051.0, alarms={"errors": OK, "latency": ALARM})
    assert (seen.roll_back, seen.reason) == ("in ALARM: latency", "alarm")
    # Its last second counts.
    late = step_of(POLICY, baking, 1110.0, alarms={"errors": ALARM, "latency": ALARM})
    assert late.roll_back == "in ALARM: errors, latency"


@pytest.mark.parametrize("state", [OK, INSUFFICIENT_DATA])
def test_an_alarm_that_does_not_ring_sends_nothing_back(state: str) -> None:
    baking = progress_of(BAKING, since=1050.0, step=1, share=0.1)
    for alarms in ({"errors": state}, {}, {"another": ALARM}):
        assert not step_of(POLICY, baking, 1051.0, alarms=alarms).roll_back


@pytest.mark.parametrize("ready", [True, False])
def test_an_alarm_that_becomes_quiet_while_the_old_generation_ends_is_no_step(
    ready: bool,
) -> None:
    over = progress_of(TERMINATING, since=1170.0, step=2, share=1.0)
    over = replace(over, rang=("errors",))
    assert step_of(POLICY, over, 1180.0, ready=ready).progress == over


def test_an_alarm_that_rang_before_it_had_traffic_counts_once_it_has_been_quiet() -> None:
    """What it says is of the old generation, which the update may be to mend."""
    created = progress_of(CREATING, since=1000.0)
    rings = {"errors": ALARM, "latency": OK}
    begun = step_of(POLICY, created, 1050.0, alarms=rings)
    assert (begun.progress.share, begun.progress.rang) == (0.1, ("errors",))
    baking = begun.progress
    assert step_of(POLICY, baking, 1051.0, alarms=rings) == RolloutStep(
        progress=baking, next_deadline=1110.0
    )
    other = step_of(POLICY, baking, 1051.0, alarms={"errors": ALARM, "latency": ALARM})
    assert other.roll_back == "in ALARM: latency"
    quiet = step_of(POLICY, baking, 1052.0, alarms={"errors": OK})
    assert (quiet.progress, quiet.reason) == (replace(baking, rang=()), "alarms-quiet")
    again = step_of(POLICY, quiet.progress, 1053.0, alarms=rings)
    assert again.roll_back == "in ALARM: errors"
    whole = step_of(POLICY, baking, 1110.0, alarms=rings)
    assert (whole.progress.share, whole.progress.rang) == (1.0, ("errors",))


def test_alarms_are_watched_while_it_bakes_and_at_no_other_time() -> None:
    created = progress_of(CREATING, since=1000.0)
    over = progress_of(TERMINATING, since=1170.0, step=2, share=1.0)
    for progress in (None, created, over):
        assert not step_of(
            POLICY, progress, 1171.0, ready=False, alarms={"errors": ALARM}
        ).roll_back


def test_it_goes_back_when_it_takes_too_long_and_not_once_it_has_baked() -> None:
    created = progress_of(CREATING, since=1000.0)
    assert not step_of(POLICY, created, 1599.9, ready=False).roll_back
    late = step_of(POLICY, created, 1600.0, ready=False)
    assert (late.roll_back, late.reason) == ("not done within 600 s", "timeout")
    over = progress_of(TERMINATING, since=1590.0, step=2, share=1.0)
    assert not step_of(POLICY, over, 1601.0).roll_back
    unlimited = replace(POLICY, execution_s_max=0.0)
    assert not step_of(unlimited, created, 1e9, ready=False).roll_back


def test_the_share_grows_only_while_every_instance_is_ready() -> None:
    canary = progress_of(BAKING, since=1050.0, step=1, share=0.1)
    waits = step_of(POLICY, canary, 1150.0, ready=False)
    assert (waits.progress, waits.complete) == (canary, False)
    assert step_of(POLICY, canary, 1150.0).progress.share == 1.0


@pytest.mark.parametrize(("stage", "step", "share"), [(CREATING, 0, 0.0), (BAKING, 1, 0.1)])
def test_a_new_generation_that_fails_goes_back_at_once(stage: str, step: int, share: float) -> None:
    """The old one is whole."""
    progress = progress_of(stage, since=1050.0, step=step, share=share)
    seen = step_of(POLICY, progress, 1051.0, ready=False, failure="no weights")
    assert (seen.roll_back, seen.reason) == ("no weights", "generation-failed")


HALF = RolloutSize(kind=INSTANCE_COUNT, value=2)
IN_BATCHES = RolloutPolicy(kind=ROLLING, size=HALF, wait_s=60.0, alarms=("errors",))


def parts(policy: RolloutPolicy, progress: RolloutProgress | None) -> tuple[float, float]:
    found: RolloutCapacity = rollout_capacity(policy, progress, 4)
    return found.new, found.old


def test_batches_take_over_one_after_the_other() -> None:
    """Four instances, two at a time: never fewer than four, never more than six."""
    began = step_of(IN_BATCHES, None, 1000.0)
    assert (began.progress, began.reason) == (progress_of(CREATING, since=1000.0), "rollout-begins")
    assert parts(IN_BATCHES, began.progress) == (0.5, 1.0)
    first = step_of(IN_BATCHES, began.progress, 1020.0)
    assert first.progress == progress_of(BAKING, since=1020.0, step=1, share=0.5)
    assert parts(IN_BATCHES, first.progress) == (0.5, 1.0)
    second = step_of(IN_BATCHES, first.progress, 1080.0)
    assert (second.progress, second.reason) == (
        progress_of(CREATING, since=1080.0, step=1, share=0.5), "baked",
    )  # fmt: skip
    assert parts(IN_BATCHES, second.progress) == (1.0, 0.5)
    assert step_of(IN_BATCHES, second.progress, 1090.0, ready=False).progress == second.progress
    last = step_of(IN_BATCHES, second.progress, 1100.0)
    assert last.progress == progress_of(BAKING, since=1100.0, step=2, share=1.0)
    assert parts(IN_BATCHES, last.progress) == (1.0, 0.5)
    assert step_of(IN_BATCHES, last.progress, 1160.0).complete


@pytest.mark.parametrize(
    ("size", "way"),
    [(None, [0.0]), (RolloutSize(kind=CAPACITY_PERCENT, value=25), [0.75, 0.5, 0.25, 0.0])],
)
def test_batches_go_back_as_old_instances_are_ready_again(
    size: RolloutSize | None, way: list[float]
) -> None:
    policy = replace(IN_BATCHES, rollback_size=size)
    progress = progress_of(BAKING, since=1100.0, step=2, share=1.0)
    seen = step_of(policy, progress, 1101.0, alarms={"errors": ALARM})
    assert (seen.progress.stage, seen.progress.why) == (ROLLING_BACK, "in ALARM: errors")
    assert not seen.roll_back
    for share in way:
        new, old = parts(policy, seen.progress)
        assert (new, old) == (seen.progress.share, 1.0 - share)
        assert step_of(policy, seen.progress, 1102.0, old_ready=False).progress == seen.progress
        seen = step_of(policy, seen.progress, 1103.0, ready=False, alarms={"errors": OK})
        if share:
            assert (seen.progress.share, seen.reason) == (share, "share-lowered")
    assert (seen.roll_back, seen.reason) == ("in ALARM: errors", "rolled-back")


def test_three_batches_back_are_all_of_it() -> None:
    """A third, taken away three times, leaves what is no share."""
    one = RolloutSize(kind=INSTANCE_COUNT, value=1)
    policy = replace(IN_BATCHES, size=one, rollback_size=one)
    progress = replace(progress_of(ROLLING_BACK, since=1000.0, share=1.0), why="aborted")
    shares = []
    while not (seen := decide_for_three(policy, progress)).roll_back:
        progress = seen.progress
        shares.append(progress.share)
    assert shares == pytest.approx([2 / 3, 1 / 3])


def decide_for_three(policy: RolloutPolicy, progress: RolloutProgress) -> RolloutStep:
    return decide(
        policy, progress, instances=3, ready=True, old_ready=True, failure="", alarms={},
        wall=1000.0, verdict=None,
    )  # fmt: skip


def test_a_fleet_that_shrinks_meanwhile_goes_on_from_its_share() -> None:
    """Three batches of one instance each were done when scaling left two of four instances."""
    policy = replace(IN_BATCHES, size=RolloutSize(kind=INSTANCE_COUNT, value=1))
    created = progress_of(CREATING, since=1000.0, step=3, share=0.75)
    assert rollout_capacity(policy, created, 2) == RolloutCapacity(new=1.0, old=0.25)
    baking = progress_of(BAKING, since=1000.0, step=3, share=0.75)
    assert rollout_capacity(policy, baking, 2) == RolloutCapacity(new=0.75, old=0.5)
    last = step_of(policy, created, 1001.0)
    assert last.progress == progress_of(BAKING, since=1001.0, step=4, share=1.0)


def test_a_first_batch_that_never_got_traffic_is_simply_ended() -> None:
    created = progress_of(CREATING, since=1000.0)
    seen = step_of(IN_BATCHES, created, 1001.0, ready=False, failure="no weights")
    assert seen.roll_back == "no weights"


@pytest.mark.parametrize("kind", [CANARY, LINEAR])
def test_the_other_kinds_have_both_generations_whole(kind: str) -> None:
    policy = RolloutPolicy(kind=kind, size=HALF)
    baking = progress_of(BAKING, since=1000.0, step=1, share=0.5)
    assert [parts(policy, progress) for progress in (None, baking)] == [(1.0, 1.0)] * 2


def test_nothing_new_starts_before_the_record_says_that_batches_begin() -> None:
    assert parts(IN_BATCHES, None) == (0.0, 1.0)


def test_a_size_is_never_more_than_the_whole() -> None:
    assert RolloutSize(kind=INSTANCE_COUNT, value=9).share(4) == 1.0
    assert RolloutSize(kind=CAPACITY_PERCENT, value=150).share(4) == 1.0
    assert RolloutSize(kind=INSTANCE_COUNT, value=1).share(0) == 1.0
    going = progress_of(ROLLING_BACK, since=1000.0, step=1, share=0.2)
    half = replace(IN_BATCHES, rollback_size=HALF)
    assert parts(half, going) == (0.2, 1.0)


COMPARED = replace(POLICY, agreement=AgreementSpec())
CANARY_AT = progress_of(BAKING, since=1050.0, step=1, share=0.1)


def said(verdict: str) -> AgreementVerdict:
    return AgreementVerdict(verdict=verdict, why=f"it is {verdict}", tests=())


def test_a_generation_that_is_surely_as_good_gets_everything_at_once() -> None:
    whole = progress_of(TERMINATING, since=1055.0, step=2, share=1.0)
    assert step_of(COMPARED, CANARY_AT, 1055.0, verdict=said(AS_GOOD)) == RolloutStep(
        progress=whole, reason="agreed", why="it is as-good", next_deadline=1055.0
    )
    assert step_of(COMPARED, whole, 1055.0, verdict=said(AS_GOOD)) == RolloutStep(
        progress=whole, reason="terminated", next_deadline=1085.0
    )


def test_a_generation_that_is_surely_worse_goes_back_in_the_middle_of_a_bake() -> None:
    assert step_of(COMPARED, CANARY_AT, 1051.0, verdict=said(WORSE)) == RolloutStep(
        progress=CANARY_AT, roll_back="it is worse", reason="disagreement"
    )


def test_without_certainty_the_last_step_waits_and_time_alone_ends_it() -> None:
    for wall in (1110.0, 1599.0):
        assert step_of(COMPARED, CANARY_AT, wall, verdict=said(UNDECIDED)) == RolloutStep(
            progress=CANARY_AT, next_deadline=1600.0
        )
    assert step_of(COMPARED, CANARY_AT, 1600.0, verdict=said(UNDECIDED)).reason == "timeout"


def test_parts_below_the_whole_grow_without_certainty() -> None:
    linear = replace(COMPARED, kind=LINEAR, size=RolloutSize(kind=CAPACITY_PERCENT, value=40))
    second = progress_of(BAKING, since=1110.0, step=2, share=0.8)
    first = replace(CANARY_AT, share=0.4)
    assert step_of(linear, first, 1110.0, verdict=said(UNDECIDED)).progress == second
    assert step_of(linear, second, 1500.0, verdict=said(UNDECIDED)).progress == second


def test_in_batches_certainty_spares_the_bakes() -> None:
    rolling = replace(COMPARED, kind=ROLLING, size=RolloutSize(kind=INSTANCE_COUNT, value=2))
    half = progress_of(BAKING, since=1050.0, step=1, share=0.5)
    assert step_of(rolling, half, 1051.0, verdict=said(AS_GOOD)) == RolloutStep(
        progress=replace(half, stage=CREATING, since=1051.0), reason="baked", next_deadline=1600.0
    )
    assert step_of(rolling, half, 1200.0, verdict=said(UNDECIDED)).progress == half


def test_orders_of_an_operator() -> None:
    paused = replace(CANARY_AT, order=PAUSE)
    assert step_of(POLICY, paused, 1200.0).progress == paused
    assert step_of(POLICY, paused, 1200.0, alarms={"errors": ALARM}).reason == "alarm"
    assert step_of(POLICY, paused, 1600.0).reason == "timeout"
    promoted = step_of(POLICY, replace(CANARY_AT, order=PROMOTE), 1051.0)
    assert (promoted.reason, promoted.progress.share) == ("promoted", 1.0)
    for stage in (CREATING, BAKING):
        ordered = replace(CANARY_AT, stage=stage, order=ABORT)
        back = step_of(POLICY, ordered, 1051.0, ready=False)
        assert (back.reason, back.roll_back) == ("aborted", "an operator ordered it back")
    ends = progress_of(TERMINATING, since=1170.0, step=2, share=1.0)
    assert step_of(POLICY, replace(ends, order=ABORT), 1180.0).roll_back == "", "it is decided"

"""When a rollout moves traffic, when it is over, and when it goes back.

`decide` is a pure function of the policy, of how far the rollout is, and of what is seen. The
record keeps the progress that it returns, so a server that starts goes on where the one before was.

    creating     until every instance of the new generation is ready
    baking       each step gives it a larger share of the traffic for `wait_s`; the next step waits
                 until all its instances are ready again, if one was lost
    terminating  it has everything; the old generation is kept for `termination_wait_s`, idle

ROLLING is created and bakes batch by batch; its old instances end as new ones have baked
(`rollout_capacity`), so it terminates at once. On its way back each batch of old instances that is
ready again takes its traffic from the new ones.

A policy with an agreement (`agreement.py`) gives the new generation everything only once it is
surely as good as the old one, and then at once; surely worse sends it back. Until then the parts
below the whole grow as usual. An operator may order a pause, promotion or the way back.

Back to the old generation: an alarm that is in ALARM while it bakes, or `execution_s_max` since the
rollout began, before it has everything and has baked. An alarm without data, or one that is gone,
sends nothing back; nor does one that rang before the new generation had traffic, until it has been
quiet: what it says is of the old one, which this update may be to mend. Failures of the new
generation's own instances end it before this is asked (`core/endpoint/reconcile.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.core.alarms.spec import ALARM
from penstock.core.rollout.agreement import AS_GOOD, WORSE, AgreementVerdict
from penstock.core.rollout.policy import (
    ABORT,
    BAKING,
    CREATING,
    NO_SHARE,
    PAUSE,
    PROMOTE,
    ROLLING,
    ROLLING_BACK,
    TERMINATING,
    RolloutPolicy,
    RolloutProgress,
    rollout_capacity,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """What to do now."""

    progress: RolloutProgress  #: to be recorded, where it differs from before
    complete: bool = False  #: the new generation is the only one from now on
    roll_back: str = ""  #: why all traffic goes back; "" = it does not
    #: rollout-begins | generation-ready | share-raised | baked | terminated | agreed | promoted |
    #: alarm | timeout | disagreement | aborted | generation-failed | share-lowered | rolled-back |
    #: alarms-quiet
    reason: str = ""
    why: str = ""  #: of the reason, in words with numbers
    next_deadline: float | None = None  #: wall clock s at which to decide again without any news


def decide(
    policy: RolloutPolicy,
    progress: RolloutProgress | None,
    *,
    instances: int,
    ready: bool,
    old_ready: bool,
    failure: str,
    alarms: Mapping[str, str],
    wall: float,
    verdict: AgreementVerdict | None = None,
) -> RolloutStep:
    """
    Args:
        policy: of the rollout.
        progress: as recorded; None: it has not begun.
        instances: of the new generation, when it is whole.
        ready: all are that it should have now (`rollout_capacity`).
        old_ready: the same of the old generation.
        failure: why the new generation can't be; "" = nothing speaks against it.
        alarms: states of alarms by name; those that do not exist are missing.
        wall: s.
        verdict: of the policy's agreement; None: answers are not compared.
    """
    if progress is not None and progress.stage == ROLLING_BACK:
        return _going_back(policy, progress, instances, old_ready)
    step = _forward(
        policy, progress, instances=instances, ready=ready, failure=failure, alarms=alarms,
        wall=wall, verdict=verdict,
    )  # fmt: skip
    if step.roll_back and policy.kind == ROLLING and step.progress.share > 0:
        back = replace(step.progress, stage=ROLLING_BACK, since=wall, why=step.roll_back)
        return RolloutStep(progress=back, reason=step.reason)
    return step


def ringing(names: Iterable[str], states: Mapping[str, str]) -> str:
    """Which of the alarms send a new version back, in words; "" = none. One without data, or that
    is gone, does not."""
    found = in_alarm(names, states)
    return f"in ALARM: {', '.join(found)}" if found else ""


def in_alarm(names: Iterable[str], states: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the alarms that are in ALARM."""
    return tuple(name for name in names if states.get(name) == ALARM)


def _going_back(
    policy: RolloutPolicy, progress: RolloutProgress, instances: int, old_ready: bool
) -> RolloutStep:
    if not old_ready:
        return RolloutStep(progress=progress)
    share = 1.0 - rollout_capacity(policy, progress, instances).old
    if share <= NO_SHARE:
        return RolloutStep(progress=progress, roll_back=progress.why, reason="rolled-back")
    return RolloutStep(progress=replace(progress, share=share), reason="share-lowered")


def _forward(
    policy: RolloutPolicy,
    progress: RolloutProgress | None,
    *,
    instances: int,
    ready: bool,
    failure: str,
    alarms: Mapping[str, str],
    wall: float,
    verdict: AgreementVerdict | None,
) -> RolloutStep:
    if progress is None:
        progress = RolloutProgress(stage=CREATING, began=wall, since=wall)
        if not ready or policy.kind == ROLLING:
            return _waiting(policy, progress, wall, "rollout-begins")
    if failure:
        return _back(progress, "generation-failed", failure)
    if progress.stage == TERMINATING:  # alarms do not matter any more
        if not ready:  # after a restart: what ends must be able to do without the old one
            return RolloutStep(progress=progress)
        return _terminating(policy, progress, wall)
    still = in_alarm(progress.rang, alarms)
    news = "" if still == progress.rang else "alarms-quiet"
    progress = replace(progress, rang=still)
    coming = policy.share_after(progress.share, instances)
    if progress.order == ABORT:
        return _back(progress, "aborted", "an operator ordered it back")
    if progress.stage == BAKING:
        if verdict is not None and verdict.verdict == WORSE:
            return _back(progress, "disagreement", verdict.why)
        heard = [name for name in policy.alarms if name not in progress.rang]
        if rings := ringing(heard, alarms):
            return _back(progress, "alarm", rings)
    end = progress.began + policy.execution_s_max
    if policy.execution_s_max and wall >= end:
        return _back(progress, "timeout", f"not done within {policy.execution_s_max:g} s")
    if not ready or progress.order == PAUSE:
        return _waiting(policy, progress, wall, news)
    if progress.stage == CREATING:
        if not progress.step:
            progress = replace(progress, rang=in_alarm(policy.alarms, alarms))
        return _raised(policy, progress, coming, wall, "generation-ready")
    agreed = verdict is not None and verdict.verdict == AS_GOOD
    if agreed or progress.order == PROMOTE:
        if policy.kind != ROLLING:  # recorded with its reason before it is complete
            steps = len(tuple(policy.shares(instances)))
            whole = replace(progress, stage=TERMINATING, since=wall, step=steps, share=1.0)
            reason = "promoted" if progress.order == PROMOTE else "agreed"
            why = verdict.why if verdict is not None else ""
            return RolloutStep(progress=whole, reason=reason, why=why, next_deadline=wall)
    elif wall < progress.since + policy.wait_s:
        return _waiting(policy, progress, wall, news)
    elif policy.agreement is not None and progress.share < coming == 1.0:
        return _waiting(policy, progress, wall, news)  # until it is sure
    if progress.share < 1.0 and policy.kind == ROLLING:
        return _waiting(policy, replace(progress, stage=CREATING, since=wall), wall, "baked")
    if progress.share < 1.0:
        return _raised(policy, progress, coming, wall, "share-raised")
    ended = replace(progress, stage=TERMINATING, since=wall)
    return replace(_terminating(policy, ended, wall), reason="baked")


def _raised(
    policy: RolloutPolicy,
    progress: RolloutProgress,
    share: float,
    wall: float,
    reason: str,
) -> RolloutStep:
    raised = replace(progress, stage=BAKING, since=wall, step=progress.step + 1, share=share)
    if policy.wait_s > 0 or share < 1.0 or policy.kind == ROLLING:
        return _waiting(policy, raised, wall, reason)
    return _terminating(policy, replace(raised, stage=TERMINATING), wall, reason)


def _terminating(
    policy: RolloutPolicy, progress: RolloutProgress, wall: float, reason: str = "terminated"
) -> RolloutStep:
    until = progress.since + policy.termination_wait_s
    if wall >= until:
        return RolloutStep(progress=progress, complete=True, reason=reason)
    return RolloutStep(progress=progress, reason=reason, next_deadline=until)


def _waiting(
    policy: RolloutPolicy, progress: RolloutProgress, wall: float, reason: str = ""
) -> RolloutStep:
    ends = [progress.began + policy.execution_s_max] if policy.execution_s_max else []
    if progress.stage == BAKING:
        ends.append(progress.since + policy.wait_s)
    to_come = [each for each in ends if each > wall]  # else it waits for instances
    return RolloutStep(progress=progress, reason=reason, next_deadline=min(to_come, default=None))


def _back(progress: RolloutProgress, reason: str, why: str) -> RolloutStep:
    return RolloutStep(progress=progress, roll_back=why, reason=reason)

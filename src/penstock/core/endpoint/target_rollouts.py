"""How another artifact takes over the name of a target model of a multi-model endpoint.

The artifacts lie side by side below the endpoint's prefix, and the hosts load whichever is called.
So there is no fleet to start and none to end: only the share of the requests moves, as
`core/rollout` says, and back at once.

A rollout moves on while its endpoint serves; while a new generation of that takes over, shares stay
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.core.deployment.deployment import ComparedRoutes, TargetRoutes
from penstock.core.deployment.endpoint_state import SetTarget
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.rollout import machine as rollout
from penstock.core.rollout.agreement import AgreementCounts, judge
from penstock.core.rollout.machine import RolloutStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDecision:
    served: ServedTarget  #: as it is from now on
    actions: tuple[SetTarget, ...] = ()  #: at most one, for when its routes are published
    step: RolloutStep | None = None  #: None: no rollout is under way


def decide(
    served: ServedTarget,
    counts: AgreementCounts | None,
    alarms: Mapping[str, str],
    *,
    wall: float,
) -> TargetDecision:
    """
    Args:
        counts: what comparisons found so far, if answers are compared.
        alarms: states of those that exist, by name.
        wall: s.
    """
    policy = served.policy
    if not served.incoming or policy is None:
        return TargetDecision(served=served)
    verdict = None
    if policy.agreement is not None:
        verdict = judge(policy.agreement, counts or AgreementCounts())
    step = rollout.decide(
        policy, served.progress, instances=1, ready=True, old_ready=True, failure="",
        alarms=alarms, wall=wall, verdict=verdict,
    )  # fmt: skip
    why = step.why
    if step.roll_back:
        why = step.roll_back
        after = replace(served, incoming="", policy=None, progress=None, why=why)
    elif step.complete:
        after = ServedTarget(target=served.target, serves=served.incoming)
    else:
        after = replace(served, progress=step.progress)
    actions = (SetTarget(after, step.reason, why),) if after != served else ()
    return TargetDecision(served=after, actions=actions, step=step)


def routes_of(served: ServedTarget) -> TargetRoutes:
    progress, policy = served.progress, served.policy
    share = progress.share if progress is not None else 0.0
    agreement = policy.agreement if policy is not None else None
    compared = None
    if agreement is not None and progress is not None and 0.0 < share < 1.0:
        compared = ComparedRoutes(rollout=progress.number, spec=agreement)
    return TargetRoutes(
        target=served.target,
        serves=served.serves,
        incoming=served.incoming if share > 0.0 else "",
        share=share,
        compared=compared,
    )

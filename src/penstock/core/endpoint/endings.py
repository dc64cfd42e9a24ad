"""How instances and copies end: those that take too long, and those that are stopped.

A copy that is alone on its instance ends with it: the end of a process frees everything, and
nothing that it had loaded can disturb what comes next. Any other copy is unloaded, and its instance
serves on. A copy that got requests is drained first, for as long as a stream may last, so that none
is cut; for a short time only where the whole endpoint is stopped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    UNLOADING,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    InstanceObserved,
    StopInstance,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest


@dataclass(frozen=True, slots=True)
class Expired:
    """What was in one phase for too long, and the observation in which it counts as ending."""

    actions: tuple[StopInstance | UnloadCopy, ...]
    observed: EndpointObserved
    next_deadline: float | None


@dataclass(frozen=True, slots=True)
class _Limit:
    """How long a phase may last, and the reason and failure of one that lasts longer."""

    duration_s: float
    reason: str
    failure: str = ""
    permanent: bool = False


def expire(
    observed: EndpointObserved, *, now: float, spec: ReconcileSpec, ending: bool = False
) -> Expired:
    """Ends what was in one phase for too long; `ending`: the whole endpoint is stopped."""
    drain_s = spec.last_drain_s if ending else spec.drain_s_max
    actions: list[StopInstance | UnloadCopy] = []
    deadline: float | None = None
    ended_instances: set[str] = set()
    ended_copies: set[int] = set()
    copies = observed.copies_by_instance()
    for one in observed.instances:
        limit = _instance_limit(one, spec)
        over, at = _is_over(limit, one.since, now)
        if over and limit is not None:
            ended_instances.add(one.instance_id)
            actions.append(
                StopInstance(one.instance_id, limit.reason, limit.failure, limit.permanent)
            )
        deadline = earliest(deadline, at)
        for copy in copies.get(one.instance_id, ()) if one.phase == RUNNING else ():
            limit = _copy_limit(copy, spec, drain_s)
            over, at = _is_over(limit, copy.since, now)
            deadline = earliest(deadline, at)
            if not over or limit is None:
                continue
            end = (limit.reason, limit.failure, limit.permanent)
            if copy.need.whole_instance:
                ended_instances.add(one.instance_id)
                actions.append(StopInstance(one.instance_id, *end))
            else:
                ended_copies.add(copy.copy)
                actions.append(UnloadCopy(one.instance_id, copy.copy, *end))
    if actions:
        observed = _without(observed, ended_instances, ended_copies)
    return Expired(tuple(actions), observed, deadline)


def retire_instance(
    one: InstanceObserved, copies: Collection[CopyObserved], reason: str
) -> list[DrainCopy | StopInstance]:
    """The next step to stop an instance and the copies on it; none while it drains."""
    if one.phase in (STOPPING, ENDING):
        return []
    if one.phase == RUNNING:
        drains = [
            DrainCopy(one.instance_id, copy.copy, reason) for copy in copies if _must_drain(copy)
        ]
        if drains or any(copy.phase == DRAINING for copy in copies):
            return [*drains]
        if any(copy.phase == DRAINED for copy in copies):
            reason = "drained"
    return [StopInstance(one.instance_id, reason)]


def retire_copy(copy: CopyObserved, reason: str) -> list[DrainCopy | UnloadCopy]:
    """The next step to remove a copy from an instance that stays; none while it drains."""
    if copy.phase in (DRAINING, UNLOADING, ENDING):
        return []
    if _must_drain(copy):
        return [DrainCopy(copy.instance_id, copy.copy, reason)]
    why = "drained" if copy.phase == DRAINED else reason
    return [UnloadCopy(copy.instance_id, copy.copy, why)]


def _must_drain(copy: CopyObserved) -> bool:
    return copy.routed and copy.phase in (READY, LOST)


def _is_over(limit: _Limit | None, since: float | None, now: float) -> tuple[bool, float | None]:
    """(over, deadline): no limit runs where the phase may last for ever, or is queued."""
    if limit is None or since is None:
        return False, None
    at = since + limit.duration_s
    return (True, None) if now >= at else (False, at)


def _instance_limit(one: InstanceObserved, spec: ReconcileSpec) -> _Limit | None:
    where = f"variant {one.variant}, instance {one.instance_id}"
    if one.phase == STARTING:
        if one.yields:  # no time limit: its fleet watches whether it makes progress
            return None
        story = f"{where} did not start within {spec.start_s_max:g} s. Look at its log."
        return _Limit(spec.start_s_max, "start-timeout", story)
    if one.phase == GONE:
        return _Limit(spec.gone_s_max, "connection-lost", f"{where} broke its connection.")
    return None


def _copy_limit(copy: CopyObserved, spec: ReconcileSpec, drain_s: float) -> _Limit | None:
    where = f"variant {copy.variant}, instance {copy.instance_id}"
    if copy.phase == LOADING:
        story = (
            f"startup timeout: {where} has not loaded its model within {copy.load_s_max:g} s."
            " Raise ContainerStartupHealthCheckTimeoutInSeconds or"
            " ModelDataDownloadTimeoutInSeconds, or look at its log."
        )
        limit_s = copy.load_s_max + spec.margin_s
        return _Limit(limit_s, "startup-timeout", story, permanent=True)
    if copy.phase == LOST:
        story = f"{where}: its model's process ended and did not come back in time."
        return _Limit(copy.load_s_max + spec.margin_s, "copy-not-back", story)
    if copy.phase == DRAINING:
        return _Limit(drain_s, "drain-timeout")
    return None


def _without(observed: EndpointObserved, instances: set[str], copies: set[int]) -> EndpointObserved:
    return replace(
        observed,
        instances=tuple(
            replace(one, phase=ENDING) if one.instance_id in instances else one
            for one in observed.instances
        ),
        copies=tuple(
            replace(copy, phase=ENDING) if copy.copy in copies else copy for copy in observed.copies
        ),
    )

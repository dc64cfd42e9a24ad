"""Which failure ends a rollout, or a new count: one that trying again can't help, or the last of
several in one slot.

Once a generation serves, no failure is final: what dies is replaced for ever.
"""

from __future__ import annotations

from penstock.core.deployment.attempts import ReconcileSpec, is_final
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import READY, RUNNING, EndpointObserved, SlotFailure
from penstock.core.deployment.wish import raised


def of_rollout(
    target: DeploymentSpec, observed: EndpointObserved, spec: ReconcileSpec
) -> SlotFailure | None:
    """The failure that ends the rollout of a generation, the earliest if there are several."""
    fatal = [
        failure
        for failure in observed.failures
        if failure.generation == target.generation and is_final(failure, spec)
    ]
    return min(fatal, key=lambda f: (f.at, f.variant, f.component, f.ordinal), default=None)


def of_count(
    active: DeploymentSpec,
    previous: DeploymentSpec,
    observed: EndpointObserved,
    spec: ReconcileSpec,
) -> SlotFailure | None:
    """The failure that keeps a variant from its new, higher counts.

    The ledger starts every count anew with a new wish, so these failures belong to it.
    """
    serving = _serving_slots(active.generation, observed)
    higher = raised(active, previous)
    for failure in observed.failures:
        if (
            failure.generation == active.generation
            and (failure.variant, failure.component) in higher
            and (failure.variant, failure.component, failure.ordinal) not in serving
            and is_final(failure, spec)
        ):
            return failure
    return None


def _serving_slots(generation: int, observed: EndpointObserved) -> set[tuple[str, str, int]]:
    """Slots of copies (by component) and of instances that serve again."""
    ready = [
        copy for copy in observed.copies if copy.generation == generation and copy.phase == READY
    ]
    on = {copy.instance_id for copy in ready}
    serving = {(copy.variant, copy.component, copy.ordinal) for copy in ready}
    return serving | {
        (one.variant, "", one.ordinal)
        for one in observed.instances
        if one.generation == generation and one.phase == RUNNING and one.instance_id in on
    }

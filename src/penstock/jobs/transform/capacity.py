"""The instances of one transform job: they exist only while it runs, with a priority below online
work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.clock import Clock
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.hosted import HostedCopy, HostedObserved
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.jobs.capacity import FINE, SHORT, CapacityVerdict, decide, waits
from penstock.core.jobs.spec import TransformSpec

#: Prefix of its deployment's name; the names of endpoints have no slash.
_PREFIX: Final = "transform-job/"
_VARIANT: Final = "transform"
_NOTHING: Final = HostedObserved(copies=(), instances=0, coming=0, price_per_hour=0.0, failures=())


def deployment_name(job: str) -> str:
    """The name of the deployment that holds a job's instances."""
    return _PREFIX + job


def instances_max(spec: TransformSpec, plane: ControlPlane) -> int:
    """As many instances as the job asks for, but no more than there are cores: more would only
    share them."""
    return min(spec.instance_count, max(int(plane.catalogue.machine.cores), 1))


class JobCapacity:
    """The capacity of one job: `ask` for it, `look` at it, `release` it. Its cost is counted
    meanwhile."""

    def __init__(
        self,
        spec: TransformSpec,
        plane: ControlPlane,
        clock: Clock,
        *,
        instance_s: float = 0.0,
        cost: float = 0.0,
    ) -> None:
        """`instance_s` and `cost`: totals from before the server's start."""
        self._spec = spec
        self._plane = plane
        self._clock = clock
        self._name = deployment_name(spec.job)
        self._hosted = False
        self._answered = False
        self._counted_at = clock.monotonic()
        self.instance_s = instance_s
        self.cost = cost
        #: Since when instances have been missing, monotonic s; None: none is missing
        self.short_since: float | None = None

    def ask(
        self, count: int, changed: Callable[[], None], on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        """Requests `count` instances, each with a copy of the job's model."""
        variant = VariantSpec(
            name=_VARIANT,
            model=self._spec.model,
            instance_type=self._spec.instance_type,
            instance_count=count,
            guest=True,
            cores_max=self._spec.cores_max,
        )
        deployment = DeploymentSpec(
            endpoint=self._name, generation=1, config_name=self._spec.job, variants=(variant,)
        )
        self._hosted = True
        self._counted_at = self._clock.monotonic()
        self._plane.host(deployment, changed, on_event)

    def release(self) -> None:
        """Idempotent."""
        if self._hosted:
            self._hosted = False
            self._plane.unhost(self._name)
        self.short_since = None

    def look(self) -> tuple[tuple[HostedCopy, ...], CapacityVerdict]:
        """The copies that answer, and whether more can be expected; adds to the cost."""
        self.count()
        seen = self._seen()
        if not self._hosted:
            return (), CapacityVerdict(FINE)
        self._answered = self._answered or bool(seen.copies)
        verdict = self._verdict(seen)
        if verdict.outcome != SHORT:
            self.short_since = None
        elif self.short_since is None:
            self.short_since = self._clock.monotonic()
        return seen.copies, verdict

    def count(self) -> None:
        """Adds the cost since the last call; instances that are stopping still cost."""
        now = self._clock.monotonic()
        seen, passed_s = self._seen(), now - self._counted_at
        self._counted_at = now
        self.instance_s += seen.instances * passed_s
        self.cost += seen.price_per_hour * passed_s / 3600.0

    def waits(self, *, again: bool, listed: bool) -> str:
        """Why the job computes nothing now (`core/jobs/capacity.py`); empty: it computes."""
        seen = self._seen()
        return waits(
            self._verdict(seen).outcome,
            again=again,
            listed=listed,
            asked=self._hosted,
            copies=len(seen.copies),
            starting=seen.starting,
            loading=seen.coming - seen.starting,
        )

    def _verdict(self, seen: HostedObserved) -> CapacityVerdict:
        return decide(
            seen.failures, copies=len(seen.copies), coming=seen.coming, answered=self._answered
        )

    @property
    def instances(self) -> int:
        return self._seen().instances

    def _seen(self) -> HostedObserved:
        return self._plane.hosted(self._name) or _NOTHING

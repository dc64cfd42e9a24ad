"""What can be scaled: counts of variants and of inference components, in a caller's transaction.

A count may change while the endpoint is in service, or while an earlier count is still being
reached. A new generation that is rolling out is not changed: it has its own counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import Connection, update

from penstock.control.database import schema
from penstock.control.database.mapping import to_json
from penstock.control.store import components, rows
from penstock.control.store.records import COMPONENT, ENDPOINT, EndpointRecord
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import IN_SERVICE, UPDATING
from penstock.core.scaling.spec import ComponentId, VariantId


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityObserved:
    """The recorded count of one resource."""

    endpoint: str  #: the name as it was given at creation
    variant: str
    capacity: int
    scalable: bool  #: its count may be changed now
    settled: bool  #: the last spec has been reached, or was given up
    component: str = ""  #: empty: the variant itself
    failure: str = ""  #: why the last spec was given up
    #: the count can't be reached but stays desired; the copies that found room serve
    out_of_reach: bool = False


class ScalableResource(Protocol):
    """One kind of resource."""

    def find(self, db: Connection, resource: VariantId | ComponentId) -> CapacityObserved | None:
        """None if the resource does not exist, or has never served."""

    def put(self, db: Connection, resource: VariantId | ComponentId, count: int, now: float) -> str:
        """Writes the count (0 allowed) of a resource that `find` calls scalable; returns its
        endpoint."""


class Variants:
    """The instance counts of production variants that have a model."""

    def find(self, db: Connection, resource: VariantId | ComponentId) -> CapacityObserved | None:
        found = self._found(db, resource)
        if found is None:
            return None
        record, _, variant = found
        return CapacityObserved(
            endpoint=record.name,
            variant=variant.name,
            capacity=variant.instance_count,
            scalable=record.status == IN_SERVICE
            or (record.status == UPDATING and record.target is None),
            settled=record.status == IN_SERVICE,
            failure=record.failure_reason,
        )

    def put(self, db: Connection, resource: VariantId | ComponentId, count: int, now: float) -> str:
        found = self._found(db, resource)
        assert found is not None, "find says first that it is there"
        record, active, variant = found
        variants = tuple(
            replace(one, instance_count=count) if one.name == variant.name else one
            for one in active.variants
        )
        values = {"spec": to_json(replace(active, variants=variants))}
        if record.status == IN_SERVICE:  # otherwise the counts to restore are recorded already
            values["previous"] = to_json(active)
        key = record.name.lower()
        db.execute(
            update(schema.deployments)
            .where(rows.is_deployment(key, active.generation))
            .values(**values)
        )
        status = {"status": UPDATING, "failure_reason": "", "modified": now}
        rows.update_endpoint(db, key, status)
        return record.name

    def _found(
        self, db: Connection, resource: VariantId | ComponentId
    ) -> tuple[EndpointRecord, DeploymentSpec, VariantSpec] | None:
        if not isinstance(resource, VariantId):
            return None
        row = rows.find(db, ENDPOINT, resource.endpoint)
        record = None if row is None else rows.with_deployments(db, row)
        if record is None or record.active is None:
            return None
        for variant in record.active.variants:
            if variant.name.lower() == resource.variant.lower():
                return record, record.active, variant
        return None


class Components:
    """The copy counts of inference components."""

    def find(self, db: Connection, resource: VariantId | ComponentId) -> CapacityObserved | None:
        if not isinstance(resource, ComponentId):
            return None
        if rows.find(db, COMPONENT, resource.component) is None:
            return None
        record = components.record(db, resource.component)
        if record.desired.base:
            return None  # an adapter has no copies of its own: its base is scaled
        status = record.desired.status
        return CapacityObserved(
            endpoint=record.endpoint,
            variant=record.desired.variant,
            component=record.name,
            capacity=record.desired.copies,
            scalable=status in (IN_SERVICE, UPDATING),
            settled=status == IN_SERVICE,
            failure=record.failure_reason,
            out_of_reach=status == IN_SERVICE and bool(record.failure_reason),
        )

    def put(self, db: Connection, resource: VariantId | ComponentId, count: int, now: float) -> str:
        assert isinstance(resource, ComponentId), "find says first that it is there"
        return components.set_copies(db, resource.component, count, now=now).endpoint

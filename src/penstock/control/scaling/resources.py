"""What can be scaled: counts of variants and of inference components, in a caller's transaction.

A count may change while the endpoint is in service, or while an earlier count is still being
reached. A new generation that is rolling out is not changed: it has its own counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection, update

from penstock.control.database import schema
from penstock.control.database.mapping import to_json
from penstock.control.store import components, rows
from penstock.control.store.records import COMPONENT, ENDPOINT, EndpointRecord
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import IN_SERVICE, UPDATING
from penstock.core.scaling.spec import VariantId, parse


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


def find(db: Connection, resource_id: str, dimension: str) -> CapacityObserved | None:
    """None if there is no such resource, or if it has never served."""
    named = parse(resource_id, dimension)
    if isinstance(named, VariantId):
        return _variant_count(db, named)
    return _copy_count(db, named.component) if named is not None else None


def put(db: Connection, resource_id: str, dimension: str, count: int, now: float) -> str:
    """Writes the count (0 allowed) of a resource that `find` calls scalable; returns its
    endpoint."""
    named = parse(resource_id, dimension)
    if isinstance(named, VariantId):
        return _put_variant_count(db, named, count, now)
    assert named is not None, "find says first that it is there"
    return components.set_copies(db, named.component, count, now=now).endpoint


def _variant_count(db: Connection, named: VariantId) -> CapacityObserved | None:
    """The instance count of a production variant that has a model."""
    found = _variant(db, named)
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


def _put_variant_count(db: Connection, named: VariantId, count: int, now: float) -> str:
    found = _variant(db, named)
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
    rows.update_endpoint(db, key, {"status": UPDATING, "failure_reason": "", "modified": now})
    return record.name


def _variant(
    db: Connection, named: VariantId
) -> tuple[EndpointRecord, DeploymentSpec, VariantSpec] | None:
    row = rows.find(db, ENDPOINT, named.endpoint)
    record = None if row is None else rows.with_deployments(db, row)
    if record is None or record.active is None:
        return None
    for variant in record.active.variants:
        if variant.name.lower() == named.variant.lower():
            return record, record.active, variant
    return None


def _copy_count(db: Connection, component: str) -> CapacityObserved | None:
    """The copy count of an inference component."""
    if rows.find(db, COMPONENT, component) is None:
        return None
    record = components.record(db, component)
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

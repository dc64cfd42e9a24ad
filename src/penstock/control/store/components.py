"""Inference components in the store: steps inside a transaction, for the store and the autoscaler.

Each function takes an open connection, as in `rows.py`. This file says which status allows which
change; `core/endpoint` decides what follows from a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, delete, select, update

from penstock.control.database import schema
from penstock.control.database.mapping import record_of, to_json
from penstock.control.store import compared_pairs, paging, rows
from penstock.control.store.records import (
    COMPONENT,
    ENDPOINT,
    BaseUnfit,
    ComponentBusy,
    ComponentRecord,
    EndpointBusy,
    HasAdapters,
    ListedResource,
    ListQuery,
    NotFound,
    Page,
    RolloutSettled,
    UnknownVariant,
)
from penstock.control.store.rows import decode_revision, encode_revision
from penstock.core.deployment import shadow_tag
from penstock.core.deployment.capacity_spec import ComponentRevision
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    FAILED,
    IN_SERVICE,
    UPDATING,
    SetComponent,
)
from penstock.core.rollout.policy import RESUME
from penstock.metrics.item_failures import readable

_TABLE = schema.inference_components
_STILL_THERE = (CREATING, IN_SERVICE, UPDATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewComponent:
    """The members of CreateInferenceComponent."""

    endpoint: str
    variant: str
    copies: int
    revision: ComponentRevision
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentChange:
    """The members of an update; None leaves the stored value."""

    copies: int | None = None
    revision: ComponentRevision | None = None  #: the store sets its number
    request: Mapping[str, Any] | None = None


def create(
    db: Connection,
    name: str,
    wanted: NewComponent,
    *,
    arn: str,
    now: float,
    tags: Mapping[str, str] | None = None,
) -> ComponentRecord:
    """Creates a component with the status Creating.

    Raises `AlreadyExists`, also while an old one is Deleting; `NotFound` for the endpoint;
    `EndpointBusy` if that is Deleting or Failed; `UnknownVariant`; for an adapter's base `NotFound`
    and `BaseUnfit`.
    """
    endpoint = rows.endpoint(db, wanted.endpoint)
    if endpoint.status in (DELETING, FAILED):
        raise EndpointBusy(endpoint.name, endpoint.status)
    known = tuple(one.name for one in endpoint.shown.variants)
    if wanted.variant not in known:
        raise UnknownVariant(endpoint.name, wanted.variant, known)
    if wanted.revision.base:
        _require_base(db, wanted.revision.base, endpoint.name, wanted.variant)
    extra = {
        "endpoint_key": endpoint.name.lower(),
        "variant": wanted.variant,
        "status": CREATING,
        "failure_reason": "",
        "copies": wanted.copies,
        "revision_last": 1,
        "active": encode_revision(replace(wanted.revision, number=1)),
    }
    rows.create(db, COMPONENT, name, wanted.request, arn, now, tags, extra)
    return record(db, name)


def record(db: Connection, name: str) -> ComponentRecord:
    """Raises `NotFound`, `UnreadableRecord`."""
    return _record(db, rows.require(db, COMPONENT, name))


def page(db: Connection, query: ListQuery) -> Page[ListedResource]:
    """Raises `InvalidToken`."""
    found = db.execute(paging.filtered(_TABLE, query)).mappings().all()
    return paging.page(_TABLE, query, found, lambda row: _listed(db, row))


def set_copies(db: Connection, name: str, copies: int, *, now: float) -> ComponentRecord:
    """Sets the count for the autoscaler, also while an earlier change is under way. The same count
    again changes nothing.

    Raises `NotFound`, or `ComponentBusy` if it is Creating, Failed or Deleting.
    """
    row = rows.require(db, COMPONENT, name)
    if row["status"] not in (IN_SERVICE, UPDATING):
        raise ComponentBusy(row["name"], row["status"])
    if row["copies"] != copies:
        request = orjson.loads(row["request"]) | {"RuntimeConfig": {"CopyCount": copies}}
        _write(db, row, now, status=UPDATING, failure_reason="", copies=copies,
               request=to_json(request))  # fmt: skip
    return record(db, name)


def change(db: Connection, name: str, wanted: ComponentChange, *, now: float) -> ComponentRecord:
    """Sets the status Updating. Raises `NotFound`, or `ComponentBusy` if it is not InService."""
    row = rows.require(db, COMPONENT, name)
    if row["status"] != IN_SERVICE:
        raise ComponentBusy(row["name"], row["status"])
    values: dict[str, Any] = {"status": UPDATING, "failure_reason": ""}
    if wanted.copies is not None:
        values["copies"] = wanted.copies
    if wanted.request is not None:
        values["request"] = to_json(wanted.request)
    if wanted.revision is not None:
        number = row["revision_last"] + 1
        values |= {
            "revision_last": number,
            "target": encode_revision(replace(wanted.revision, number=number)),
            "former_request": row["request"],
        }
    _write(db, row, now, **values)
    return record(db, name)


def order_rollout(
    db: Connection, endpoint: str, name: str, order: str, *, now: float
) -> ComponentRecord:
    """Writes what an operator ordered for the rollout under way.

    Raises `NotFound`, also where it is on another endpoint; `RolloutSettled` if no rollout in
    batches is under way, or its end is decided.
    """
    row = rows.require(db, COMPONENT, name)
    if row["endpoint_key"] != endpoint.lower():
        raise NotFound(COMPONENT, name)
    text = row["target"] if row["status"] == UPDATING else None
    target = None if text is None else decode_revision(text)
    if target is None or not (target.batch or target.goes_back):
        why = "no update with RollingUpdatePolicy is under way"
        raise RolloutSettled(endpoint, why, component=row["name"])
    if target.goes_back:
        raise RolloutSettled(endpoint, "it goes back already", component=row["name"])
    kept = "" if order == RESUME else order
    _write(db, row, now, target=encode_revision(replace(target, order=kept)))
    return record(db, name)


def begin_delete(db: Connection, name: str, *, now: float) -> ListedResource:
    """Sets the status Deleting, from any status. A second call changes nothing. A component that
    can't be read is in no endpoint's spec, so reconciliation would never finish its deletion: it is
    deleted at once.

    Raises `NotFound`; `HasAdapters` for a base.
    """
    row = rows.require(db, COMPONENT, name)
    if row["status"] != DELETING:
        adapters = tuple(_adapters_of(db, row))
        if adapters:
            raise HasAdapters(row["name"], adapters)
        _write(db, row, now, status=DELETING)
    begun = _listed(db, rows.require(db, COMPONENT, name))
    if not readable("component-rows", [row], rows.component_desired, lambda one: one["name"]):
        _remove(db, name)
    return begun


def settle(db: Connection, endpoint: str, action: SetComponent, *, now: float) -> None:
    """Writes reconciliation's result. A deletion or a newer count that was set meanwhile wins."""
    row = rows.find(db, COMPONENT, action.component)
    if row is None or row["endpoint_key"] != endpoint.lower():
        return
    if row["status"] not in _STILL_THERE or row["copies"] != action.copies:
        return
    values: dict[str, Any] = {"status": action.status, "failure_reason": action.failure_reason}
    if action.goes_back:
        if row["target"] is None or decode_revision(row["target"]).goes_back:
            return
        target = decode_revision(row["target"])
        former = replace(
            decode_revision(row["active"]),
            batch=target.batch_back,
            batch_wait_s=0.0,
            goes_back=action.goes_back,
            order="",
        )
        values |= {"active": row["target"], "target": encode_revision(former)}
        if row["former_request"] is not None:
            values |= {"request": row["former_request"], "former_request": row["request"]}
    if action.rang is not None and row["target"] is not None:
        target = decode_revision(row["target"])
        if not target.goes_back:
            values["target"] = encode_revision(replace(target, rang=action.rang))
    if action.active_revision is not None and row["target"] is not None:
        if decode_revision(row["target"]).number == action.active_revision:
            values["active"] = row["target"]
        elif row["former_request"] is not None:
            values["request"] = row["former_request"]
        values |= {"target": None, "former_request": None}
    _write(db, row, now, **values)


def forget(db: Connection, endpoint: str, name: str) -> None:
    """Deletes a component that is Deleting; leaves any other alone."""
    row = rows.find(db, COMPONENT, name)
    if row is not None and row["status"] == DELETING and row["endpoint_key"] == endpoint.lower():
        _remove(db, name)


def delete_all(db: Connection, endpoint_key: str, *, now: float) -> None:
    """The endpoint is Deleting: its components become Deleting too, and go with it."""
    db.execute(
        update(_TABLE)
        .where(_TABLE.c.endpoint_key == endpoint_key)
        .values(status=DELETING, modified=now)
    )


def remove_all(db: Connection, endpoint_key: str) -> None:
    """Deletes all components of an endpoint that is gone."""
    mine = select(_TABLE.c.arn).where(_TABLE.c.endpoint_key == endpoint_key)
    for (arn,) in db.execute(mine).all():
        db.execute(delete(schema.tags).where(schema.tags.c.arn_key == arn.lower()))
    db.execute(delete(_TABLE).where(_TABLE.c.endpoint_key == endpoint_key))


def _remove(db: Connection, name: str) -> None:
    rows.remove(db, COMPONENT, name)
    compared_pairs.forget_component(db, name)


def _require_base(db: Connection, name: str, endpoint: str, variant: str) -> None:
    row = rows.require(db, COMPONENT, name)
    if row["endpoint_key"] != endpoint.lower() or row["variant"] != variant:
        raise BaseUnfit(row["name"], f"it is not on variant {variant} of endpoint {endpoint}")
    if decode_revision(row["active"]).base:
        raise BaseUnfit(row["name"], "it is an adapter itself")
    if row["status"] not in (IN_SERVICE, UPDATING):
        raise BaseUnfit(row["name"], f"it is {row['status']}")
    shadow = shadow_tag.of_tags(rows.tags_of(db, row["arn"]))
    if shadow is not None:
        raise BaseUnfit(row["name"], f"it is a shadow, of {shadow.source}, and answers no caller")


def _adapters_of(db: Connection, base: RowMapping) -> Iterator[str]:
    """The adapters of a base, without those that are Deleting."""
    beside = select(_TABLE).where(
        _TABLE.c.endpoint_key == base["endpoint_key"], _TABLE.c.status != DELETING
    )
    found = db.execute(beside.order_by(_TABLE.c.key)).mappings()
    for one in readable("component-rows", found, rows.component_desired, lambda row: row["name"]):
        if one.base.lower() == base["key"]:
            yield one.name


def _record(db: Connection, row: RowMapping) -> ComponentRecord:
    endpoint = rows.find(db, ENDPOINT, row["endpoint_key"])
    if endpoint is None:
        raise NotFound(COMPONENT, row["name"])
    with rows.reading(COMPONENT, row):
        return record_of(
            ComponentRecord,
            row,
            endpoint=endpoint["name"],
            endpoint_arn=endpoint["arn"],
            request=rows.request_of(row),
            desired=rows.component_desired(row, shadow_tag.of_tags(rows.tags_of(db, row["arn"]))),
        )


def _listed(db: Connection, row: RowMapping) -> ListedResource:
    endpoint = rows.find(db, ENDPOINT, row["endpoint_key"])
    return replace(
        rows.listed(row),
        endpoint=row["endpoint_key"] if endpoint is None else endpoint["name"],
        endpoint_arn="" if endpoint is None else endpoint["arn"],
    )


def _write(db: Connection, row: RowMapping, now: float, **values: Any) -> None:
    db.execute(update(_TABLE).where(_TABLE.c.key == row["key"]).values(modified=now, **values))

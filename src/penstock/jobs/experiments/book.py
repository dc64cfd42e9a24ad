"""Transactions on experiments. Each is atomic: a kill leaves the record as before or after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import Connection, RowMapping, select, update

from penstock.control.database.mapping import from_json, record_of, to_json
from penstock.control.database.schema import inference_experiments as table
from penstock.control.store import paging, rows
from penstock.control.store.records import (
    ENDPOINT_CONFIG,
    EXPERIMENT,
    EndpointRecord,
    ListQuery,
    NotFound,
    Page,
    UnreadableRecord,
)
from penstock.control.store.store import reads, writes
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.experiments.configurations import experiment_config, names_of
from penstock.core.experiments.machine import (
    CANCELLED,
    COMPLETED,
    CREATED,
    CREATING,
    ENDED,
    RUNNING,
    STARTING,
    STOPPING,
    UPDATING,
    WAITING,
    BecomeStatus,
    BeginUpdate,
    ExperimentAction,
    ExperimentEndpoint,
    GoBack,
    NoteBegun,
    decide,
    failed,
)
from penstock.errors import CallerError
from penstock.jobs.experiments.records import (
    EndpointHasExperiment,
    ExperimentChange,
    ExperimentConflict,
    ExperimentRecord,
)
from penstock.metrics import item_failures

_REASON_CHARS_MAX: Final = 1024  # SageMaker's
_STOPPABLE: Final = (*WAITING, STARTING, RUNNING, UPDATING)


@writes
def create(
    db: Connection,
    name: str,
    request: Mapping[str, Any],
    *,
    window: tuple[float, float],
    arn: str,
    now: float,
    tags: Mapping[str, str],
) -> None:
    """Raises `AlreadyExists`, `EndpointHasExperiment`."""
    key = request["EndpointName"].lower()
    open_ = table.c.status.not_in(ENDED)
    other = db.execute(select(table.c.name).where(table.c.endpoint_key == key, open_)).scalar()
    if rows.find(db, EXPERIMENT, name) is None and other is not None:
        raise EndpointHasExperiment(request["EndpointName"], other)
    extra = {
        "endpoint_key": key,
        "status": CREATING,
        "status_reason": "",
        "starts": window[0],
        "ends": window[1],
        "config_count": 0,
        "begun": 0,
        "end_status": COMPLETED,
    }
    rows.create(db, EXPERIMENT, name, request, arn, now, tags, extra)


@reads
def describe(db: Connection, name: str) -> ExperimentRecord:
    """Raises `NotFound`, as do all functions below that take a name, and `UnreadableRecord`."""
    return _readable(rows.require(db, EXPERIMENT, name))


@reads
def page(db: Connection, query: ListQuery) -> Page[ExperimentRecord]:
    """Raises `InvalidToken`."""
    found = db.execute(paging.filtered(table, query)).mappings().all()
    return paging.page(table, query, found, _record)


@reads
def open_experiments(db: Connection) -> list[ExperimentRecord]:
    """Those that have not ended and can be read, oldest first."""
    found = db.execute(
        select(table).where(table.c.status.not_in(ENDED)).order_by(table.c.created, table.c.key)
    )
    return [one for one in map(_record, found.mappings()) if not one.unreadable]


@writes
def delete(db: Connection, name: str) -> None:
    """Raises `ExperimentConflict` before its end. One that can't be read can always be deleted."""
    record = _record(rows.require(db, EXPERIMENT, name))
    if record.status not in ENDED and not record.unreadable:
        raise ExperimentConflict(record.name, record.status, ENDED)
    rows.remove(db, EXPERIMENT, name)


@writes
def start(db: Connection, name: str, *, now: float) -> None:
    """Starts it ahead of its time. Raises `ExperimentConflict`, and CallerError
    `experiment-invalid` where the endpoint does not take it now."""
    record = _required(db, name, WAITING)
    endpoint = _endpoint(db, record)
    if endpoint.unfit:
        raise CallerError("experiment-invalid", endpoint.unfit)
    _write(db, record, now, starts=now)
    _step(db, name, now)


@writes
def change(
    db: Connection,
    name: str,
    plan: Callable[[ExperimentRecord], ExperimentChange],
    *,
    now: float,
) -> None:
    """Writes an update. `plan` may raise. Raises `ExperimentConflict`."""
    record = _required(db, name, (CREATED, RUNNING))
    made = plan(record)
    starts, ends = made.window
    values: dict[str, Any] = {"request": to_json(made.request), "starts": starts, "ends": ends}
    if made.config:
        values |= {"status": UPDATING} | _wanted(record, made.config)
    _write(db, record, now, **values)


@writes
def begin_stop(
    db: Connection,
    name: str,
    plan: Callable[[ExperimentRecord], Mapping[str, Any] | None],
    *,
    end_status: str,
    reason: str,
    now: float,
) -> None:
    """Ends one that has not started; any other is Stopping. Raises `ExperimentConflict`.

    Args:
        plan: the configuration that its endpoint is to have. Empty: what it had before; None: what
            it has. It may raise.
        end_status: Completed or Cancelled; empty: Cancelled before its start, else Completed.
    """
    record = _required(db, name, _STOPPABLE)
    config = plan(record)
    if not record.started:
        status = end_status or CANCELLED
        _write(db, record, now, status=status, status_reason=reason, completed=now)
        return
    values: dict[str, Any] = {} if config is None else _wanted(record, config)
    values |= {"status_reason": reason, "end_status": end_status or COMPLETED}
    _write(db, record, now, status=STOPPING, **values)


@writes
def step(db: Connection, name: str, *, now: float) -> tuple[ExperimentRecord, bool] | None:
    """Decides on the next step and records it. (record, whether to begin the endpoint's update);
    None: nothing is to be done now."""
    return _step(db, name, now)


@writes
def note_begun(db: Connection, seen: ExperimentRecord, *, now: float) -> None:
    """Records that the endpoint's update was asked for, unless another is wanted now."""
    record = _record(rows.require(db, EXPERIMENT, seen.name))
    if record.spec().wanted == seen.spec().wanted and record.status == seen.status:
        _write(db, record, now, begun=1)


@writes
def refuse(db: Connection, seen: ExperimentRecord, why: str, *, now: float) -> None:
    """Records that the endpoint's update was refused. Nothing changes if the endpoint is not in
    service: then the update is tried again, or the endpoint's state says what follows."""
    record = _record(rows.require(db, EXPERIMENT, seen.name))
    spec = record.spec()
    if spec.wanted != seen.spec().wanted or record.status != seen.status:
        return
    if _endpoint(db, record).status == "InService":
        _apply(db, record, failed(spec, why), now)


def unfit(endpoint: EndpointRecord, request: Mapping[str, Any], *, has_config: bool) -> str:
    """Why the experiment can't start on an endpoint; empty: it can."""
    source, _ = names_of(request)
    shown, name = endpoint.shown, endpoint.name
    if shown.asynchronous is not None:
        return f"Endpoint {name!r} is asynchronous, and its requests are not copied to a shadow."
    if shown.shadows:
        return f"Endpoint {name!r} has a shadow variant already: {shown.shadows[0].name!r}."
    if shown.takes_components:
        return f"Endpoint {name!r} takes inference components; an experiment needs a model."
    if [one.name for one in shown.variants] != [source]:
        names = ", ".join(repr(one.name) for one in shown.variants)
        return (
            f"SourceModelVariantName {source!r} must be the one production variant of endpoint"
            f" {name!r}, which has {names}."
        )
    model = shown.variants[0].model
    if model is not None and model.multi_model:
        return f"Endpoint {name!r} has a multi-model container; an experiment compares two models."
    if not has_config:
        return (
            f"Endpoint configuration {shown.config_name!r} of endpoint {name!r} was deleted, and an"
            " experiment's is made of it. Update the endpoint to one that exists."
        )
    return ""


def _step(db: Connection, name: str, now: float) -> tuple[ExperimentRecord, bool] | None:
    row = rows.find(db, EXPERIMENT, name)
    if row is None:
        return None
    record = _readable(row)
    action = decide(record.spec(), _endpoint(db, record), now=now)
    if action is None:
        return None
    if isinstance(action, BeginUpdate):
        return record, True
    _apply(db, record, action, now)
    return _readable(rows.require(db, EXPERIMENT, name)), False


def _apply(db: Connection, record: ExperimentRecord, action: ExperimentAction, now: float) -> None:
    match action:
        case NoteBegun():
            _write(db, record, now, begun=1)
        case GoBack(end_status, _, text):
            values = _wanted(record, {})
            reason = text[:_REASON_CHARS_MAX]
            _write(
                db, record, now, status=STOPPING, end_status=end_status, status_reason=reason,
                **values,
            )  # fmt: skip
        case BecomeStatus(status, _, text):
            more: dict[str, Any] = {"completed": now} if status in ENDED else {}
            if status == STARTING:
                more = _started(db, record)
            _write(
                db, record, now, status=status, status_reason=text[:_REASON_CHARS_MAX], **more
            )  # fmt: skip


def _started(db: Connection, record: ExperimentRecord) -> dict[str, Any]:
    """What the endpoint has now, and what it is to have."""
    before = rows.endpoint(db, record.endpoint).active
    assert before is not None, "an endpoint in service has an active deployment"
    base = rows.resource(db, ENDPOINT_CONFIG, before.config_name).request
    config = experiment_config(base, record.request, record.next_config_name)
    return {"before": to_json(before), "base": to_json(base)} | _wanted(record, config)


def _wanted(record: ExperimentRecord, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "config": to_json(config) if config else None,
        "config_count": record.config_count + bool(config),
        "begun": 0,
    }


def _endpoint(db: Connection, record: ExperimentRecord) -> ExperimentEndpoint:
    try:
        found = rows.endpoint(db, record.endpoint)
    except NotFound:
        return ExperimentEndpoint(status="")
    if found.active is None:
        return ExperimentEndpoint(status=found.status, failure=found.failure_reason)
    has_config = rows.find(db, ENDPOINT_CONFIG, found.active.config_name) is not None
    return ExperimentEndpoint(
        status=found.status,
        config=found.active.config_name,
        target=found.target.config_name if found.target is not None else "",
        failure=found.failure_reason,
        unfit=unfit(found, record.request, has_config=has_config),
    )


def _required(db: Connection, name: str, statuses: Sequence[str]) -> ExperimentRecord:
    record = _readable(rows.require(db, EXPERIMENT, name))
    if record.status not in statuses:
        raise ExperimentConflict(record.name, record.status, statuses)
    return record


def _write(db: Connection, record: ExperimentRecord, now: float, **values: Any) -> None:
    db.execute(
        update(table).where(table.c.key == record.name.lower()).values(modified=now, **values)
    )


def _readable(row: RowMapping) -> ExperimentRecord:
    record = _record(row)
    if record.unreadable:
        raise UnreadableRecord(EXPERIMENT, record.name, record.unreadable)
    return record


def _record(row: RowMapping) -> ExperimentRecord:
    """One that can't be read is shown and does nothing; the others are not affected."""
    parts: dict[str, Any] = {"request": {}, "before": None, "base": {}, "config": {}}
    unreadable = ""
    try:
        parts = {
            "request": rows.request_of(row),
            "before": None if row["before"] is None else from_json(DeploymentSpec, row["before"]),
            "base": _members(row["base"]),
            "config": _members(row["config"]),
        }
        names_of(parts["request"])
    except item_failures.UNREADABLE as error:
        item_failures.note("experiment-rows", row["name"], error)
        unreadable = str(error) or type(error).__name__
    return record_of(
        ExperimentRecord, row, begun=bool(row["begun"]), unreadable=unreadable, **parts
    )


def _members(text: str | None) -> dict[str, Any]:
    return {} if text is None else dict(orjson.loads(text))

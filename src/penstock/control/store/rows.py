"""Steps inside the store's transactions.

Each function takes a connection and does one thing to the tables. Only `store.py` calls them; they
begin and end no transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, TypeVar

import msgspec
import orjson
from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, select, update

from penstock.control.database import schema
from penstock.control.database.mapping import from_json, record_of, to_json
from penstock.control.store.records import (
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    EXPERIMENT,
    MODEL,
    TRANSFORM_JOB,
    AlreadyExists,
    EndpointBusy,
    EndpointRecord,
    KeyRecord,
    ListedResource,
    NotFound,
    ResourceRecord,
    ServedNameTaken,
    TooManyTags,
    UnreadableRecord,
)
from penstock.core.deployment import served_names, shadow_tag
from penstock.core.deployment.capacity_spec import ComponentRevision, ComponentSpec, ShadowSpec
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import DELETING, IN_SERVICE
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.request.grants import Grant
from penstock.core.rollout.policy import RolloutProgress
from penstock.metrics.item_failures import UNREADABLE, readable

T = TypeVar("T")


def encode_revision(revision: ComponentRevision) -> str:
    fields = asdict(revision)
    fields["need"] |= fields["need"].pop("resources")  # stored flat in all versions
    return to_json(fields)


def decode_revision(text: str) -> ComponentRevision:
    fields = orjson.loads(text)
    flat = fields["need"]
    flat["resources"] = {name: flat[name] for name in ("memory_bytes", "cores", "accelerators")}
    return msgspec.convert(fields, ComponentRevision)


TAG_COUNT_MAX: Final = 50  #: SageMaker's limit per resource

TABLES: Final = {
    MODEL: schema.models,
    ENDPOINT_CONFIG: schema.endpoint_configs,
    ENDPOINT: schema.endpoints,
    COMPONENT: schema.inference_components,
    TRANSFORM_JOB: schema.transform_jobs,
    EXPERIMENT: schema.inference_experiments,
}


def find(db: Connection, kind: str, name: str) -> RowMapping | None:
    table = TABLES[kind]
    return db.execute(select(table).where(table.c.key == name.lower())).mappings().first()


def require(db: Connection, kind: str, name: str) -> RowMapping:
    row = find(db, kind, name)
    if row is None:
        raise NotFound(kind, name)
    return row


def create(
    db: Connection,
    kind: str,
    name: str,
    request: Mapping[str, Any],
    arn: str,
    now: float,
    tags: Mapping[str, str] | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    existing = find(db, kind, name)
    if existing is not None:
        raise AlreadyExists(kind, existing["name"], existing["arn"])
    db.execute(
        insert(TABLES[kind]).values(
            key=name.lower(),
            name=name,
            arn=arn,
            request=to_json(request),
            created=now,
            modified=now,
            **(extra or {}),
        )
    )
    if tags:
        add_tags(db, arn, tags)


def remove(db: Connection, kind: str, name: str) -> None:
    row = require(db, kind, name)
    table = TABLES[kind]
    db.execute(delete(table).where(table.c.key == row["key"]))
    db.execute(delete(schema.tags).where(schema.tags.c.arn_key == row["arn"].lower()))


@contextmanager
def reading(kind: str, row: RowMapping) -> Iterator[None]:
    """Inside, errors of damaged text become `UnreadableRecord` for this row."""
    try:
        yield
    except UNREADABLE as error:
        raise UnreadableRecord(kind, row["name"], f"{type(error).__name__}: {error}") from error


def request_of(row: RowMapping) -> dict[str, Any]:
    found = orjson.loads(row["request"])
    if not isinstance(found, dict):
        raise TypeError(f"a request has members, and this is {type(found).__name__}")
    return found


def listed(row: RowMapping) -> ListedResource:
    """Only from columns, so that a resource with damaged text is listed too."""
    return record_of(ListedResource, row)


def resource(db: Connection, kind: str, name: str) -> ResourceRecord:
    """Raises `NotFound`, `UnreadableRecord`."""
    row = require(db, kind, name)
    with reading(kind, row):
        return record_of(ResourceRecord, row, request=request_of(row))


def endpoint(db: Connection, name: str) -> EndpointRecord:
    return with_deployments(db, require(db, ENDPOINT, name))


def with_deployments(db: Connection, row: RowMapping) -> EndpointRecord:
    """Raises `UnreadableRecord`, but not for an endpoint that is Deleting: its text is not
    needed."""
    try:
        with reading(ENDPOINT, row):
            return _with_deployments(db, row)
    except UnreadableRecord:
        if row["status"] != DELETING:
            raise
        nothing = dict.fromkeys(("active", "target", "previous"))
        return record_of(EndpointRecord, row, request={}, **nothing)


def _with_deployments(db: Connection, row: RowMapping) -> EndpointRecord:
    columns = schema.deployments.c
    rows = db.execute(select(schema.deployments).where(columns.endpoint_key == row["key"]))
    found = {one["generation"]: one for one in rows.mappings()}

    def read(kind: type[T], column: str, generation: int | None) -> T | None:
        text = found[generation][column] if generation in found else None
        return None if text is None else from_json(kind, text)

    active = read(DeploymentSpec, "spec", row["active_generation"])
    target = read(DeploymentSpec, "spec", row["target_generation"])
    if active is None and target is None:
        raise LookupError("it has no deployment")
    return record_of(
        EndpointRecord,
        row,
        request=request_of(row),
        active=active,
        target=target,
        previous=read(DeploymentSpec, "previous", row["active_generation"]),
        progress=read(RolloutProgress, "progress", row["target_generation"]),
        components=components_of(db, row["key"]),
        served_names=served_names.of_tags(tags_of(db, row["arn"])),
        targets=targets_of(db, row["key"]),
    )


def targets_of(db: Connection, endpoint_key: str) -> tuple[ServedTarget, ...]:
    """What answers for the target models of an endpoint, in their order."""
    table = schema.served_targets
    found = db.execute(
        select(table.c.served).where(table.c.endpoint_key == endpoint_key).order_by(table.c.target)
    )
    return tuple(from_json(ServedTarget, text) for (text,) in found)


def components_of(db: Connection, endpoint_key: str) -> tuple[ComponentSpec, ...]:
    """The inference components of an endpoint that can be read, by name."""
    table = schema.inference_components
    of_endpoint = table.c.endpoint_key == endpoint_key
    tags = schema.tags.c
    named = db.execute(
        select(tags.arn_key, tags.value)
        .join_from(schema.tags, table, tags.arn_key == func.lower(table.c.arn))
        .where(tags.name == shadow_tag.TAG, of_endpoint)
    )
    shadows = {arn_key: shadow_tag.of_tags({shadow_tag.TAG: value}) for arn_key, value in named}
    found = db.execute(select(table).where(of_endpoint).order_by(table.c.key))
    return tuple(
        readable(
            "component-rows",
            found.mappings(),
            lambda row: component_desired(row, shadows.get(row["arn"].lower())),
            lambda row: row["name"],
        )
    )


def component_desired(row: RowMapping, shadow: ShadowSpec | None = None) -> ComponentSpec:
    """`shadow`: as its tags say."""
    return record_of(
        ComponentSpec,
        row,
        active=decode_revision(row["active"]),
        target=None if row["target"] is None else decode_revision(row["target"]),
        shadow=shadow,
    )


def in_service(db: Connection, name: str) -> RowMapping:
    row = require(db, ENDPOINT, name)
    if row["status"] != IN_SERVICE:
        raise EndpointBusy(row["name"], row["status"])
    return row


def update_endpoint(db: Connection, key: str, values: Mapping[str, Any]) -> None:
    db.execute(update(schema.endpoints).where(schema.endpoints.c.key == key).values(**values))


def put_deployment(db: Connection, name: str, deployment: DeploymentSpec, now: float) -> None:
    db.execute(
        insert(schema.deployments).values(
            endpoint_key=name.lower(),
            generation=deployment.generation,
            spec=to_json(deployment),
            created=now,
        )
    )


def is_deployment(key: str, generation: int) -> Any:
    columns = schema.deployments.c
    return and_(columns.endpoint_key == key, columns.generation == generation)


def put_progress(db: Connection, key: str, generation: int, progress: RolloutProgress) -> None:
    this = update(schema.deployments).where(is_deployment(key, generation))
    db.execute(this.values(progress=to_json(progress)))


def settle_deployments(db: Connection, key: str, generation: int, *, restore: bool) -> None:
    """Keeps one generation, whose rollout is over. `restore` undoes its last change of weights and
    counts."""
    table = schema.deployments
    db.execute(delete(table).where(table.c.endpoint_key == key, table.c.generation != generation))
    this = update(table).where(is_deployment(key, generation))
    if restore:
        db.execute(this.where(table.c.previous.is_not(None)).values(spec=table.c.previous))
    db.execute(this.values(previous=None, progress=None))


def key(row: RowMapping) -> KeyRecord:
    endpoints = frozenset(name for name in row["endpoints"].split(",") if name)
    return record_of(KeyRecord, row, grant=Grant(row["scope"], endpoints))


def tags_of(db: Connection, arn: str) -> dict[str, str]:
    columns = schema.tags.c
    rows = db.execute(
        select(columns.name, columns.value)
        .where(columns.arn_key == arn.lower())
        .order_by(columns.name)
    )
    return {name: value for name, value in rows}


def add_tags(db: Connection, arn: str, tags: Mapping[str, str]) -> dict[str, str]:
    columns = schema.tags.c
    merged = tags_of(db, arn) | dict(tags)
    if len(merged) > TAG_COUNT_MAX:
        raise TooManyTags(arn, TAG_COUNT_MAX)
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind == ENDPOINT and any(map(served_names.is_tag, tags)):
        served_names.check(merged)
        check_names_free(db, name, served_names.of_tags(merged))
    if kind == COMPONENT and shadow_tag.TAG in tags:
        _check_shadow(db, name, shadow_tag.parsed(tags[shadow_tag.TAG]))
    db.execute(
        delete(schema.tags).where(columns.arn_key == arn.lower(), columns.name.in_(list(tags)))
    )
    rows = [{"arn_key": arn.lower(), "name": name, "value": tags[name]} for name in tags]
    if rows:
        db.execute(insert(schema.tags), rows)
    return merged


def _check_shadow(db: Connection, name: str, shadow: ShadowSpec) -> None:
    row = require(db, COMPONENT, name)
    found = components_of(db, row["endpoint_key"])
    base = next((one.base for one in found if one.name == row["name"]), "")
    others = [one for one in found if one.name != row["name"] and one.status != DELETING]
    shadow_tag.check(row["name"], shadow, base, others)


def check_names_free(db: Connection, endpoint: str, names: Collection[str]) -> None:
    """Raises `ServedNameTaken` where one of the names, or the endpoint's own, is another's.

    Names are compared without case, as SageMaker's are.
    """
    own = endpoint.lower()
    wanted = {name.lower(): name for name in names}
    for other, served in _served_elsewhere(db, own):
        lower = served.lower()
        if lower in wanted or own in served_names.endpoints_named_by(served):
            raise ServedNameTaken(wanted.get(lower, endpoint), other)
    named = {key: name for name in names for key in served_names.endpoints_named_by(name)}
    named.pop(own, None)
    columns = schema.endpoints.c
    taken = db.execute(select(columns.key, columns.name).where(columns.key.in_(list(named))))
    for key, other in taken:
        raise ServedNameTaken(named[key], other)


def _served_elsewhere(db: Connection, own: str) -> Iterator[tuple[str, str]]:
    """(endpoint, served name) of every other endpoint."""
    tags, endpoints = schema.tags, schema.endpoints.c
    found = db.execute(
        select(endpoints.name, tags.c.name, tags.c.value)
        .join_from(tags, schema.endpoints, tags.c.arn_key == func.lower(endpoints.arn))
        .where(tags.c.name.startswith(served_names.TAG, autoescape=True), endpoints.key != own)
        .order_by(endpoints.key, tags.c.name)
    )
    for endpoint, name, value in found:
        for served in served_names.of_tags({name: value}):
            yield endpoint, served

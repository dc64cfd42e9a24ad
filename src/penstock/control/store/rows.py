"""Steps inside the store's transactions, and `DeploymentSpec` and `ComponentRevision` as JSON text.

Each function takes a connection and does one thing to the tables. Only `store.py` calls them; they
begin and end no transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import orjson
from sqlalchemy import Connection, RowMapping, and_, delete, insert, select, update

from penstock.control.database import schema
from penstock.control.store.records import (
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    TRANSFORM_JOB,
    AlreadyExists,
    EndpointBusy,
    EndpointRecord,
    KeyRecord,
    ListedResource,
    NotFound,
    ResourceRecord,
    TooManyTags,
    UnreadableRecord,
)
from penstock.core.deployment.component_spec import ComponentRevision, ComponentSpec
from penstock.core.deployment.deployment import (
    AsyncSpec,
    DeploymentSpec,
    ManagedScaling,
    ModelSource,
    PoolSpec,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import DELETING, IN_SERVICE
from penstock.core.deployment.wish import CopySpec
from penstock.core.request.grants import Grant
from penstock.core.resources import ComputeResources
from penstock.metrics.item_failures import UNREADABLE, readable


def encode_deployment(deployment: DeploymentSpec) -> str:
    return orjson.dumps(asdict(deployment)).decode()


def decode_deployment(text: str) -> DeploymentSpec:
    """The inverse of `encode_deployment`. Members that an older version did not write get their
    defaults."""
    fields = orjson.loads(text)
    variants = []
    for variant in fields.pop("variants"):
        source, managed = variant.pop("model"), variant.pop("managed", None)
        pools = variant.pop("pools", ())
        variants.append(
            VariantSpec(
                model=None if source is None else _source(source),
                managed=None if managed is None else ManagedScaling(**managed),
                pools=tuple(_pool(one) for one in pools),
                **variant,
            )
        )
    asynchronous = fields.pop("asynchronous", None)
    return DeploymentSpec(
        variants=tuple(variants),
        asynchronous=None if asynchronous is None else AsyncSpec(**asynchronous),
        **fields,
    )


def encode_revision(revision: ComponentRevision) -> str:
    fields = asdict(revision)
    fields["need"] |= fields["need"].pop("resources")  # stored flat in all versions
    return orjson.dumps(fields).decode()


def decode_revision(text: str) -> ComponentRevision:
    fields = orjson.loads(text)
    model, need = _source(fields.pop("model")), fields.pop("need")
    resources = ComputeResources(
        memory_bytes=need.pop("memory_bytes"),
        cores=need.pop("cores"),
        accelerators=need.pop("accelerators"),
    )
    return ComponentRevision(model=model, need=CopySpec(resources=resources, **need), **fields)


def _pool(fields: dict[str, Any]) -> PoolSpec:
    model = fields.pop("model")
    return PoolSpec(model=None if model is None else _source(model), **fields)


def _source(fields: dict[str, Any]) -> ModelSource:
    environment = tuple((key, value) for key, value in fields.pop("environment"))
    return ModelSource(environment=environment, **fields)


TAG_COUNT_MAX: Final = 50  #: SageMaker's limit per resource

TABLES: Final = {
    MODEL: schema.models,
    ENDPOINT_CONFIG: schema.endpoint_configs,
    ENDPOINT: schema.endpoints,
    COMPONENT: schema.inference_components,
    TRANSFORM_JOB: schema.transform_jobs,
}


def to_json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(value)).decode()


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
    return ListedResource(
        name=row["name"],
        arn=row["arn"],
        created=row["created"],
        modified=row["modified"],
        status=row.get("status", ""),
    )


def resource(db: Connection, kind: str, name: str) -> ResourceRecord:
    """Raises `NotFound`, `UnreadableRecord`."""
    row = require(db, kind, name)
    with reading(kind, row):
        return ResourceRecord(
            name=row["name"],
            arn=row["arn"],
            request=request_of(row),
            created=row["created"],
            modified=row["modified"],
        )


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
        return EndpointRecord(
            name=row["name"],
            arn=row["arn"],
            request={},
            created=row["created"],
            modified=row["modified"],
            status=row["status"],
            failure_reason=row["failure_reason"],
            active=None,
            target=None,
            previous=None,
        )


def _with_deployments(db: Connection, row: RowMapping) -> EndpointRecord:
    columns = schema.deployments.c
    rows = db.execute(select(schema.deployments).where(columns.endpoint_key == row["key"]))
    found = {one["generation"]: one for one in rows.mappings()}

    def spec_of(generation: int | None, column: str = "spec") -> DeploymentSpec | None:
        text = found[generation][column] if generation in found else None
        return None if text is None else decode_deployment(text)

    active, target = spec_of(row["active_generation"]), spec_of(row["target_generation"])
    if active is None and target is None:
        raise LookupError("it has no deployment")
    return EndpointRecord(
        name=row["name"],
        arn=row["arn"],
        request=request_of(row),
        created=row["created"],
        modified=row["modified"],
        status=row["status"],
        failure_reason=row["failure_reason"],
        active=active,
        target=target,
        previous=spec_of(row["active_generation"], "previous"),
        components=components_of(db, row["key"]),
    )


def components_of(db: Connection, endpoint_key: str) -> tuple[ComponentSpec, ...]:
    """The inference components of an endpoint that can be read, by name."""
    table = schema.inference_components
    found = db.execute(
        select(table).where(table.c.endpoint_key == endpoint_key).order_by(table.c.key)
    )
    return tuple(
        readable("component-rows", found.mappings(), component_desired, lambda row: row["name"])
    )


def component_desired(row: RowMapping) -> ComponentSpec:
    return ComponentSpec(
        name=row["name"],
        variant=row["variant"],
        status=row["status"],
        copies=row["copies"],
        active=decode_revision(row["active"]),
        target=None if row["target"] is None else decode_revision(row["target"]),
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
            spec=encode_deployment(deployment),
            created=now,
        )
    )


def is_deployment(key: str, generation: int) -> Any:
    columns = schema.deployments.c
    return and_(columns.endpoint_key == key, columns.generation == generation)


def settle_deployments(db: Connection, key: str, generation: int, *, restore: bool) -> None:
    """Keeps one generation. `restore` undoes its last change of weights and counts."""
    table = schema.deployments
    db.execute(delete(table).where(table.c.endpoint_key == key, table.c.generation != generation))
    this = update(table).where(is_deployment(key, generation))
    if restore:
        db.execute(this.where(table.c.previous.is_not(None)).values(spec=table.c.previous))
    db.execute(this.values(previous=None))


def key(row: RowMapping) -> KeyRecord:
    endpoints = frozenset(name for name in row["endpoints"].split(",") if name)
    return KeyRecord(
        key_id=row["key_id"],
        kind=row["kind"],
        label=row["label"],
        created=row["created"],
        secret=row["secret"],
        salt=row["salt"],
        grant=Grant(row["scope"], endpoints),
    )


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
    db.execute(
        delete(schema.tags).where(columns.arn_key == arn.lower(), columns.name.in_(list(tags)))
    )
    rows = [{"arn_key": arn.lower(), "name": name, "value": tags[name]} for name in tags]
    if rows:
        db.execute(insert(schema.tags), rows)
    return merged

"""The record of what was asked for: models, configurations, endpoints, components, tags, keys.

Synchronous; the server calls it through `control/store/store_thread.py`. Each method is one
transaction, so a kill at any moment leaves either the state before or the one after. It knows no
protocol and makes no decision beyond the state machine's guards (who may be updated, what a
finished rollout means).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Table, delete, insert, or_, select, update

from penstock.control.database import schema
from penstock.control.database.connection import DatabaseConnection
from penstock.control.database.mapping import to_json, values_of
from penstock.control.store import (
    activities,
    compared_pairs,
    components,
    paging,
    rows,
    served_targets,
)
from penstock.control.store.records import (
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    EndpointRecord,
    KeyRecord,
    ListedResource,
    ListQuery,
    Page,
    ResourceRecord,
    RolloutSettled,
    UnknownVariant,
)
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import CREATING, DELETING, UPDATING, SetComponent
from penstock.core.rollout.policy import RESUME, ROLLING_BACK, TERMINATING, RolloutProgress
from penstock.metrics.item_failures import readable

P = ParamSpec("P")
T = TypeVar("T")


def writes(step: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """A step on an open transaction as one transaction on the store."""

    @wraps(step)
    def whole(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with store.begin() as db:
            return step(db, *args, **kwargs)

    return whole


def reads(step: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """As `writes`, for a step that only reads."""

    @wraps(step)
    def whole(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with store.read() as db:
            return step(db, *args, **kwargs)

    return whole


class Store(DatabaseConnection):
    """The database of one server. `records.py` has the values and the errors of its methods.

    `begin` and `read` are for rows that other files own, such as alarms and scaling policies.
    """

    # Models

    def create_model(
        self,
        name: str,
        request: Mapping[str, Any],
        *,
        arn: str,
        now: float,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `AlreadyExists`."""
        with self.begin() as db:
            rows.create(db, MODEL, name, request, arn, now, tags)

    def describe_model(self, name: str) -> ResourceRecord:
        """Raises `NotFound`, as all describe and delete methods; `UnreadableRecord`, as all
        describe methods. A resource that can't be read can still be listed and deleted."""
        with self.read() as db:
            return rows.resource(db, MODEL, name)

    def delete_model(self, name: str) -> None:
        """Endpoints that use the model continue: they have a copy of its definition."""
        with self.begin() as db:
            rows.remove(db, MODEL, name)

    def list_models(self, query: ListQuery) -> Page[ListedResource]:
        """Raises `InvalidToken`, as all list methods."""
        return self._listed(schema.models, query)

    # Endpoint configurations

    def create_endpoint_config(
        self,
        name: str,
        request: Mapping[str, Any],
        *,
        arn: str,
        now: float,
        models: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`models` must exist: raises `NotFound` for the first that does not; also
        `AlreadyExists`."""
        with self.begin() as db:
            for model in models:
                rows.require(db, MODEL, model)
            rows.create(db, ENDPOINT_CONFIG, name, request, arn, now, tags)

    def describe_endpoint_config(self, name: str) -> ResourceRecord:
        with self.read() as db:
            return rows.resource(db, ENDPOINT_CONFIG, name)

    def delete_endpoint_config(self, name: str) -> None:
        with self.begin() as db:
            rows.remove(db, ENDPOINT_CONFIG, name)

    def list_endpoint_configs(self, query: ListQuery) -> Page[ListedResource]:
        return self._listed(schema.endpoint_configs, query)

    # Endpoints

    def create_endpoint(
        self,
        name: str,
        deployment: DeploymentSpec,
        *,
        arn: str,
        now: float,
        request: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> EndpointRecord:
        """Creates generation 1, status Creating. Raises `AlreadyExists`, also while one is
        Deleting, and `ServedNameTaken`."""
        with self.begin() as db:
            rows.check_names_free(db, name, ())
            extra = {
                "status": CREATING,
                "failure_reason": "",
                "generation_last": 1,
                "target_generation": 1,
            }
            rows.create(db, ENDPOINT, name, request or {}, arn, now, tags, extra)
            rows.put_deployment(db, name, replace(deployment, endpoint=name, generation=1), now)
            return rows.endpoint(db, name)

    def describe_endpoint(self, name: str) -> EndpointRecord:
        with self.read() as db:
            return rows.endpoint(db, name)

    def list_endpoints(self, query: ListQuery) -> Page[ListedResource]:
        return self._listed(schema.endpoints, query)

    def all_endpoints(self) -> list[EndpointRecord]:
        """Every endpoint that can be read, oldest first, for the start of a server."""
        columns = schema.endpoints.c
        with self.read() as db:
            found = db.execute(select(schema.endpoints).order_by(columns.created, columns.key))
            return readable(
                "endpoint-rows",
                found.mappings().all(),
                lambda row: rows.with_deployments(db, row),
                lambda row: row["name"],
            )

    def unsettled_endpoints(self) -> list[str]:
        """Names of the endpoints that are Creating, Updating or Deleting, or have a component that
        is."""
        columns = schema.endpoints.c
        unsettled = (CREATING, UPDATING, DELETING)
        with self.read() as db:
            on_their_way = select(schema.inference_components.c.endpoint_key).where(
                schema.inference_components.c.status.in_(unsettled)
            )
            found = db.execute(
                select(columns.name)
                .where(or_(columns.status.in_(unsettled), columns.key.in_(on_their_way)))
                .order_by(columns.key)
            )
            return [name for (name,) in found]

    def begin_update(
        self,
        name: str,
        deployment: DeploymentSpec,
        *,
        now: float,
        request: Mapping[str, Any] | None = None,
    ) -> EndpointRecord:
        """Adds a new generation (the store sets its number), with the status Updating.

        Raises `NotFound`, or `EndpointBusy` if the status is not InService.
        """
        with self.begin() as db:
            row = rows.in_service(db, name)
            generation = row["generation_last"] + 1
            values: dict[str, Any] = {
                "status": UPDATING,
                "failure_reason": "",
                "modified": now,
                "generation_last": generation,
                "target_generation": generation,
            }
            if request is not None:
                values["request"] = to_json(request)
            rows.update_endpoint(db, row["key"], values)
            spec = replace(deployment, endpoint=row["name"], generation=generation)
            rows.put_deployment(db, name, spec, now)
            return rows.endpoint(db, name)

    def update_weights(
        self, name: str, changes: Mapping[str, tuple[float | None, int | None]], *, now: float
    ) -> EndpointRecord:
        """Sets new weights and instance counts by variant, with the status Updating; None leaves
        one as it is.

        Raises `NotFound`, `UnknownVariant`, or `EndpointBusy`.
        """
        with self.begin() as db:
            row = rows.in_service(db, name)
            before = rows.endpoint(db, name).active
            assert before is not None, "an endpoint in service has an active deployment"
            known = tuple(variant.name for variant in before.hosted)
            for variant in changes:
                if variant not in known:
                    raise UnknownVariant(row["name"], variant, known)

            def changed(variants: tuple[VariantSpec, ...]) -> tuple[VariantSpec, ...]:
                return tuple(
                    replace(
                        variant,
                        weight=variant.weight if weight is None else weight,
                        instance_count=variant.instance_count if count is None else count,
                    )
                    for variant in variants
                    for weight, count in (changes.get(variant.name, (None, None)),)
                )

            after = replace(
                before, variants=changed(before.variants), shadows=changed(before.shadows)
            )
            db.execute(
                update(schema.deployments)
                .where(rows.is_deployment(row["key"], before.generation))
                .values(
                    spec=to_json(after),
                    previous=to_json(before),
                )
            )
            values = {"status": UPDATING, "failure_reason": "", "modified": now}
            rows.update_endpoint(db, row["key"], values)
            return rows.endpoint(db, name)

    def begin_delete(self, name: str, *, now: float) -> EndpointRecord:
        """Sets the status Deleting, from any. A second call changes nothing. Raises `NotFound`."""
        with self.begin() as db:
            row = rows.require(db, ENDPOINT, name)
            if row["status"] != DELETING:
                rows.update_endpoint(db, row["key"], {"status": DELETING, "modified": now})
                components.delete_all(db, row["key"], now=now)
            return rows.endpoint(db, name)

    def finish_delete(self, name: str) -> None:
        """Deletes an endpoint that is Deleting; leaves any other alone."""
        with self.begin() as db:
            row = rows.find(db, ENDPOINT, name)
            if row is None or row["status"] != DELETING:
                return
            key = row["key"]
            for table in (
                schema.deployments, schema.target_model_pins, schema.target_model_crashes,
                schema.served_targets, schema.compared_pairs, schema.endpoint_activities,
            ):  # fmt: skip
                db.execute(delete(table).where(table.c.endpoint_key == key))
            components.remove_all(db, key)
            rows.remove(db, ENDPOINT, name)

    def set_status(
        self,
        name: str,
        status: str,
        *,
        now: float,
        failure_reason: str = "",
        active_generation: int | None = None,
        restore_previous: bool = False,
    ) -> EndpointRecord | None:
        """Writes reconciliation's result, in one transaction.

        With `active_generation` that generation becomes the active one, and every other is deleted.
        `restore_previous` undoes the last change of weights and counts. A deletion that was
        requested meanwhile wins: then nothing changes. None if the endpoint is gone.
        """
        with self.begin() as db:
            row = rows.find(db, ENDPOINT, name)
            if row is None:
                return None
            if row["status"] == DELETING:
                return rows.with_deployments(db, row)
            key = row["key"]
            values: dict[str, Any] = {
                "status": status,
                "failure_reason": failure_reason,
                "modified": now,
            }
            if active_generation is not None:
                values |= {"active_generation": active_generation, "target_generation": None}
                rows.settle_deployments(db, key, active_generation, restore=restore_previous)
            rows.update_endpoint(db, key, values)
            return rows.endpoint(db, name)

    def set_rollout(
        self, endpoint: str, generation: int, progress: RolloutProgress, *, now: float
    ) -> EndpointRecord | None:
        """Writes how far the rollout of a generation is, in one transaction.

        Nothing changes if that generation is no longer the one being rolled out, or the endpoint is
        being deleted. None if it is gone.
        """
        with self.begin() as db:
            row = rows.find(db, ENDPOINT, endpoint)
            if row is None:
                return None
            if row["status"] != DELETING and row["target_generation"] == generation:
                before = rows.endpoint(db, endpoint).progress
                order = before.order if before is not None else ""  # it may be new
                rows.put_progress(db, row["key"], generation, replace(progress, order=order))
                rows.update_endpoint(db, row["key"], {"modified": now})
            return rows.endpoint(db, endpoint)

    def order_rollout(self, endpoint: str, order: str, *, now: float) -> EndpointRecord:
        """Writes what an operator ordered for the rollout under way.

        Raises:
            NotFound: there is no such endpoint.
            RolloutSettled: no rollout is under way, or its end is decided.
        """
        with self.begin() as db:
            record = rows.endpoint(db, endpoint)
            target, progress = record.target, record.progress
            if target is None or progress is None:
                raise RolloutSettled(record.name, "no rollout is under way")
            if progress.stage in (TERMINATING, ROLLING_BACK):
                ends = "new" if progress.stage == TERMINATING else "old"
                raise RolloutSettled(record.name, f"it ends at the {ends} generation already")
            kept = "" if order == RESUME else order
            row = rows.find(db, ENDPOINT, endpoint)
            assert row is not None
            rows.put_progress(db, row["key"], target.generation, replace(progress, order=kept))
            rows.update_endpoint(db, row["key"], {"modified": now})
            return rows.endpoint(db, endpoint)

    # Target models; `control/store/served_targets.py` says what each step does and raises

    begin_target_rollout = writes(served_targets.begin)
    order_target_rollout = writes(served_targets.order)
    set_target = writes(served_targets.settle)

    # What agreements have compared, and why endpoints are as they are

    all_compared = reads(compared_pairs.everything)
    put_compared = writes(compared_pairs.put)
    all_activities = reads(activities.everything)
    add_activity = writes(activities.add)

    # Inference components; `control/store/components.py` says what each step does and raises

    create_component = writes(components.create)
    describe_component = reads(components.record)
    list_components = reads(components.page)
    update_component = writes(components.change)
    order_component_rollout = writes(components.order_rollout)
    delete_component = writes(components.begin_delete)

    def set_component(self, endpoint: str, action: SetComponent, *, now: float) -> EndpointRecord:
        """Writes reconciliation's result; returns the endpoint after it."""
        with self.begin() as db:
            components.settle(db, endpoint, action, now=now)
            return rows.endpoint(db, endpoint)

    def forget_component(self, endpoint: str, name: str) -> EndpointRecord:
        with self.begin() as db:
            components.forget(db, endpoint, name)
            return rows.endpoint(db, endpoint)

    # Tags, by ARN

    #: adds or overwrites; does not check that the ARN names something: `arn_exists` does
    add_tags = writes(rows.add_tags)
    list_tags = reads(rows.tags_of)

    def delete_tags(self, arn: str, names: Sequence[str]) -> None:
        columns = schema.tags.c
        with self.begin() as db:
            db.execute(
                delete(schema.tags).where(columns.arn_key == arn.lower(), columns.name.in_(names))
            )

    def arn_exists(self, arn: str) -> bool:
        """Whether something that can have tags has this ARN (compared without case)."""
        kind, _, name = arn.rpartition(":")[2].partition("/")
        if kind not in rows.TABLES:
            return False
        with self.read() as db:
            row = rows.find(db, kind, name)
            return row is not None and row["arn"].lower() == arn.lower()

    # Access keys, as `control/access/keys.py` stores them

    def add_key(self, key: KeyRecord) -> None:
        with self.begin() as db:
            db.execute(
                insert(schema.keys).values(
                    **values_of(
                        schema.keys,
                        key,
                        scope=key.grant.scope,
                        endpoints=",".join(sorted(key.grant.endpoints)),
                    )
                )
            )

    def list_keys(self) -> list[KeyRecord]:
        """The keys that can be read; any other grants nothing."""
        columns = schema.keys.c
        with self.read() as db:
            found = db.execute(select(schema.keys).order_by(columns.created, columns.key_id))
            return readable("key-rows", found.mappings(), rows.key, lambda row: row["key_id"])

    def delete_key(self, key_id: str) -> bool:
        """False if there is no such key."""
        with self.begin() as db:
            done = db.execute(delete(schema.keys).where(schema.keys.c.key_id == key_id))
            return bool(done.rowcount)

    def _listed(self, table: Table, query: ListQuery) -> Page[ListedResource]:
        with self.read() as db:
            found = db.execute(paging.filtered(table, query)).mappings().all()
            return paging.page(table, query, found, rows.listed)

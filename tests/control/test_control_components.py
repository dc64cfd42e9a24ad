"""`control/store/components.py` on SQLite and PostgreSQL: inference components as they are
recorded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from penstock.control.database import schema
from penstock.control.store import components
from penstock.control.store.components import ComponentChange, NewComponent
from penstock.control.store.records import (
    AlreadyExists,
    BaseUnfit,
    ComponentBusy,
    EndpointBusy,
    HasAdapters,
    ListQuery,
    NotFound,
    UnknownVariant,
    UnreadableRecord,
)
from penstock.control.store.rows import decode_revision, encode_revision
from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import (
    BINPACK,
    ComponentRevision,
    ComponentSpec,
    CopySpec,
)
from penstock.core.deployment.deployment import (
    DeploymentSpec,
    ManagedScaling,
    ModelSource,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import SetComponent
from penstock.core.resources import ComputeResources

ARN = "arn:aws:sagemaker:us-east-1:123456789012:"

REVISION = ComponentRevision(
    number=1,
    model=ModelSource(model_name="intent", uri="file:///m", environment=(("A", "1"),)),
    need=CopySpec(
        resources=ComputeResources(memory_bytes=128 << 20, cores=0.5), memory_bytes_max=256 << 20
    ),
    strategy=BINPACK,
    download_timeout_s=60.0,
    startup_timeout_s=70.0,
)


def test_what_a_copy_needs_is_written_flat_as_every_version_reads_it() -> None:
    text = encode_revision(REVISION)
    assert json.loads(text)["need"] == {
        "memory_bytes": 128 << 20,
        "cores": 0.5,
        "accelerators": 0,
        "whole_instance": False,
        "memory_bytes_max": 256 << 20,
    }
    assert decode_revision(text) == REVISION


def endpoint(store: Store, name: str = "Shop") -> None:
    variant = VariantSpec(
        name="blue",
        model=None,
        instance_type="ml.local.medium",
        instance_count=1,
        managed=ManagedScaling(instances_min=0, instances_max=4, step_max=2, cooldown_s=300.0),
    )
    spec = DeploymentSpec(endpoint="", generation=0, config_name="c", variants=(variant,))
    store.create_endpoint(name, spec, arn=f"{ARN}endpoint/{name}", now=1.0)
    store.set_status(name, "InService", now=2.0, active_generation=1)


def create(store: Store, name: str = "Chat", *, now: float = 10.0, **more: Any) -> None:
    wanted = {"endpoint": "shop", "variant": "blue", "copies": 2, "revision": REVISION}
    wanted |= {"request": {"RuntimeConfig": {"CopyCount": 2}}} | more
    arn = f"{ARN}inference-component/{name}"
    store.create_component(name, NewComponent(**wanted), arn=arn, now=now, tags={"team": "a"})


def settle(store: Store, status: str, name: str = "Chat", **more: Any) -> ComponentSpec:
    copies = more.pop("copies", store.describe_component(name).desired.copies)
    action = SetComponent(name, status, copies, "any", **more)
    record = store.set_component("Shop", action, now=20.0)
    return next(one for one in record.components if one.name == name)


def test_a_component_is_what_was_asked_for_and_part_of_its_endpoint(store: Store) -> None:
    endpoint(store)
    create(store)
    record = store.describe_component("chat")
    desired = ComponentSpec(
        name="Chat", variant="blue", status="Creating", copies=2, active=REVISION
    )
    assert (record.name, record.endpoint, record.endpoint_arn, record.created, record.desired) == (
        "Chat", "Shop", f"{ARN}endpoint/Shop", 10.0, desired,
    )  # fmt: skip
    found = store.describe_endpoint("shop")
    assert (found.components, found.desired().components) == ((desired,), (desired,))
    assert store.all_endpoints() == [found]
    assert store.unsettled_endpoints() == ["Shop"]
    assert store.list_tags(record.arn) == {"team": "a"}
    assert store.arn_exists(record.arn)


def test_a_variant_that_takes_components_is_kept_whole(store: Store) -> None:
    endpoint(store)
    active = store.describe_endpoint("shop").active
    assert active is not None
    (variant,) = active.variants
    assert (variant.model, active.takes_components) == (None, True)
    assert variant.managed == ManagedScaling(
        instances_min=0, instances_max=4, step_max=2, cooldown_s=300.0
    )


def test_a_name_is_taken_until_the_old_one_is_forgotten_and_needs_its_endpoint(
    store: Store,
) -> None:
    with pytest.raises(NotFound) as missing:
        create(store)
    assert missing.value.kind == "endpoint"
    endpoint(store)
    with pytest.raises(UnknownVariant):
        create(store, variant="green")
    create(store)
    with pytest.raises(AlreadyExists):
        create(store, "CHAT")
    store.delete_component("chat", now=11.0)
    with pytest.raises(AlreadyExists):
        create(store)
    store.forget_component("Shop", "Chat")
    create(store)
    store.begin_delete("shop", now=12.0)
    with pytest.raises(EndpointBusy):
        create(store, "other")


def test_only_one_in_service_is_updated_and_the_newest_revision_wins(store: Store) -> None:
    endpoint(store)
    create(store)
    change = ComponentChange(copies=3, revision=REVISION, request={"new": 1})
    with pytest.raises(ComponentBusy):
        store.update_component("chat", change, now=11.0)
    assert settle(store, "InService").status == "InService"
    updated = store.update_component("chat", change, now=12.0)
    assert (updated.desired.status, updated.desired.copies, updated.request) == (
        "Updating", 3, {"new": 1},
    )  # fmt: skip
    assert updated.desired.target == replace(REVISION, number=2)
    done = settle(store, "InService", active_revision=2)
    assert (done.active.number, done.target, done.status) == (2, None, "InService")
    again = store.update_component("chat", ComponentChange(revision=REVISION), now=13.0)
    assert (again.desired.copies, again.desired.target) == (3, replace(REVISION, number=3))


def test_an_update_that_failed_leaves_what_was_asked_for_before(store: Store) -> None:
    endpoint(store)
    create(store)
    settle(store, "InService")
    change = ComponentChange(revision=REVISION, request={"new": 1})
    store.update_component("chat", change, now=12.0)
    failed = settle(store, "InService", failure_reason="why", active_revision=1)
    assert (failed.active.number, failed.target) == (1, None)
    record = store.describe_component("chat")
    assert (record.failure_reason, record.request) == ("why", {"RuntimeConfig": {"CopyCount": 2}})


def test_which_alarms_rang_before_a_revision_is_kept_with_it_until_it_goes_back(
    store: Store,
) -> None:
    endpoint(store)
    create(store)
    settle(store, "InService")
    store.update_component("chat", ComponentChange(revision=REVISION), now=12.0)
    under_way = settle(store, "Updating", rang=("slow",))
    assert under_way.target == replace(REVISION, number=2, rang=("slow",))
    assert settle(store, "Updating").target == under_way.target
    back = settle(store, "Updating", goes_back="it rang")
    assert settle(store, "Updating", rang=()).target == back.target


def test_a_status_that_was_decided_for_another_count_is_not_recorded(store: Store) -> None:
    """The autoscaler has asked for more since: that is on its way, and not in service."""
    endpoint(store)
    create(store)
    settle(store, "InService")
    store.update_component("chat", ComponentChange(copies=3), now=12.0)
    assert settle(store, "InService", copies=2).status == "Updating"
    assert settle(store, "InService", copies=3).status == "InService"


def test_the_autoscaler_sets_copies_also_while_a_change_is_under_way(store: Store) -> None:
    endpoint(store)
    create(store)
    database = store

    def set_copies(copies: int) -> ComponentSpec:
        with database.begin() as db:
            return components.set_copies(db, "chat", copies, now=15.0).desired

    with pytest.raises(ComponentBusy):
        set_copies(4)
    settle(store, "InService")
    assert (set_copies(2).status, store.describe_component("chat").modified) == ("InService", 20.0)
    assert (set_copies(4).status, set_copies(5).copies) == ("Updating", 5)
    assert store.describe_component("chat").request == {"RuntimeConfig": {"CopyCount": 5}}
    assert set_copies(0).copies == 0
    store.delete_component("chat", now=16.0)
    with pytest.raises(ComponentBusy):
        set_copies(1)
    with pytest.raises(NotFound), database.begin() as db:
        components.set_copies(db, "nobody", 1, now=15.0)


def test_a_deletion_wins_over_whatever_reconciliation_came_to(store: Store) -> None:
    endpoint(store)
    create(store)
    store.delete_component("CHAT", now=12.0)
    assert settle(store, "InService").status == "Deleting"
    assert store.delete_component("chat", now=13.0).modified == 12.0
    assert store.forget_component("Shop", "Chat").components == ()
    with pytest.raises(NotFound):
        store.describe_component("chat")
    assert store.list_tags(f"{ARN}inference-component/Chat") == {}
    # Nothing to forget is no mistake, and one that is not Deleting is not forgotten.
    store.forget_component("Shop", "Chat")
    create(store)
    assert len(store.forget_component("Shop", "Chat").components) == 1


def test_an_endpoint_takes_its_components_along(store: Store) -> None:
    endpoint(store)
    endpoint(store, "Other")
    create(store)
    create(store, "stays", endpoint="other")
    deleting = store.begin_delete("shop", now=12.0)
    assert [one.status for one in deleting.components] == ["Deleting"]
    store.finish_delete("shop")
    with pytest.raises(NotFound):
        store.describe_component("chat")
    assert store.list_tags(f"{ARN}inference-component/Chat") == {}
    assert store.describe_component("stays").desired.status == "Creating"


def test_lists_are_filtered_by_endpoint_variant_status_and_name(store: Store) -> None:
    endpoint(store)
    endpoint(store, "Other")
    for at, (name, where) in enumerate((("a1", "shop"), ("a2", "shop"), ("b1", "other"))):
        create(store, name, now=10.0 + at, endpoint=where)
    settle(store, "InService", "a2")

    def names(**query: Any) -> list[str]:
        return [one.name for one in store.list_components(ListQuery(**query)).items]

    assert names() == ["b1", "a2", "a1"]
    assert names(endpoint_equals="SHOP") == ["a2", "a1"]
    assert names(endpoint_equals="shop", status_equals="InService") == ["a2"]
    assert names(variant_equals="blue", name_contains="1") == ["b1", "a1"]
    assert names(variant_equals="green") == []
    assert names(created_after=11.0, created_before=12.0) == ["a2"]
    assert names(sort_by="Status", sort_order="Ascending") == ["a1", "b1", "a2"]
    first = store.list_components(ListQuery(max_results=2, endpoint_equals="shop"))
    assert ([one.name for one in first.items], first.next_token) == (["a2", "a1"], "")
    first = store.list_components(ListQuery(max_results=2))
    second = store.list_components(ListQuery(max_results=2, next_token=first.next_token))
    assert [one.name for one in second.items] == ["a1"]


ADAPTER = ComponentRevision(
    number=1, model=ModelSource(model_name="lora", uri="file:///a"), need=CopySpec(), base="Chat"
)


def test_an_adapter_needs_a_base_that_is_in_service_beside_it(store: Store) -> None:
    endpoint(store)
    with pytest.raises(NotFound):
        create(store, "lora", revision=ADAPTER, copies=0)
    create(store)
    with pytest.raises(BaseUnfit, match="it is Creating"):
        create(store, "lora", revision=ADAPTER, copies=0)
    settle(store, "InService")
    create(store, "lora", revision=ADAPTER, copies=0)
    assert settle(store, "InService", "lora").base == "Chat"
    again = replace(ADAPTER, base="lora")
    with pytest.raises(BaseUnfit, match="it is an adapter itself"):
        create(store, "second", revision=again, copies=0)
    endpoint(store, "Other")
    with pytest.raises(BaseUnfit, match="not on variant blue of endpoint Other"):
        create(store, "third", endpoint="other", revision=ADAPTER, copies=0)
    store.update_component("chat", ComponentChange(copies=3), now=30.0)
    create(store, "fourth", revision=ADAPTER, copies=0)  # a base that changes still serves


def test_a_base_goes_after_its_adapters(store: Store) -> None:
    endpoint(store)
    create(store)
    settle(store, "InService")
    for name in ("b", "A"):
        create(store, name, revision=ADAPTER, copies=0)
    with pytest.raises(HasAdapters) as refused:
        store.delete_component("chat", now=30.0)
    assert refused.value.adapters == ("A", "b")
    settle(store, "Failed", "A")
    with pytest.raises(HasAdapters):
        store.delete_component("chat", now=30.0)
    for name in ("a", "B"):
        store.delete_component(name, now=31.0)
    assert store.delete_component("chat", now=32.0).status == "Deleting"


def test_an_endpoint_takes_bases_and_adapters_along(store: Store) -> None:
    endpoint(store)
    create(store)
    settle(store, "InService")
    create(store, "lora", revision=ADAPTER, copies=0)
    store.begin_delete("shop", now=30.0)
    assert store.describe_component("lora").desired.status == "Deleting"


def test_a_component_that_can_not_be_read_spoils_only_itself(store: Store) -> None:
    endpoint(store)
    create(store)
    create(store, "Witness")
    with store.begin() as db:
        table = schema.inference_components
        db.execute(update(table).where(table.c.key == "chat").values(active="{", target="{"))
    assert [one.name for one in store.describe_endpoint("shop").components] == ["Witness"]
    assert [one.name for one in store.all_endpoints()] == ["Shop"]
    listed = store.list_components(ListQuery()).items
    assert [(one.name, one.endpoint, one.variant) for one in listed] == [
        ("Witness", "Shop", "blue"),
        ("Chat", "Shop", "blue"),
    ]
    with pytest.raises(UnreadableRecord, match='inference component "Chat"'):
        store.describe_component("chat")
    assert store.delete_component("chat", now=30.0).endpoint == "Shop"
    assert [one.name for one in store.list_components(ListQuery()).items] == ["Witness"]
    assert store.delete_component("witness", now=31.0).status == "Deleting"

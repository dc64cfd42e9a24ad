"""`control/store/store.py` on SQLite and PostgreSQL: what is recorded, refused, listed and kept."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from penstock.control.database import schema
from penstock.control.store.records import (
    AlreadyExists,
    EndpointBusy,
    InvalidToken,
    ListQuery,
    NotFound,
    TooManyTags,
    UnknownVariant,
    UnreadableRecord,
)
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.rollout.policy import RolloutPolicy, RolloutProgress, RolloutSize
from penstock.errors import CallerError, NotNowError

ARN = "arn:aws:sagemaker:us-east-1:123456789012:"


def deployment(config: str = "config-a", *, count: int = 1) -> DeploymentSpec:
    model = ModelSource(model_name="intent", uri="file:///m", environment=(("A", "1"), ("B", "2")))
    return DeploymentSpec(
        endpoint="",
        generation=0,
        config_name=config,
        variants=(
            VariantSpec(
                name="blue", model=model, instance_type="ml.m5.large", instance_count=count
            ),
            VariantSpec(
                name="green", model=model, instance_type="ml.m5.large", instance_count=1, weight=0.0
            ),
        ),
    )


def create(store: Store, name: str = "Shop", *, now: float = 100.0) -> None:
    store.create_endpoint(name, deployment(), arn=f"{ARN}endpoint/{name}", now=now)


def in_service(store: Store, name: str = "Shop") -> None:
    create(store, name)
    store.set_status(name, "InService", now=101.0, active_generation=1)


def model(store: Store, name: str, *, now: float = 100.0) -> None:
    store.create_model(name, {"ModelName": name}, arn=f"{ARN}model/{name}", now=now)


def test_a_model_is_what_its_request_said(store: Store) -> None:
    request = {"ModelName": "Intent", "PrimaryContainer": {"Environment": {"A": "ü"}}}
    store.create_model("Intent", request, arn=f"{ARN}model/Intent", now=12.345)
    record = store.describe_model("Intent")
    assert (record.name, record.arn) == ("Intent", f"{ARN}model/Intent")
    assert (record.request, record.created) == (request, 12.345)


def test_names_keep_their_case_and_are_compared_without_it(store: Store) -> None:
    model(store, "Intent")
    assert store.describe_model("iNTENT").name == "Intent"
    with pytest.raises(AlreadyExists) as raised:
        model(store, "INTENT")
    assert raised.value.arn == f"{ARN}model/Intent"
    assert raised.value.message == f'Cannot create already existing model "{ARN}model/Intent".'


def test_what_is_deleted_is_gone_with_its_tags(store: Store) -> None:
    store.create_model("m", {}, arn=f"{ARN}model/m", now=1.0, tags={"team": "search"})
    assert store.list_tags(f"{ARN}model/m") == {"team": "search"}
    store.delete_model("M")
    assert store.list_tags(f"{ARN}model/m") == {}
    for call in (store.describe_model, store.delete_model):
        with pytest.raises(NotFound):
            call("m")


def test_a_configuration_needs_its_models(store: Store) -> None:
    with pytest.raises(NotFound) as raised:
        store.create_endpoint_config(
            "c", {}, arn=f"{ARN}endpoint-config/c", now=1.0, models=["intent"]
        )
    assert (raised.value.kind, raised.value.name) == ("model", "intent")
    with pytest.raises(NotFound):
        store.describe_endpoint_config("c")
    model(store, "intent")
    store.create_endpoint_config("c", {}, arn=f"{ARN}endpoint-config/c", now=1.0, models=["intent"])
    store.delete_model("intent")  # allowed: the configuration names it, no more
    assert store.describe_endpoint_config("c").name == "c"


def test_an_endpoint_is_created_with_a_snapshot_of_its_deployment(store: Store) -> None:
    create(store)
    record = store.describe_endpoint("shop")
    assert (record.status, record.failure_reason, record.config_name) == (
        "Creating",
        "",
        "config-a",
    )
    assert record.target == replace(deployment(), endpoint="Shop", generation=1)
    assert (record.active, record.previous) == (None, None)
    with pytest.raises(AlreadyExists):
        create(store, "SHOP")


def test_an_update_needs_an_endpoint_in_service(store: Store) -> None:
    create(store)
    for change in (
        lambda: store.begin_update("Shop", deployment("config-b"), now=2.0),
        lambda: store.update_weights("Shop", {}, now=2.0),
    ):
        with pytest.raises(EndpointBusy) as raised:
            change()
        assert raised.value.endpoint_status == "Creating"
    with pytest.raises(NotFound):
        store.begin_update("nobody", deployment(), now=2.0)


def test_an_update_is_a_new_generation_until_it_is_settled(store: Store) -> None:
    in_service(store)
    begun = store.begin_update("shop", deployment("config-b"), now=200.0)
    assert begun.target is not None
    assert (begun.status, begun.target.generation) == ("Updating", 2)
    assert begun.config_name == "config-a"  # the old one serves
    done = store.set_status("shop", "InService", now=300.0, active_generation=2)
    assert done is not None
    assert done.active == replace(deployment("config-b"), endpoint="Shop", generation=2)
    assert (done.target, done.modified, done.created) == (None, 300.0, 100.0)


def test_a_failed_update_drops_its_generation_and_the_next_one_gets_a_new_number(
    store: Store,
) -> None:
    in_service(store)
    store.begin_update("shop", deployment("config-b"), now=200.0)
    kept = store.set_status(
        "shop", "InService", now=300.0, failure_reason="it broke", active_generation=1
    )
    assert kept is not None
    assert (kept.config_name, kept.target, kept.failure_reason) == ("config-a", None, "it broke")
    begun = store.begin_update("shop", deployment("config-b"), now=400.0)
    assert begun.target is not None
    assert (begun.target.generation, begun.failure_reason) == (3, "")


def test_how_far_a_rollout_is_stays_with_its_generation_until_it_is_settled(store: Store) -> None:
    in_service(store)
    policy = RolloutPolicy(
        kind="CANARY",
        size=RolloutSize(kind="CAPACITY_PERCENT", value=25),
        wait_s=60.0,
        alarms=("errors", "slow"),
    )
    wanted = replace(deployment("config-b"), rollout=policy)
    begun = store.begin_update("shop", wanted, now=200.0)
    assert begun.target is not None
    assert (begun.target.rollout, begun.progress) == (policy, None)
    creating = RolloutProgress(stage="creating", began=210.0, since=210.0)
    baking = replace(creating, stage="baking", since=220.0, step=1, share=0.25)
    for progress, now in ((creating, 210.0), (baking, 220.0)):
        stored = store.set_rollout("SHOP", 2, progress, now=now)
        assert stored == store.describe_endpoint("shop")
        assert (stored.progress, stored.desired().progress, stored.modified) == (
            progress, progress, now,
        )  # fmt: skip
    done = store.set_status("shop", "InService", now=300.0, active_generation=2)
    assert done is not None
    assert (done.active, done.progress) == (
        replace(wanted, endpoint="Shop", generation=2), None,
    )  # fmt: skip
    again = store.begin_update("shop", wanted, now=400.0)
    assert again.progress is None
    with store.read() as db:
        kept = db.scalars(select(schema.deployments.c.progress)).all()
    assert kept == [None, None]


def test_how_far_a_rollout_was_is_dropped_with_its_generation(store: Store) -> None:
    in_service(store)
    progress = RolloutProgress(stage="baking", began=1.0, since=2.0, step=1, share=0.5)
    store.begin_update("shop", deployment("config-b"), now=200.0)
    store.set_rollout("shop", 2, progress, now=210.0)
    back = store.set_status("shop", "InService", now=300.0, active_generation=1)
    assert back is not None
    assert (back.config_name, back.progress) == ("config-a", None)
    assert store.begin_update("shop", deployment("config-b"), now=400.0).progress is None


def test_the_progress_of_a_rollout_that_is_over_changes_nothing(store: Store) -> None:
    progress = RolloutProgress(stage="creating", began=1.0, since=1.0)
    assert store.set_rollout("shop", 1, progress, now=90.0) is None
    in_service(store)
    begun = store.begin_update("shop", deployment("config-b"), now=200.0)
    for generation in (1, 3):
        assert store.set_rollout("shop", generation, progress, now=210.0) == begun
    deleting = store.begin_delete("shop", now=220.0)
    assert store.set_rollout("shop", 2, progress, now=230.0) == deleting


def test_weights_and_counts_change_within_the_generation(store: Store) -> None:
    in_service(store)
    changed = store.update_weights("shop", {"blue": (2.5, 3), "green": (1.0, None)}, now=200.0)
    assert changed.active is not None
    assert changed.previous is not None
    assert [(v.weight, v.instance_count) for v in changed.active.variants] == [(2.5, 3), (1.0, 1)]
    assert [(v.weight, v.instance_count) for v in changed.previous.variants] == [(1.0, 1), (0.0, 1)]
    assert (changed.status, changed.active.generation) == ("Updating", 1)
    done = store.set_status("shop", "InService", now=300.0, active_generation=1)
    assert done is not None
    assert (done.active, done.previous) == (changed.active, None)


def test_a_count_out_of_reach_is_restored(store: Store) -> None:
    in_service(store)
    before = store.describe_endpoint("shop").active
    store.update_weights("shop", {"blue": (2.5, 99)}, now=200.0)
    restored = store.set_status(
        "shop", "InService", now=300.0, active_generation=1, restore_previous=True
    )
    assert restored is not None
    assert (restored.active, restored.previous) == (before, None)


def test_a_variant_that_does_not_exist_changes_nothing(store: Store) -> None:
    in_service(store)
    with pytest.raises(UnknownVariant) as raised:
        store.update_weights("shop", {"blue": (9.0, 9), "red": (1.0, 1)}, now=200.0)
    assert raised.value.hint == "Its variants are blue, green."
    assert store.describe_endpoint("shop").status == "InService"


def test_a_deletion_wins_over_what_reconciliation_finds_out(store: Store) -> None:
    create(store)
    assert store.begin_delete("shop", now=150.0).status == "Deleting"
    assert store.begin_delete("shop", now=160.0).modified == 150.0  # once is enough
    late = store.set_status("shop", "InService", now=170.0, active_generation=1)
    assert late is not None
    assert late.status == "Deleting"
    store.finish_delete("shop")
    store.finish_delete("shop")
    assert store.set_status("shop", "Failed", now=180.0) is None
    with pytest.raises(NotFound):
        store.begin_delete("shop", now=190.0)
    create(store)  # the name is free again
    assert store.describe_endpoint("shop").status == "Creating"


def test_what_is_on_its_way_is_known_by_name(store: Store) -> None:
    in_service(store, "settled")
    create(store, "Creating")
    in_service(store, "updating")
    store.begin_update("updating", deployment("config-b"), now=2.0)
    create(store, "deleting")
    store.begin_delete("deleting", now=2.0)
    create(store, "failed")
    store.set_status("failed", "Failed", now=2.0)
    assert store.unsettled_endpoints() == ["Creating", "deleting", "updating"]


def test_only_what_is_being_deleted_can_be_finished(store: Store) -> None:
    create(store)
    store.finish_delete("shop")
    assert store.describe_endpoint("shop").status == "Creating"


def test_a_server_takes_endpoints_up_oldest_first(store: Store) -> None:
    for name, now in (("b", 1.0), ("a", 1.0), ("c", 0.5)):
        create(store, name, now=now)
    assert [record.name for record in store.all_endpoints()] == ["c", "a", "b"]


def names(store: Store, **query: object) -> list[str]:
    page = store.list_models(ListQuery(**query))  # type: ignore[arg-type]
    return [item.name for item in page.items]


def test_lists_filter_as_aws_does(store: Store) -> None:
    for number, name in enumerate(("Alpha", "beta_1", "beta-2", "betaX1")):
        model(store, name, now=100.0 + number)
    assert names(store) == ["betaX1", "beta-2", "beta_1", "Alpha"]  # newest first
    assert names(store, name_contains="ETA") == ["betaX1", "beta-2", "beta_1"]
    assert names(store, name_contains="_") == ["beta_1"]  # no wildcard
    assert names(store, name_contains="%") == []
    assert names(store, created_after=102.0) == ["betaX1", "beta-2"]  # at or after
    assert names(store, created_before=101.0) == ["Alpha"]  # strictly before
    assert names(store, modified_after=103.0) == ["betaX1"]
    assert names(store, modified_before=100.5) == ["Alpha"]
    with pytest.raises(CallerError) as raised:
        names(store, sort_by="Status")  # models have none
    assert raised.value.code == "invalid-sort-by"


def test_endpoints_are_listed_by_status(store: Store) -> None:
    in_service(store, "a")
    create(store, "b")
    create(store, "c")
    page = store.list_endpoints(ListQuery(status_equals="Creating", sort_by="Name"))
    assert [item.name for item in page.items] == ["c", "b"]
    page = store.list_endpoints(ListQuery(sort_by="Status", sort_order="Ascending"))
    assert [item.name for item in page.items] == ["b", "c", "a"]


def test_a_row_that_can_not_be_read_is_listed_and_left_out_of_what_a_start_brings_back(
    store: Store,
) -> None:
    for name in ("a-bad", "witness"):
        model(store, name)
        in_service(store, name)
    with store.begin() as db:
        for table in (schema.models, schema.endpoints):
            db.execute(update(table).where(table.c.key == "a-bad").values(request="{"))
    assert names(store) == ["witness", "a-bad"]
    listed = store.list_endpoints(ListQuery()).items
    assert [(one.name, one.status) for one in listed] == [
        ("witness", "InService"),
        ("a-bad", "InService"),
    ]
    assert [one.name for one in store.all_endpoints()] == ["witness"]
    with store.begin() as db:
        db.execute(update(schema.endpoints).values(request="{}"))
        bad = schema.deployments.c.endpoint_key == "a-bad"
        db.execute(update(schema.deployments).where(bad).values(spec='{"version": 9}'))
    assert [one.name for one in store.all_endpoints()] == ["witness"]


@pytest.mark.parametrize("text", ["", "{", "[7]", "null", '"9"'])
def test_what_can_not_be_read_says_so_and_can_be_deleted(store: Store, text: str) -> None:
    model(store, "a-bad")
    in_service(store, "a-bad")
    with store.begin() as db:
        db.execute(update(schema.models).values(request=text))
        db.execute(update(schema.deployments).values(spec=text))
    with pytest.raises(UnreadableRecord, match='model "a-bad"'):
        store.describe_model("A-Bad")
    with pytest.raises(UnreadableRecord, match='endpoint "a-bad"'):
        store.describe_endpoint("A-Bad")
    with store.begin() as db:
        db.execute(delete(schema.deployments))
    with pytest.raises(UnreadableRecord, match="it has no deployment"):
        store.describe_endpoint("A-Bad")
    store.delete_model("a-bad")
    assert names(store) == []
    assert store.begin_delete("a-bad", now=150.0).status == "Deleting"
    (brought_back,) = store.all_endpoints()
    assert (brought_back.status, brought_back.active) == ("Deleting", None)
    store.finish_delete("a-bad")
    assert store.list_endpoints(ListQuery()).items == ()


@pytest.mark.parametrize("sort_by", ["Name", "CreationTime"])
@pytest.mark.parametrize("sort_order", ["Ascending", "Descending"])
def test_pages_hold_every_row_once_though_rows_come_and_go(
    store: Store, sort_by: str, sort_order: str
) -> None:
    """All were created in one moment: the name decides. A deletion moves no page's edge."""
    for number in range(7):
        model(store, f"m{number}", now=0.1 + 0.2)
    query = ListQuery(sort_by=sort_by, sort_order=sort_order, max_results=3)
    first = store.list_models(query)
    for item in first.items:
        store.delete_model(item.name)
    second = store.list_models(replace(query, next_token=first.next_token))
    third = store.list_models(replace(query, next_token=second.next_token, max_results=50))
    found = [item.name for page in (first, second, third) for item in page.items]
    everything = [f"m{number}" for number in range(7)]
    assert found == (everything if sort_order == "Ascending" else everything[::-1])
    assert third.next_token == ""


def test_a_page_that_is_exactly_full_is_the_last(store: Store) -> None:
    model(store, "a")
    model(store, "b")
    assert store.list_models(ListQuery(max_results=2)).next_token == ""


@pytest.mark.parametrize(
    "token",
    ["x", "ü", "!!!!", "bm90LWpzb24", base64.urlsafe_b64encode(b'["a",1,"b"]').decode(), "W10"],
)
def test_a_token_that_is_none_of_ours_is_refused(store: Store, token: str) -> None:
    model(store, "a")
    with pytest.raises(InvalidToken):
        store.list_models(ListQuery(next_token=token))


def test_a_token_belongs_to_its_list_filters_and_order(store: Store) -> None:
    for name in "abc":
        model(store, name)
    token = store.list_models(ListQuery(max_results=1)).next_token
    assert store.list_models(ListQuery(max_results=2, next_token=token)).items
    for query in (
        ListQuery(next_token=token, name_contains="a"),
        ListQuery(next_token=token, sort_order="Ascending"),
        ListQuery(next_token=token, sort_by="Name"),
    ):
        with pytest.raises(InvalidToken):
            store.list_models(query)
    with pytest.raises(InvalidToken):
        store.list_endpoint_configs(ListQuery(next_token=token))


def test_tags_are_added_overwritten_and_deleted(store: Store) -> None:
    arn = f"{ARN}endpoint/Shop"
    assert store.add_tags(arn, {"b": "1", "a": "2"}) == {"a": "2", "b": "1"}
    assert store.add_tags(arn.upper(), {"a": "3"}) == {"a": "3", "b": "1"}
    store.delete_tags(arn, ["a", "never-there"])
    assert store.list_tags(arn) == {"b": "1"}
    store.delete_tags(arn, [])
    assert store.add_tags(arn, {}) == {"b": "1"}


def test_fifty_tags_are_the_limit(store: Store) -> None:
    arn = f"{ARN}endpoint/Shop"
    store.add_tags(arn, {f"k{number}": "" for number in range(50)})
    store.add_tags(arn, {"k1": "again"})
    with pytest.raises(TooManyTags):
        store.add_tags(arn, {"one": "more"})
    assert len(store.list_tags(arn)) == 50


def test_an_arn_names_what_exists(store: Store) -> None:
    create(store)
    assert store.arn_exists(f"{ARN}endpoint/shop")
    assert not store.arn_exists(f"{ARN}endpoint/other")
    assert not store.arn_exists(f"{ARN}model/shop")
    assert not store.arn_exists("arn:aws:sagemaker:eu-west-1:123456789012:endpoint/shop")
    assert not store.arn_exists("nonsense")


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Store(tmp_path / "s")
    in_service(first)
    model(first, "m")
    first.close()
    again = Store(tmp_path / "s")
    assert again.describe_endpoint("shop").active is not None
    assert again.describe_model("m").name == "m"
    again.close()


def test_the_state_is_the_users_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    model(store, "m")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "s").iterdir()}
    assert "penstock.db" in modes
    assert set(modes.values()) == {0o600}, modes
    store.close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    model(store, "kept")
    with store.begin() as db:
        pages = db.exec_driver_sql("PRAGMA page_count").scalar()
        db.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(NotNowError) as raised:
        store.create_model("large", {"blob": "x" * 100_000}, arn=f"{ARN}model/large", now=1.0)
    assert raised.value.code == "state-not-writable"
    assert str(tmp_path / "s") in raised.value.message
    assert names(store) == ["kept"]
    store.close()


def test_a_damaged_database_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_bytes(b"this is no database, and never was one" * 100)
    with pytest.raises(CallerError) as raised:
        Store(tmp_path)
    assert raised.value.code == "state-damaged"


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "postgresql+nodriver://x/y", "://"])
def test_a_database_url_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CallerError) as raised:
        Store(tmp_path, url)
    assert raised.value.code == "database-url-invalid"


def test_a_database_that_does_not_answer_is_told_in_words(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    with pytest.raises(NotNowError) as raised:
        Store(tmp_path, f"postgresql://nobody:secret@/nowhere?host={tmp_path}")
    assert raised.value.code == "database-unreachable"
    assert "secret" not in raised.value.message

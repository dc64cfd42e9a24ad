"""Served names in the store: unique among endpoints and names of endpoints, gone when they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.control.test_control_store import ARN, create, deployment, in_service

from penstock.control.store.records import AlreadyExists, ServedNameTaken
from penstock.control.store.store import Store
from penstock.core.deployment.served_names import MODELS, TAG
from penstock.errors import CallerError


def arn(endpoint: str) -> str:
    return f"{ARN}endpoint/{endpoint}"


def create_as(store: Store, endpoint: str, served: str) -> None:
    store.create_endpoint(endpoint, deployment(), arn=arn(endpoint), now=100.0, tags={TAG: served})


def names(store: Store, endpoint: str) -> dict[str, str]:
    record = store.describe_endpoint(endpoint)
    assert record.desired().served_names == record.served_names
    return record.served_names


def test_an_endpoint_has_the_names_that_its_tags_say(store: Store) -> None:
    create_as(store, "Shop", "densenet_onnx Qwen/Qwen3-0.6B")
    assert names(store, "shop") == {"densenet_onnx": "", "Qwen/Qwen3-0.6B": ""}
    store.add_tags(arn("Shop"), {f"{TAG}:2": "m=team/m.tar.gz", "team": "search"})
    assert names(store, "shop")["m"] == "team/m.tar.gz"
    store.delete_tags(arn("Shop"), [TAG])
    assert names(store, "shop") == {"m": "team/m.tar.gz"}
    assert [one.served_names for one in store.all_endpoints()] == [{"m": "team/m.tar.gz"}]


@pytest.mark.parametrize(
    ("taken", "by"),
    [
        ("densenet_onnx", "first"),
        ("DENSENET_ONNX", "first"),
        ("densenet_onnx=target", "first"),
        ("other densenet_onnx", "first"),
        ("first", "first"),
        ("First", "first"),
        ("first:a", "first"),
        ("first:a:b", "first"),
        (MODELS, "first"),
    ],
)
def test_a_name_of_another_endpoint_is_refused_with_that_endpoints_name(
    store: Store, taken: str, by: str
) -> None:
    create_as(store, "first", f"densenet_onnx {MODELS}")
    with pytest.raises(ServedNameTaken) as raised:
        create_as(store, "second", taken)
    assert f'"{by}"' in raised.value.message
    with pytest.raises(CallerError):
        store.describe_endpoint("second")  # all of it is one transaction
    create(store, "second")
    with pytest.raises(ServedNameTaken):
        store.add_tags(arn("second"), {"team": "search", f"{TAG}:9": taken})
    assert store.list_tags(arn("second")) == {}
    assert names(store, "second") == {}


@pytest.mark.parametrize("endpoint", ["shop", "SHOP"])
@pytest.mark.parametrize("served", ["shop", "shop:a"])
def test_an_endpoint_is_not_made_where_its_name_is_served(
    store: Store, endpoint: str, served: str
) -> None:
    create_as(store, "first", served)
    with pytest.raises(ServedNameTaken, match='"first"'):
        create(store, endpoint)


def test_an_endpoint_may_be_served_under_its_own_name_and_below_it(store: Store) -> None:
    create_as(store, "shop", "Shop shop:best")
    store.add_tags(arn("shop"), {TAG: "Shop shop:best shop:other"})
    assert set(names(store, "shop")) == {"Shop", "shop:best", "shop:other"}


def test_the_names_of_other_things_do_not_matter(store: Store) -> None:
    """SageMaker's SDK gives model, configuration and endpoint the same tags."""
    tags = {TAG: "densenet_onnx"}
    store.create_model("m", {}, arn=f"{ARN}model/m", now=1.0, tags=tags)
    store.add_tags(f"{ARN}model/m", {TAG: "no name of a model/"})
    create_as(store, "first", "densenet_onnx")


def delete(store: Store) -> None:
    store.begin_delete("first", now=102.0)
    with pytest.raises(ServedNameTaken):
        create_as(store, "second", "densenet_onnx")
    store.finish_delete("first")


def untag(store: Store) -> None:
    store.delete_tags(arn("first"), [TAG])


def retag(store: Store) -> None:
    store.add_tags(arn("first"), {TAG: "another"})


@pytest.mark.parametrize("free", [delete, untag, retag])
def test_a_name_is_free_again_once_its_endpoint_has_it_no_more(
    store: Store, free: Callable[[Store], None]
) -> None:
    create_as(store, "first", "densenet_onnx")
    free(store)
    create_as(store, "second", "densenet_onnx")


def test_an_endpoint_that_exists_is_still_said_to_exist(store: Store) -> None:
    in_service(store, "first")
    with pytest.raises(AlreadyExists):
        create_as(store, "first", "densenet_onnx")


def test_what_can_not_be_served_is_refused_and_nothing_is_written(store: Store) -> None:
    create(store, "first")
    with pytest.raises(CallerError) as raised:
        store.add_tags(arn("first"), {TAG: "a/infer", "team": "search"})
    assert raised.value.code == "served-name-invalid"
    assert store.list_tags(arn("first")) == {}


def test_a_tag_from_before_that_names_nothing_is_no_damage(store: Store) -> None:
    store.add_tags(f"{ARN}model/first", {TAG: "a/infer"})
    with store.begin() as db:
        db.exec_driver_sql(f"UPDATE tags SET arn_key = '{arn('first')}' WHERE name = '{TAG}'")
    create(store, "first")
    assert names(store, "first") == {}
    store.add_tags(arn("first"), {"team": "search"})
    create(store, "second")

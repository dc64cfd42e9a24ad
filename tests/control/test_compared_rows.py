"""`control/store/compared_pairs.py` on SQLite and PostgreSQL: what agreements have compared, as it
is on record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update
from tests.control.test_control_components import create as create_component
from tests.control.test_control_components import endpoint

from penstock.control.database import schema
from penstock.control.store.compared_pairs import ComparedPairs
from penstock.control.store.store import Store
from penstock.core.rollout.agreement import AgreementSpec
from penstock.metrics import item_failures

OWN = ComparedPairs(
    endpoint="Shop",
    rollout=1_764_000_000_000,  # more than 32 bits
    spec=AgreementSpec(scorer="judge", disagree_max=0.05),
    counts={"agree": 600, "unscored:model-error": 2},
)
CHAT = replace(OWN, component="Chat", rollout=2, counts={})
TARGET = replace(OWN, model="team/B", rollout=3, counts={"differ": 1})


@pytest.fixture
def shop(store: Store) -> Store:
    """An endpoint with a component, and the pairs of each of its things."""
    endpoint(store)
    create_component(store)
    store.put_compared([OWN, CHAT, TARGET])
    return store


def test_pairs_are_read_as_they_were_written_with_names_as_they_were_created(shop: Store) -> None:
    assert shop.all_compared() == [OWN, TARGET, CHAT]


def test_the_next_rollout_of_a_thing_replaces_the_one_before(shop: Store) -> None:
    after = replace(TARGET, rollout=4, spec=AgreementSpec(kind="exact"), counts={})
    shop.put_compared([after])
    assert shop.all_compared() == [OWN, after, CHAT]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("counts", "{"),
        ("counts", '{"agree": -1}'),
        ("counts", '{"an-outcome-of-a-newer-version": 1}'),
        ("spec", '{"a_member_of_a_newer_version": 1}'),
    ],
)
def test_a_row_that_cant_be_read_costs_no_other(shop: Store, column: str, text: str) -> None:
    table, before = schema.compared_pairs, item_failures.counts().get("compared-rows", 0)
    with shop.begin() as db:
        db.execute(update(table).where(table.c.model == "team/B").values({column: text}))
    assert shop.all_compared() == [OWN, CHAT]
    assert item_failures.counts()["compared-rows"] == before + 1
    shop.put_compared([TARGET])
    assert shop.all_compared() == [OWN, TARGET, CHAT]


def test_a_component_that_is_deleted_takes_its_pairs_along(shop: Store) -> None:
    shop.delete_component("chat", now=12.0)
    shop.forget_component("Shop", "Chat")
    shop.put_compared([CHAT])  # of a server that has not seen it
    create_component(shop)
    assert shop.all_compared() == [OWN, TARGET]


def test_a_component_that_cant_be_read_takes_its_pairs_along(shop: Store) -> None:
    with shop.begin() as db:
        db.execute(update(schema.inference_components).values(active="{"))
    shop.delete_component("chat", now=12.0)
    create_component(shop)
    assert shop.all_compared() == [OWN, TARGET]


def test_an_endpoint_that_is_deleted_takes_all_along(shop: Store) -> None:
    endpoint(shop, "Other")
    other = replace(OWN, endpoint="Other")
    shop.put_compared([other])
    shop.begin_delete("shop", now=12.0)
    shop.finish_delete("shop")
    shop.put_compared([OWN, CHAT])
    create_component(shop, endpoint="other")
    endpoint(shop)
    shop.put_compared([CHAT])  # the component of this name is on another endpoint now
    assert shop.all_compared() == [other]

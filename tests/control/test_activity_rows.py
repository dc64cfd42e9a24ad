"""`control/store/activities.py` on SQLite and PostgreSQL: why endpoints are as they are."""

from __future__ import annotations

from tests.control.test_control_components import endpoint

from penstock.control.store.activities import ACTIVITIES_MAX, Activity
from penstock.control.store.store import Store

FIRST = Activity(at=1.0, what="rollout baking: 10% of the traffic", reason="generation-ready")
AGAIN = Activity(at=9.0, what="status InService", reason="rolled-back", detail="in ALARM: errors")


def test_they_are_read_in_order_and_by_endpoint(store: Store) -> None:
    endpoint(store)
    endpoint(store, "other")
    for one in (FIRST, AGAIN):
        store.add_activity("Shop", one)
    store.add_activity("other", FIRST)
    assert store.all_activities() == {"shop": [FIRST, AGAIN], "other": [FIRST]}


def test_a_change_that_is_tried_again_is_one(store: Store) -> None:
    endpoint(store)
    for at in (1.0, 2.0, 3.0):
        store.add_activity("shop", Activity(at=at, what="status Failed", reason="no-room"))
    store.add_activity("shop", AGAIN)
    store.add_activity("shop", Activity(at=10.0, what="status Failed", reason="no-room"))
    assert [one.at for one in store.all_activities()["shop"]] == [1.0, 9.0, 10.0]


def test_of_each_endpoint_the_newest_are_kept(store: Store) -> None:
    endpoint(store)
    endpoint(store, "other")
    store.add_activity("other", FIRST)
    for number in range(ACTIVITIES_MAX + 5):
        store.add_activity("shop", Activity(at=float(number), what=str(number), reason="any"))
    found = store.all_activities()
    assert [one.at for one in found["shop"]] == [float(at) for at in range(5, ACTIVITIES_MAX + 5)]
    assert found["other"] == [FIRST]


def test_they_go_with_their_endpoint(store: Store) -> None:
    endpoint(store)
    store.add_activity("shop", FIRST)
    store.begin_delete("shop", now=2.0)
    store.finish_delete("shop")
    store.add_activity("shop", AGAIN)  # what was decided before it was gone
    assert store.all_activities() == {}

"""Recorded counts are read when something was written, by whomever, and else never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.kit.scaling import VARIANT, ScalingSite

from penstock.control.store.store import Store

NAMES = tuple(f"chat-{number}" for number in range(5))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScalingSite]:
    made = ScalingSite(tmp_path)
    for name in NAMES:
        made.endpoint(name)
        target = VARIANT | {"ResourceId": f"endpoint/{name}/variant/all"}
        made.client().register_scalable_target(**target, MinCapacity=1, MaxCapacity=9)
    yield made
    made.close()


def reads(site: ScalingSite, looks: int) -> int:
    """The SELECT statements of so many looks, a second apart."""
    found: list[str] = []
    engine = site.database._store._engine  # type: ignore[union-attr]

    def note(_db: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.startswith("SELECT"):
            found.append(statement)

    async def all_looks() -> None:
        for _ in range(looks):
            site.clock.advance(1.0)
            await site.driver.tick()

    event.listen(engine, "before_cursor_execute", note)
    site.run(all_looks())
    event.remove(engine, "before_cursor_execute", note)
    return len(found)


def counted(site: ScalingSite, name: str) -> int | None:
    """The count that the last look at an endpoint saw."""
    seen = site.driver.looks()[f"endpoint/{name}/variant/all", VARIANT["ScalableDimension"]]
    return None if seen is None else seen.capacity


def test_without_a_write_no_look_reads_anything(site: ScalingSite) -> None:
    reads(site, 1)
    assert reads(site, 30) == 0
    assert [counted(site, name) for name in NAMES] == [1] * len(NAMES)


def test_the_next_look_sees_what_this_server_wrote(site: ScalingSite) -> None:
    reads(site, 2)
    site.call(Store.update_weights, "chat-3", {"all": (None, 4)}, now=3.0)
    assert reads(site, 1) > 0
    assert counted(site, "chat-3") == 4
    assert reads(site, 10) == 0


def test_the_next_look_sees_what_another_process_wrote(site: ScalingSite, tmp_path: Path) -> None:
    reads(site, 2)
    other = Store(tmp_path)  # a connection of its own, as another process has one
    other.update_weights("chat-1", {"all": (None, 7)}, now=3.0)
    other.close()
    reads(site, 1)
    assert counted(site, "chat-1") == 7


def test_a_server_that_takes_over_begins_with_what_is_recorded(
    site: ScalingSite, tmp_path: Path
) -> None:
    reads(site, 2)
    site.call(Store.update_weights, "chat-2", {"all": (None, 6)}, now=3.0)
    site.close()
    later = ScalingSite(tmp_path)
    reads(later, 1)
    assert counted(later, "chat-2") == 6
    later.close()


def test_a_write_that_failed_may_have_taken_effect(site: ScalingSite) -> None:
    """A COMMIT whose answer was lost: nobody knows, so the counts are read again."""
    reads(site, 2)

    def fails(store: Store) -> None:
        with store.begin():
            raise ConnectionError

    with pytest.raises(ConnectionError):
        site.call(fails)
    assert reads(site, 1) > 0

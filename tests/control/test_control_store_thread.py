"""`control/store/store_thread.py`: the store for asynchronous code, one call at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.kit import databases

from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.errors import CallerError, NotNowError

pytestmark = pytest.mark.usefixtures("on_each_database")


async def test_calls_that_meet_are_carried_out_in_their_order(tmp_path: Path) -> None:
    database = StoreThread(lambda: databases.opened(tmp_path))
    await database.open()
    await asyncio.gather(
        *(
            database.call(Store.create_model, f"m{number}", {}, arn="", now=float(number))
            for number in range(20)
        )
    )
    page = await database.call(
        Store.list_models, ListQuery(sort_order="Ascending", max_results=100)
    )
    assert [item.name for item in page.items] == [f"m{number}" for number in range(20)]
    await database.close()
    await database.close()
    with pytest.raises(NotNowError) as raised:
        await database.call(Store.list_models, ListQuery())
    assert raised.value.code == "server-stopping"


async def test_opening_raises_what_the_store_raises(tmp_path: Path) -> None:
    database = StoreThread(lambda: Store(tmp_path, "nonsense"))
    with pytest.raises(CallerError):
        await database.open()
    await database.close()


async def test_a_caller_that_gives_up_does_not_undo_what_was_begun(tmp_path: Path) -> None:
    """A client that disconnects in the middle of CreateModel: all or nothing, never a half."""
    database = StoreThread(lambda: databases.opened(tmp_path))
    await database.open()
    call = asyncio.create_task(database.call(Store.create_model, "m", {}, arn="", now=1.0))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert (await database.call(Store.describe_model, "m")).name == "m"
    await database.close()

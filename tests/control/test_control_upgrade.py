"""A database of an older version is brought to this one when it is opened, and nothing is lost.

`schema_1.sql` is a database as the version before scopes wrote it, with one key of each kind. They
open nothing anywhere else.
"""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.control.keys import AccessKeys
from penstock.control.records import ListQuery
from penstock.control.schema import MIGRATIONS, SCHEMA_VERSION
from penstock.control.store import Store
from penstock.core.grants import Grant

OLD = Path(__file__).with_name("schema_1.sql")
SIGV4_ID, SIGV4_SECRET = "PENSIHA7XKWQ75B7FD2N", "FBGhTseSHKgQm38uJwAFatBmGi18RqvbR73pFWB2"
BEARER_ID = "PDVGM5HXDG47G3JE"
BEARER_TOKEN = f"psk_{BEARER_ID}_noQnl4z0OF_QRi-UZzA_pL2CZEaz6koWGUMGU8Rbwxc"
KEY_FILE = b"waYBLi-sRtFbfPgij0WL6LDcX6G2MZ4zBmnWPyosHSc=\n"


@pytest.fixture
def old_state(tmp_path: Path) -> Path:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    with sqlite3.connect(state_dir / "penstock.db") as database:
        database.executescript(OLD.read_text())
    database.close()
    (state_dir / "keys.key").write_bytes(KEY_FILE)
    return state_dir


def test_keys_from_before_there_were_scopes_stay_what_they_were(old_state: Path) -> None:
    store = Store(old_state)
    ring = AccessKeys(store, old_state).ring()
    assert ring.secret(SIGV4_ID) == SIGV4_SECRET
    assert ring.bearer(BEARER_TOKEN) == BEARER_ID
    assert ring.grant(SIGV4_ID) == ring.grant(BEARER_ID) == Grant("admin")
    assert store.describe_model("shop").created == 1.0
    store.close()
    again = Store(old_state)  # the second time there is nothing left to do
    new = AccessKeys(again, old_state).create_bearer_key("new", now=3.0, grant=Grant("invoke"))
    assert {one.key_id for one in again.list_keys()} == {SIGV4_ID, BEARER_ID, new.key_id}
    again.close()


def test_tables_that_came_later_are_made_when_an_old_database_is_opened(old_state: Path) -> None:
    store = Store(old_state)
    assert store.list_components(ListQuery()).items == ()
    store.close()
    with sqlite3.connect(old_state / "penstock.db") as database:
        (version,) = database.execute("SELECT value FROM settings WHERE name = 'schema_version'")
    database.close()
    assert version == (str(SCHEMA_VERSION),)


def test_two_processes_may_open_an_old_database_at_once(old_state: Path) -> None:
    together = threading.Barrier(4)

    def opened(_number: int) -> int:
        together.wait()
        store = Store(old_state, exclusive=False)
        try:
            return len(store.list_keys())
        finally:
            store.close()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(opened, range(4))) == [2, 2, 2, 2]


def test_each_version_can_be_reached_from_the_one_before() -> None:
    assert sorted(MIGRATIONS) == list(range(2, SCHEMA_VERSION + 1))

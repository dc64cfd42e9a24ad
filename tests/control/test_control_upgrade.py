"""A database of an older version is brought to this one when it is opened, and nothing is lost.

`schema_1.sql` is a database as the version before scopes wrote it, with one key of each kind. They
open nothing anywhere else.
"""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

import penstock.jobs.offline  # noqa: F401 - the tables of offline work
from penstock.control.access.keys import AccessKeys
from penstock.control.database.connection import VERSION_TABLE, revision
from penstock.control.database.schema import SCHEMA_VERSION, metadata
from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.core.request.grants import Grant
from penstock.errors import CallerError

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
        store = Store(old_state)
        try:
            return len(store.list_keys())
        finally:
            store.close()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(opened, range(4))) == [2, 2, 2, 2]


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_every_older_database_comes_to_the_tables_of_a_new_one(
    tmp_path: Path, version: int
) -> None:
    """`schema_N.sql` is a database as the last code of that version wrote it."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    with sqlite3.connect(tmp_path / "old" / "penstock.db") as database:
        database.executescript(OLD.with_name(f"schema_{version}.sql").read_text())
    database.close()
    store = Store(tmp_path / "old")
    assert store.describe_model("shop").created == 1.0
    if version > 1:
        endpoint = store.describe_endpoint("shop")
        assert (endpoint.status, endpoint.active is not None) == ("InService", True)
        (key,) = store.list_keys()
        assert key.grant == Grant("invoke", frozenset({"shop"}))
    if version > 2:
        assert [one.name for one in store.list_components(ListQuery()).items] == ["Chat"]
    if version > 7:
        assert [one.incoming for one in store.describe_endpoint("many").targets] == ["b-2"]
    assert (store.all_compared(), store.all_activities()) == ([], {})
    store.close()
    Store(tmp_path / "new").close()
    assert described(tmp_path / "old") == described(tmp_path / "new")


def test_migrations_alone_come_to_the_tables_that_the_code_names(database_url: str) -> None:
    """On each database: from nothing, through every version, and nothing is left to be done."""
    engine = create_engine(
        database_url.replace("postgresql:", "postgresql+psycopg:") or "sqlite://"
    )
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "penstock.control:migrations")
        config.attributes["connection"] = connection
        newest = revision(SCHEMA_VERSION)
        assert ScriptDirectory.from_config(config).get_heads() == [newest]
        command.upgrade(config, "head")
        context = MigrationContext.configure(
            connection,
            opts={"version_table": VERSION_TABLE, "compare_server_default": False},
        )
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_newer_database_is_refused_by_this_version_and_by_those_before_alembic(
    tmp_path: Path,
) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as database:
        newer = revision(SCHEMA_VERSION + 1)
        database.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{newer}'")
        told = database.execute("SELECT value FROM settings WHERE name = 'schema_version'")
        assert told.fetchall() == [(str(SCHEMA_VERSION),)]
    database.close()
    with pytest.raises(CallerError) as raised:
        Store(tmp_path)
    assert raised.value.code == "state-too-new"


def described(state_dir: Path) -> dict[str, Any]:
    """Tables, columns, keys and indexes; columns that came later stand behind the others."""
    engine = create_engine(f"sqlite:///{state_dir / 'penstock.db'}")
    found = inspect(engine)
    tables = {
        name: (
            sorted(str(sorted(column.items(), key=str)) for column in found.get_columns(name)),
            found.get_pk_constraint(name)["constrained_columns"],
            sorted((one["name"], one["column_names"]) for one in found.get_indexes(name)),
        )
        for name in found.get_table_names()
    }
    engine.dispose()
    return tables

"""Databases for the store's tests: SQLite always, PostgreSQL where its programs are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import databases
from tests.kit.postgres import PostgresServer

from penstock.control.store.store import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """An empty database."""
    postgres.empty()
    return postgres.url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database, empty; SQLite's is in the state directory."""
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def on_each_database(database_url: str, tmp_path: Path) -> Iterator[None]:
    """The test's servers use it, and lead where there may be several."""
    databases.use(database_url)
    if database_url:
        databases.lead(tmp_path / "first")
    yield
    databases.use("")


@pytest.fixture
def store(database_url: str, tmp_path: Path) -> Iterator[Store]:
    """An empty store on each database."""
    opened = Store(tmp_path / "state", database_url)
    try:
        yield opened
    finally:
        opened.close()

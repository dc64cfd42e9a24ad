"""Databases for the store's tests: SQLite always, PostgreSQL where its programs are installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.control.store import Store


def _other_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL can't run as root, and there is no other user")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of our own, on a Unix socket in a directory of its own."""
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL's initdb and postgres are not on PATH")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed (extra `postgres`)")
    user = _other_user()
    root = Path(tempfile.mkdtemp(prefix="pst-pg-"))
    options: dict[str, Any] = {"cwd": "/", "stdout": subprocess.DEVNULL}
    if user is not None:
        shutil.chown(root, user)
        options["user"] = user
    subprocess.run(
        ["initdb", "-D", root / "data", "-A", "trust", "-U", "tester", "--no-sync"],
        check=True,
        **options,
    )
    server = subprocess.Popen(
        ["postgres", "-D", root / "data", "-k", root, "-c", "listen_addresses=", "-F"],
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        deadline = time.monotonic() + 60.0
        while "ready" not in _pid_file(root / "data"):
            assert server.poll() is None, "PostgreSQL did not start"
            assert time.monotonic() < deadline, "PostgreSQL is not ready"
            time.sleep(0.05)
        yield f"postgresql://tester@/postgres?host={root}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(root)


def _pid_file(data: Path) -> str:
    """PostgreSQL says in its pid file when it accepts connections."""
    path = data / "postmaster.pid"
    return path.read_text() if path.exists() else ""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store on each database."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    if url:
        _empty(url)
    opened = Store(tmp_path / "state", url)
    try:
        yield opened
    finally:
        opened.close()


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")

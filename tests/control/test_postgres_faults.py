"""A PostgreSQL that is slow, hangs, is full, read-only or gone: it is told, and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.postgres import PostgresServer

from penstock.control.database import connection as database
from penstock.control.leader.leadership import Leadership
from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.servers.election import ElectionSpec
from penstock.errors import NotNowError


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that this test may break."""
    made = PostgresServer()
    try:
        yield made.start()
    finally:
        made.remove()


def model(store: Store, name: str) -> None:
    store.create_model(name, {}, arn=name, now=1.0)


def models(store: Store) -> list[str]:
    return sorted(one.name for one in store.list_models(ListQuery()).items)


def fill(store: Store) -> None:
    large = {"x": [str(one * 7919 % 104729) for one in range(20_000)]}
    for number in range(200):
        store.create_model(f"m{number}", large, arn="a", now=1.0)


def until_done(call: Callable[[], Any], *, seconds: float = 30.0) -> None:
    """Again and again while it is only not possible now."""

    def done() -> bool:
        try:
            call()
        except NotNowError:
            return False
        return True

    wait_until(done, "what was asked for", seconds)


def test_one_that_is_gone_is_told_and_the_same_store_goes_on_when_it_is_back(
    tmp_path: Path, server: PostgresServer
) -> None:
    store = Store(tmp_path, server.url)
    model(store, "before")
    server.stop()
    for _ in range(3):
        with pytest.raises(NotNowError) as raised:
            model(store, "meanwhile")
        assert raised.value.code == "database-unreachable"
    server.start()
    until_done(lambda: model(store, "after"))
    assert models(store) == ["after", "before"]
    store.close()


async def test_one_that_hangs_is_given_up_and_what_waited_is_not_begun(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CALL_S_MAX", 0.5)
    store = StoreThread(lambda: Store(tmp_path, server.url))
    await store.open()
    await store.call(Store.list_models, ListQuery())
    server.pause()
    try:
        calls = [store.call(model, f"meanwhile-{number}") for number in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, NotNowError)
            assert error.code == "database-unreachable"
    finally:
        server.go_on()
    for _ in range(200):
        with contextlib.suppress(NotNowError):
            await store.call(model, "after")
            break
    found = await store.call(models)
    # The first one had been sent: whether it came to anything is not known.
    assert set(found) - {"meanwhile-0"} == {"after"}
    await store.close()


def test_one_that_only_reads_is_told(tmp_path: Path, postgres: PostgresServer) -> None:
    """As a replica that was not promoted, or one whose disk is full, is set by its operators."""
    postgres.empty()
    store = Store(tmp_path, postgres.url)
    model(store, "before")
    store.close()
    reading = Store(tmp_path, f"{postgres.url}&options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(NotNowError) as raised:
        model(reading, "meanwhile")
    assert raised.value.code == "state-not-writable"
    assert models(reading) == ["before"]
    reading.close()


def test_a_full_disk_is_told_and_what_there_is_can_be_read(tmp_path: Path) -> None:
    """No file of this server may be larger than two MiB, which is how full disks are made here."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    server = PostgresServer("--wal-segsize=1", prefix=("prlimit", f"--fsize={2 << 20}"))
    try:
        store = Store(tmp_path, server.start().url)
        model(store, "before")
        with pytest.raises(NotNowError) as raised:
            fill(store)
        assert raised.value.code == "state-not-writable", raised.value.message
        assert store.describe_model("before").name == "before"
        store.close()
    finally:
        server.remove()


def test_one_that_is_slow_is_waited_for_and_its_leader_keeps_the_lead(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Through a relay that holds back each piece for 50 ms."""
    postgres.empty()
    Store(tmp_path, postgres.url).close()

    async def run(url: str) -> None:
        spec = ElectionSpec()
        leader, other = (Leadership(url, name=name, spec=spec) for name in "ab")
        await leader.start()
        assert leader.epoch == 1
        await other.start()
        store = StoreThread(lambda: Store(tmp_path, url, term=leader.term))
        await store.open()
        deadline = time.monotonic() + 2 * spec.silent_s
        number = 0
        while time.monotonic() < deadline:
            number += 1
            await store.call(model, f"m{number}")
        assert (leader.epoch, other.epoch) == (1, 0)
        assert len(await store.call(models)) == min(number, 10)  # a page of them
        await store.close()
        await leader.close()
        await other.close()

    with relay(postgres, tmp_path / "relay", delay_s=0.05) as url:
        asyncio.run(run(url))


@contextlib.contextmanager
def relay(postgres: PostgresServer, folder: Path, *, delay_s: float) -> Iterator[str]:
    """The URL of a socket that leads to the server, later."""
    folder.mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / ".s.PGSQL.5432"))
    listening.listen()
    open_ones = [listening]

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(delay_s)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(postgres.root / ".s.PGSQL.5432"))
                open_ones.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        for one in open_ones:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

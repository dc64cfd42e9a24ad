"""`control/leader/`: one leads, its epoch is held by what it writes, and nobody else can write."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import psycopg
import pytest
from tests.kit.polling import wait_until

from penstock.control.database.leader_table import Term, following
from penstock.control.leader.leadership import Leadership
from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.core.servers.election import ElectionSpec
from penstock.errors import NotNowError

SPEC = ElectionSpec(beat_s=0.05, look_s=0.05, released_s=0.25, silent_s=0.6)
DEADLINE_S = 30.0


@pytest.fixture
def url(tmp_path: Path, postgres_url: str) -> str:
    """With the tables."""
    Store(tmp_path, postgres_url).close()
    return postgres_url


async def until(leadership: Leadership, *, leads: bool) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while bool(leadership.epoch) != leads:
            leadership.changed.clear()
            await leadership.changed.wait()


def model(store: Store, name: str) -> None:
    store.create_model(name, {}, arn=name, now=1.0)


async def test_the_first_leads_and_the_next_one_when_it_resigns(url: str) -> None:
    first, second = (Leadership(url, name=name, spec=SPEC) for name in ("first", "second"))
    first.address = "http://first"
    await first.start()
    await second.start()
    assert (first.epoch, second.epoch) == (1, 0)
    assert (second.seen.name, second.seen.address) == ("first", "http://first")
    await first.close()
    await until(second, leads=True)
    assert second.epoch == 2
    await second.close()


async def test_only_the_term_that_is_may_write_and_everybody_may_read(
    tmp_path: Path, url: str
) -> None:
    first, second = (Leadership(url, name=name, spec=SPEC) for name in ("first", "second"))
    await first.start()
    old = Store(tmp_path, url, term=first.term)
    follows = Store(tmp_path, url, term=following("other"))
    model(old, "a")
    with pytest.raises(NotNowError) as raised:
        model(follows, "b")
    assert (raised.value.code, raised.value.retry_after_s) == ("not-the-leader", 2.0)
    await second.start()
    await first.close()
    await until(second, leads=True)
    with pytest.raises(NotNowError) as raised:
        model(old, "c")
    assert raised.value.code == "not-the-leader"
    with Store(tmp_path, url, term=second.term).read():  # opening it needs no term
        pass
    assert [one.name for one in old.list_models(ListQuery()).items] == ["a"]
    for store in (old, follows):
        store.close()
    await second.close()


def test_a_takeover_ends_a_transaction_that_its_leader_has_left_open(
    tmp_path: Path, url: str
) -> None:
    """A leader was stopped between its check and its commit: it holds the epoch, and would for
    ever. Its connections are ended; when it goes on, its commit fails."""
    paused = Leadership(url, name="paused", spec=SPEC)

    async def lead_and_stop() -> Term:
        await paused.start()
        assert paused._task is not None
        paused._task.cancel()  # as a stopped process: nothing more comes of it
        return paused.term

    term = asyncio.run(lead_and_stop())
    store = Store(tmp_path, url, term=term)

    async def take_over() -> None:
        other = Leadership(url, name="other", spec=SPEC)
        await other.start()
        await until(other, leads=True)
        assert other.epoch == term.epoch + 1
        new = Store(tmp_path, url, term=other.term)
        model(new, "new")
        new.close()
        await other.close()

    def write() -> None:
        with store.begin() as db:
            db.exec_driver_sql("DELETE FROM models")
            asyncio.run_coroutine_threadsafe(take_over(), loop).result(DEADLINE_S)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with pytest.raises(NotNowError) as raised:
            write()
        assert raised.value.code == "database-unreachable"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert [one.name for one in store.list_models(ListQuery()).items] == ["new"]
    store.close()
    paused._session.close()


async def test_a_leader_whose_connection_was_cut_keeps_the_lead(url: str) -> None:
    leader, other = (Leadership(url, name=name, spec=SPEC) for name in ("leader", "other"))
    await leader.start()
    await other.start()
    cut(url, leader.session)
    beat = other.seen.beat
    await asyncio.to_thread(wait_until, lambda: other.seen.beat >= beat + 10)
    assert (leader.epoch, other.epoch) == (1, 0)
    await leader.close()
    await other.close()


def test_two_that_both_believe_to_lead_write_as_one(tmp_path: Path, url: str) -> None:
    """Split brain: the former leader still counts its term as its own. Whatever is interleaved, not
    one of its writes comes behind the other's first."""
    former, leader = Term(1, "former"), Term(2, "leader")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO leader VALUES (1, 'f', '', 'former', 0, 0)")
        first, second = (Store(tmp_path, url, term=term) for term in (former, leader))
        refused = threading.Event()

        def write_on() -> None:
            number = 0
            try:
                while True:
                    number += 1
                    model(first, f"former-{number:05}")
            except NotNowError as error:
                if error.code == "not-the-leader":
                    refused.set()

        thread = threading.Thread(target=write_on)
        thread.start()
        wait_until(lambda: written(url))
        connection.execute("UPDATE leader SET epoch = 2, session = 'leader' WHERE epoch = 1")
        model(second, "leader")
        before = written(url)
        thread.join(DEADLINE_S)
        assert refused.is_set()
        assert written(url) == before
        first.close()
        second.close()


def written(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM models").fetchone()
        assert found is not None
        return int(found[0])


def cut(url: str, session: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            (session,),
        )

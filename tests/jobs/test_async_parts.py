"""The small parts of asynchronous inference: shared commits, room for bodies, notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kit.asynchronous import subscriber
from tests.kit.gateway import run
from tests.kit.metrics_page import shown
from tests.kit.polling import until

from penstock.clock import ManualClock
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.errors import NotNowError
from penstock.jobs.asynchronous import rows
from penstock.jobs.asynchronous.notifier import Notifier
from penstock.jobs.asynchronous.outcome import Commits
from penstock.jobs.asynchronous.rows import async_notifications
from penstock.jobs.asynchronous.work import BytesRoom
from penstock.metrics.counts.work_counts import WorkCounts

pytestmark = pytest.mark.loop(by=run)

TOPIC, OTHER = "arn:aws:sns:us-east-1:123456789012:a", "arn:aws:sns:us-east-1:123456789012:b"


async def test_what_comes_while_one_is_committed_shares_the_next_commit_in_its_order() -> None:
    written: list[list[int]] = []
    gate = asyncio.Event()

    async def write(items: Sequence[int]) -> Sequence[str]:
        written.append(list(items))
        await gate.wait()
        return [f"<{item}>" for item in items]

    commits = Commits(write)
    first = asyncio.create_task(commits.put(1))
    await until(lambda: written == [[1]])
    others = [asyncio.create_task(commits.put(item)) for item in (2, 3, 4)]
    await asyncio.sleep(0)
    others[1].cancel()  # its caller no longer waits: it is written nevertheless
    gate.set()
    assert await first == "<1>"
    assert [await others[0], await others[2]] == ["<2>", "<4>"]
    assert written == [[1], [2, 3, 4]]
    await commits.close()


async def test_a_commit_that_fails_fails_for_all_in_it_and_for_nobody_else() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        if 2 in items:
            raise NotNowError("state-not-writable", "The disk is full.")
        return items

    commits = Commits(write)
    puts = [asyncio.create_task(commits.put(item)) for item in (1, 2)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [getattr(one, "code", one) for one in results] == ["state-not-writable"] * 2
    assert await commits.put(3) == 3


async def test_room_is_given_first_come_first_served_and_never_twice() -> None:
    room = BytesRoom(10)
    await room.take(6)
    large = asyncio.create_task(room.take(8))
    small = asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    assert (large.done(), small.done()) == (False, False)  # there is room for the small one
    room.give(6)
    await asyncio.gather(large, small)
    assert (room.bytes_used, room.bytes_peak) == (9, 9)
    gone = asyncio.create_task(room.take(5))
    waits = asyncio.create_task(room.take(2))
    await asyncio.sleep(0)
    gone.cancel()
    room.give(8)
    await waits
    assert room.bytes_used == 3
    room.add(20)  # it is there already
    assert room.bytes_used == 23


async def test_what_is_cancelled_in_the_moment_it_was_given_gives_it_back() -> None:
    room = BytesRoom(10)
    await room.take(10)
    waits = asyncio.create_task(room.take(4))
    await asyncio.sleep(0)
    room.give(10)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert room.bytes_used == 0


def put(store: Store, *topics: str) -> None:
    with store.begin() as db:
        for number, topic in enumerate(topics):
            values = {"message_id": f"id-{number}", "topic": topic, "message": "{}", "tries": 0}
            db.execute(async_notifications.insert().values(**values, made=50.0, due=50.0))


async def written(database: StoreThread, expected: list[tuple[str, int]]) -> None:
    """Until these notifications are on record, each with as many tries."""
    for _ in range(1000):
        due, _ = await database.call(rows.due, 1e12, 9)
        if sorted((one.notification.topic, one.tries) for one in due) == sorted(expected):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{expected} never came")


async def test_a_notification_goes_to_its_topics_url_until_that_takes_it(tmp_path: Path) -> None:
    """Neither a refusal nor a redirect is a delivery, and nobody is redirected to anywhere."""
    clock = ManualClock(wall_s=100.0)
    database = StoreThread(lambda: Store(tmp_path))
    await database.open()
    with subscriber() as told:
        counts = WorkCounts()
        notifier = Notifier(database, {TOPIC: told.url}, clock, counts)
        assert (notifier.knows(TOPIC), notifier.knows(OTHER)) == (True, False)
        told.answers = [302, 500]
        await database.call(put, TOPIC, OTHER)
        notifier.start()
        # Each failed try is written down, with its next time, which then has to come.
        await written(database, [(OTHER, 1), (TOPIC, 1)])
        clock.advance(1.0)
        notifier.wake()
        await written(database, [(OTHER, 2), (TOPIC, 2)])
        clock.advance(2.0)
        notifier.wake()
        # The third is taken. The other waits until its topic has a URL again.
        await written(database, [(OTHER, 3)])
        assert len(told.posts) == 3
        for headers, body in told.posts:
            assert headers["x-amz-sns-message-id"] == body["MessageId"] == "id-0"
            assert body == {
                "Type": "Notification",
                "MessageId": "id-0",
                "TopicArn": TOPIC,
                "Message": "{}",
                "Timestamp": "1970-01-01T00:00:50.000Z",
            }
        await notifier.close()
        assert shown(counts, "penstock_notifications") == {
            ("delivered",): 1.0,
            ("failed",): 5.0,
            ("given-up",): 0.0,
        }
    await database.close()


def test_one_url_may_stand_for_all_topics(tmp_path: Path) -> None:
    notifier = Notifier(
        StoreThread(lambda: Store(tmp_path)), {"*": "http://x/"}, ManualClock(), WorkCounts()
    )
    assert notifier.knows(OTHER)

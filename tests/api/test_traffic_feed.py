"""The feed of a region: everything first, then what changes, and a sign of life each second."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from tests.kit.doors import door_site
from tests.kit.gateway import run
from tests.kit.http_clients import post

from penstock.api.admin.traffic import READERS_MAX, TrafficFeed, changed
from penstock.clock import ManualClock
from penstock.errors import NotNowError
from penstock.metrics.counts.recent import RecentRequests
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.series.store import MetricStore

T0 = 1_700_000_000.0


class Loads:
    """As a dispatcher would tell; a test changes it."""

    accepting = True

    def __init__(self) -> None:
        self.rooms = {"echo": 3, "other": 1}

    def all(self) -> dict[str, dict[str, Any]]:
        return {name: {"room": room} for name, room in self.rooms.items()}


class Feed:
    """A feed under a clock of the test's own, read event by event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.loads = Loads()
        self.registry = MetricRegistry(MetricStore())
        self.feed = TrafficFeed(self.loads, RecentRequests(self.registry), self.clock)

        async def sleep(seconds: float) -> None:
            self.clock.advance(seconds)

        monkeypatch.setattr("penstock.api.admin.traffic.asyncio.sleep", sleep)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        async for event in self.feed._events():
            yield orjson.loads(event.removeprefix(b"data: "))


def rooms(event: dict[str, Any]) -> dict[str, Any]:
    return {name: load and load["room"] for name, load in event["endpoints"].items()}


async def test_all_is_told_first_and_then_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(monkeypatch)
    events = feed.events()
    assert rooms(await anext(events)) == {"echo": 3, "other": 1}
    feed.loads.rooms["echo"] = 2
    assert rooms(await anext(events)) == {"echo": 2}
    at = feed.clock.monotonic()
    assert (await anext(events))["endpoints"] == {}
    assert feed.clock.monotonic() - at >= 0.999
    del feed.loads.rooms["other"]
    assert rooms(await anext(events)) == {"other": None}
    feed.loads.accepting = False
    assert (await anext(events))["accepting"] is False


def test_latencies_and_failures_are_those_of_the_last_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed(monkeypatch)
    recorder = feed.registry.recorder("echo", "all")
    recent = RecentRequests(feed.registry)

    def answered(times: int, took_s: float, status: int = 200) -> None:
        for _ in range(times):
            recorder.started()
            recorder.finished(status, took_s, 0.0, took_s)
        feed.registry.collect(T0 + feed.clock.monotonic())

    assert recent.look("echo", now=0.0) == (0.0, 0.0, 0.0)
    answered(100, 0.1)
    answered(25, 0.2, 500)
    seen = recent.look("echo", now=1.0)
    assert seen == (pytest.approx(0.1, rel=0.02), pytest.approx(0.2, rel=0.02), 0.2)
    assert recent.look("echo", now=10.0) == seen
    answered(10, 4.0)
    seen = recent.look("echo", now=11.5)
    assert seen == (pytest.approx(4.0, rel=0.02), pytest.approx(4.0, rel=0.02), 0.0)


def test_answers_of_tokens_are_judged_by_the_first_one() -> None:
    registry = MetricRegistry(MetricStore())
    recorder = registry.recorder("chat", "all")
    recent = RecentRequests(registry)
    recent.look("chat", now=0.0)
    for first_s in (0.2, 0.4):
        recorder.started()
        recorder.generated(10, 100, first_s, 0.01)
        recorder.finished(200, 30.0, 0.0, 30.0)
    registry.collect(T0)
    assert recent.look("chat", now=1.0).p99_s == pytest.approx(0.2, rel=0.02)


def test_the_time_of_a_row_falls_at_once_and_rises_slowly() -> None:
    """Of answers of other processes, which tell what their batches took."""
    registry = MetricRegistry(MetricStore())
    recorder = registry.recorder("echo", "all")
    recent = RecentRequests(registry)
    recent.look("echo", now=0.0)
    assert recent.row_s("echo") == 0.0

    def answered(run_s: float, rows: int) -> None:
        recorder.started()
        recorder.finished(200, run_s, 0.0, run_s, rows)
        registry.collect(T0)

    answered(0.08, 8)
    recent.look("echo", now=1.0)
    assert recent.row_s("echo") == pytest.approx(0.01)
    answered(0.02, 8)
    recent.look("echo", now=20.0)
    assert recent.row_s("echo") == pytest.approx(0.0025)
    answered(0.5, 1)
    recent.look("echo", now=40.0)
    assert recent.row_s("echo") == pytest.approx(0.0025 + 0.4975 / 16)
    recent.forget("echo")
    assert recent.row_s("echo") == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_changes_bring_one_state_to_the_next(seed: int) -> None:
    rng = random.Random(seed)
    states = [
        {f"e{n}": {"room": rng.randrange(3)} for n in range(6) if rng.random() < 0.7}
        for _ in range(8)
    ]
    held: dict[str, Any] = {}
    for before, after in zip([{}, *states], states, strict=False):
        for name, load in changed(before, after).items():
            if load is None:
                del held[name]
            else:
                held[name] = load
        assert held == after


async def test_readers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(monkeypatch)
    opened = [feed.events() for _ in range(READERS_MAX)]
    for events in opened:
        await anext(events)
    with pytest.raises(NotNowError, match="16 readers follow"):
        await feed.feed._page(None)  # type: ignore[arg-type]
    await opened[0].aclose()  # type: ignore[attr-defined]


@pytest.mark.loop(by=run)
async def test_an_answer_tells_how_many_more_could_come_where_that_is_asked() -> None:
    async with door_site() as served:
        client = await served.client()
        _, headers, _ = await client.ask(
            post("/endpoints/echo/invocations", b"x", "x-penstock-room: ?1")
        )
        assert int(headers["x-penstock-room"]) > 0
        _, headers, _ = await client.ask(post("/endpoints/echo/invocations", b"x"))
        assert "x-penstock-room" not in headers

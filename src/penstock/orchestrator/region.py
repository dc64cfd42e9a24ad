"""One region as the orchestrator watches it: its feed, its probes, and why it is not used.

The feed (`GET /penstock/v1/traffic`) is one endless answer; whenever it breaks, it is requested
again. A probe is sent every quarter of a second, over connections that no request uses, and
measures the round trip. `core/traffic` decides what follows from a lost probe.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.core.backoff import Backoff
from penstock.core.traffic.spec import HealthSpec
from penstock.errors import CallerError
from penstock.orchestrator.regions_file import REGION_UNREACHABLE, RegionAccess, pool_to
from penstock.wire.http_client import UNREACHABLE, UNTRUSTED, Headers, HttpAnswer
from penstock.wire.server_sent_events import EventSplitter

log = logging.getLogger(__name__)

PROBE_EVERY_S: Final = 0.25
#: Limit for a probe's answer, in s: more than a round trip around the earth.
PROBE_S_MAX: Final = 0.5
_AGAIN: Final = Backoff(0.1, 1.0)
#: The feed counts as lost after this silence, in s: it sends each second.
SILENCE_S_MAX: Final = 3.0
PROBES_LOST_MAX: Final = HealthSpec().probes_max
_WAYS: Final = 16  #: the round trip is the shortest of this many probes

FEED: Final = b"/penstock/v1/traffic"
PING: Final = b"/ping"
#: Size limit of answers to the orchestrator's own questions.
_ANSWER_BYTES_MAX: Final = 1 << 20

CONNECTING: Final = "connecting"
FOLLOWED: Final = "followed"
NO_FEED: Final = "no-traffic-feed"
NOT_LET_IN: Final = "region-refused"
FEED_LOST: Final = "feed-lost"

OnEvent = Callable[["Region", Mapping[str, Any], bool], None]


class Region:
    """A region and what is known of its connection. `run` watches it until it is cancelled.

    Attributes:
        state: connecting | followed | region-unreachable | certificate-untrusted | no-traffic-feed
            | region-refused | feed-lost
    """

    def __init__(
        self,
        access: RegionAccess,
        clock: Clock,
        *,
        on_event: OnEvent,
        on_probe: Callable[[Region, bool], None],
    ) -> None:
        """
        Args:
            on_event: gets each event of the feed, and whether it covers every endpoint.
            on_probe: gets whether a probe was answered in time.
        """
        self.access = access
        self.name = access.name
        self.pool = pool_to(access.address, clock)
        self.state = CONNECTING
        self.detail = ""  #: more about the state, for people
        self.heard_at: float | None = None  #: monotonic s of the last event; None: none yet
        self.probes_lost = 0  #: probes in a row that were lost
        self._own = pool_to(access.address, clock, body_bytes_max=_ANSWER_BYTES_MAX)
        self._monotonic = clock.monotonic
        self._on_event = on_event
        self._on_probe = on_probe
        self._ways: deque[float] = deque(maxlen=_WAYS)

    @property
    def way_s(self) -> float:
        """The shortest of the last round trips, in s."""
        return min(self._ways, default=0.0)

    def refused_us(self, status: int) -> None:
        """The region refuses the orchestrator: perhaps its key was replaced."""
        self._now(NOT_LET_IN, f"it answered {status}: its key is not, or no longer, the right one")
        try:
            self.access.credential.refresh()
        except CallerError as error:
            self.detail = error.message

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow())
                    tasks.create_task(self._probe())
            except* Exception as bugs:
                # Without its watch a region would never be used again.
                log.exception("watching region %s failed, again", self.name, exc_info=bugs)
            await asyncio.sleep(_AGAIN.pause_s_max)

    async def fetch(self, path: bytes, *, timeout_s: float) -> HttpAnswer | None:
        """The answer to a question of the orchestrator itself, as `HttpPool.fetch` gives it."""
        return await self._own.fetch(self.access.get(path), timeout_s=timeout_s)

    async def close(self) -> None:
        await self.pool.close()
        await self._own.close()

    def snapshot(self) -> dict[str, Any]:
        heard_at = self.heard_at
        return {
            "region": self.name,
            "url": self.access.url,
            "state": self.state,
            "detail": self.detail,
            "heard_s_ago": round(self._monotonic() - heard_at, 3) if heard_at else None,
            "way_ms": round(self.way_s * 1e3, 3),
        }

    def _now(self, state: str, detail: str = "") -> None:
        if state != self.state:
            log.log(
                logging.INFO if state == FOLLOWED else logging.WARNING,
                "region %s: %s%s",
                self.name,
                state,
                f" ({detail})" if detail else "",
            )
        self.state, self.detail = state, detail

    # The feed

    async def _follow(self) -> None:
        failures = 1
        while True:
            told = await self._follow_once()
            failures = 1 if told else failures + 1
            self.pool.tidy()
            await asyncio.sleep(_AGAIN.pause_s(failures))

    async def _follow_once(self) -> bool:
        """Reads the feed until it ends; returns whether any event came."""
        reader = _Feed(self._take)
        exchange = self.pool.ask(reader, self.access.get(FEED), repeatable=False)
        try:
            while not reader.ended.is_set():
                before = reader.bytes_read
                try:
                    async with asyncio.timeout(SILENCE_S_MAX):
                        await reader.ended.wait()
                except TimeoutError:
                    if reader.bytes_read == before:
                        reader.why = "nothing was heard of it"
                        break
        finally:
            exchange.cancel()
        if reader.status in (401, 403):
            self.refused_us(reader.status)
        elif reader.status not in (0, 200):
            self._now(NO_FEED, f"{FEED.decode()} was answered with status {reader.status}")
        elif reader.why == UNTRUSTED:
            self._now(UNTRUSTED, f"its certificate is not trusted: {reader.detail}")
        elif reader.why == UNREACHABLE:
            where = self.access.address.authority.decode()
            self._now(REGION_UNREACHABLE, f"{where} can't be reached: {reader.detail}")
        else:
            self._now(FEED_LOST, reader.why)
        return reader.events > 0

    def _take(self, event: Mapping[str, Any], first: bool) -> None:
        self.heard_at = self._monotonic()
        self._now(FOLLOWED)
        self._on_event(self, event, first)

    # Probes

    async def _probe(self) -> None:
        """Sends probes at a fixed interval; none waits for the one before, however long that
        takes."""
        async with asyncio.TaskGroup() as under_way:
            while True:
                under_way.create_task(self._probe_once())
                await asyncio.sleep(PROBE_EVERY_S)

    async def _probe_once(self) -> None:
        began = self._monotonic()
        try:
            answer = await self.fetch(PING, timeout_s=PROBE_S_MAX)
        except TimeoutError:
            answer = None
        ok = answer is not None and answer.status < 500  # any answer but a failure: it lives
        if ok:
            self._ways.append(self._monotonic() - began)
        self.probes_lost = 0 if ok else self.probes_lost + 1
        self._on_probe(self, ok)

    @property
    def silent(self) -> bool:
        """Whether so many probes in a row were lost that the region counts as gone."""
        return self.probes_lost >= PROBES_LOST_MAX


class _Feed:
    """Reads a feed; the `AnswerReader` of its exchange."""

    def __init__(self, take: Callable[[Mapping[str, Any], bool], None]) -> None:
        self.status = 0
        self.events = 0
        self.bytes_read = 0
        self.why = "the region ended it"
        self.detail = ""
        self.ended = asyncio.Event()
        self._take = take
        self._splitter = EventSplitter()

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        if status != 200:
            self.ended.set()

    def on_body(self, data: bytes) -> None:
        self.bytes_read += len(data)
        if self.ended.is_set():
            return
        for event in self._splitter.feed(data):
            if not event.startswith(b"data:"):
                continue
            try:
                fields = orjson.loads(event[5:])
            except ValueError:
                fields = None
            if not isinstance(fields, dict):
                self.why = "it told what can't be read"
                self.ended.set()
                return
            self.events += 1
            self._take(fields, self.events == 1)

    def on_end(self) -> None:
        self.ended.set()

    def on_lost(self, reason: str, detail: str) -> None:
        self.why, self.detail = reason, detail
        self.ended.set()

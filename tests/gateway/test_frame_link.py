"""One link by itself: each frame that comes and goes, and each moment, on a clock that jumps."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.kit.gateway import Recording
from tests.kit.virtual_network import VirtualLoop, run_virtual

from penstock.core.blame.poison_requests import FRESH, WORKER_DIED
from penstock.errors import NotNowError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.link import (
    BUFFER_BYTES_MAX,
    BUFFER_BYTES_RESUME,
    COPY_BYTES_MAX,
    FrameLink,
)
from penstock.wire import frames
from penstock.wire.frames import LOOK_S, LOOKS_MAX

pytestmark = pytest.mark.loop(by=run_virtual)


class LinkWire(asyncio.Transport):
    """The link's end of a socket; what it is asked to do is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Any] = []  #: bytes, or the list that `writelines` got
        self.told: list[Any] = []
        self.unread_bytes = 0

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.writes.append(list(pieces))

    def abort(self) -> None:
        self.told.append("abort")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.told.append((high, low))

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes


class LinkEventsSeen:
    """Writes down what the link reports."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.told.append((name, *args, *kwargs.values()))


class Linked:
    """A link that is connected to a `Wire`."""

    def __init__(self) -> None:
        self.events = LinkEventsSeen()
        self.link = FrameLink("i1", "unix:/nowhere", cast(Any, self.events))
        self.wire = self.connect()
        self.numbers = 0

    def connect(self) -> LinkWire:
        self.wire = LinkWire()
        self.link.connection_made(self.wire)
        return self.wire

    def request(self, body: bytes = b"body", *, meta: bytes = b"[]") -> Invocation:
        self.numbers += 1
        invocation = Invocation(
            "shop", meta, body, Recording(), received=0.0, deadline=None, number=self.numbers
        )
        invocation.past = FRESH
        invocation.ident = 0
        return invocation

    def sent(self, body: bytes = b"body", **more: Any) -> Invocation:
        invocation = self.request(body, **more)
        self.link.send(invocation, 7, 5000)
        self.link._flush()
        self.events.told.clear()
        return invocation

    @property
    def frames(self) -> list[frames.Frame]:
        """What the instance was sent."""
        decoder = frames.FrameDecoder(frames.TO_INSTANCE)
        parts = [b"".join(one) if isinstance(one, list) else one for one in self.wire.writes]
        return list(decoder.feed(b"".join(parts)))


def reply(ident: int, body: bytes = b"answer", **more: Any) -> bytes:
    return frames.encode_reply(
        ident, batch_rows=2, lane=1, queue_us=3, run_us=4, lane_us=2, body=body, **more
    )


def on_a_link(test: Any) -> Any:
    """Runs a test that takes a `Linked` on a loop of virtual time."""

    def wrapped(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            linked = Linked()
            linked.events.told.clear()
            result = test(linked, *args, **kwargs)
            if asyncio.iscoroutine(result):
                await result
            await asyncio.sleep(0)

        run_virtual(main)

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


# What is sent


@on_a_link
async def test_requests_of_one_turn_leave_in_one_write_and_number_themselves(
    linked: Linked,
) -> None:
    first, second = linked.request(b"one", meta=b'["a"]'), linked.request(b"two")
    second.past = FRESH.after(WORKER_DIED)
    second.priority = 3
    linked.link.send(first, 7, 5000)
    linked.link.send(second, 8, 0)
    assert linked.wire.writes == []
    await asyncio.sleep(0)
    assert len(linked.wire.writes) == 1
    seen = linked.frames
    assert [(f.kind, f.flags, f.ident) for f in seen] == [
        (frames.INVOKE, 0, 1), (frames.INVOKE, frames.ALONE, 2),
    ]  # fmt: skip
    decoded = [frames.decode_invoke(f.payload, f.meta_bytes) for f in seen]
    assert [tuple(one) for one in decoded] == [
        (7, 5000, 0, b'["a"]', b"one"), (8, 0, 3, b"[]", b"two"),
    ]  # fmt: skip
    assert (first.ident, second.ident) == (1, 2)
    linked.link.send(linked.request(b"next"), 7, 1)
    await asyncio.sleep(0)
    assert len(linked.wire.writes) == 2


@pytest.mark.parametrize(("body_bytes", "copied"), [(65_525, True), (65_526, False)])
def test_a_large_body_is_handed_on_as_it_is(body_bytes: int, copied: bool) -> None:
    """Eleven bytes of the payload are the head of its kind and the meta."""
    assert COPY_BYTES_MAX == 65_536

    @on_a_link
    def check(linked: Linked) -> None:
        body = b"x" * body_bytes
        linked.sent(body)
        [write] = linked.wire.writes
        assert isinstance(write, bytes) is copied
        assert copied or write[1] is body or write[1] == body
        assert [f.payload[-body_bytes:] for f in linked.frames] == [body]
        linked.sent(b"small")
        assert isinstance(linked.wire.writes[-1], bytes), "the next write is joined again"

    check()


@on_a_link
async def test_cancelling_says_so_once_and_no_answer_is_reported(linked: Linked) -> None:
    invocation = linked.sent()
    linked.link.cancel(invocation)
    linked.link.cancel(invocation)
    await asyncio.sleep(0)
    assert [(f.kind, f.ident) for f in linked.frames] == [(frames.INVOKE, 1), (frames.CANCEL, 1)]
    linked.link.data_received(reply(1))
    linked.link.data_received(frames.encode(frames.CHUNK, 1, b"x"))
    linked.link.data_received(frames.encode(frames.RETURNED, 1, b"draining"))
    linked.link.data_received(frames.encode_reply(1, kind=frames.END))
    assert (linked.events.told, linked.wire.told[1:]) == ([], [])


@on_a_link
async def test_a_cancel_leaves_with_what_is_sent_in_the_same_turn(linked: Linked) -> None:
    first = linked.sent()
    second = linked.request()
    linked.link.send(second, 7, 1)
    linked.link.cancel(first)
    await asyncio.sleep(0)
    assert len(linked.wire.writes) == 2
    assert [f.kind for f in linked.frames] == [frames.INVOKE, frames.INVOKE, frames.CANCEL]


@on_a_link
async def test_what_was_never_sent_over_this_link_is_not_cancelled_there(linked: Linked) -> None:
    linked.sent()
    stranger = linked.request()
    stranger.ident = 99
    linked.link.cancel(stranger)
    await asyncio.sleep(0)
    assert [f.kind for f in linked.frames] == [frames.INVOKE]


# What comes


@on_a_link
def test_answers_are_reported_in_their_order_however_the_reads_are_cut(linked: Linked) -> None:
    asked = [linked.sent() for _ in range(4)]
    meta = frames.encode_reply_meta(frames.ReplyMeta("text/plain"))
    data = reply(3, b"", meta=meta) + reply(1) + reply(4, b"four") + reply(2, b"x" * 100)
    for cut in (1, 16, 29, 33, 34, 35, len(data) - 1):
        again = Linked()
        again.link._pending = {n + 1: one for n, one in enumerate(asked)}
        again.link._ident = 4
        again.events.told.clear()
        again.link.data_received(data[:cut])
        again.link.data_received(data[cut:])
        assert [(name, one.number, tuple(got)) for name, one, got in again.events.told] == [
            ("on_reply", 3, (200, 2, 1, 0, 3, 4, 2, meta, b"")),
            ("on_reply", 1, (200, 2, 1, 0, 3, 4, 2, b"", b"answer")),
            ("on_reply", 4, (200, 2, 1, 0, 3, 4, 2, b"", b"four")),
            ("on_reply", 2, (200, 2, 1, 0, 3, 4, 2, b"", b"x" * 100)),
        ]
        assert again.link._pending == {}
        assert again.wire.told[1:] == []


@on_a_link
def test_each_kind_of_frame_is_reported_as_what_it_is(linked: Linked) -> None:
    asked = {name: linked.sent() for name in ("stream", "error", "returned")}
    idents = {name: one.ident for name, one in asked.items()}
    meta = frames.encode_reply_meta(frames.ReplyMeta("text/plain"))
    feed = linked.link.data_received
    feed(frames.encode(frames.EVENT, 0, b'{"event":"x"}'))
    feed(frames.encode(frames.CHUNK, idents["stream"], meta + b"a", flags=frames.FIRST,
                       meta_bytes=len(meta)))  # fmt: skip
    feed(frames.encode(frames.CHUNK, idents["stream"], b"b"))
    feed(frames.encode_reply(idents["stream"], kind=frames.END, run_us=9))
    feed(frames.encode_reply(idents["error"], kind=frames.ERROR, status=424, body=b"{}"))
    feed(frames.encode(frames.RETURNED, idents["returned"], b"worker\xff"))
    told = linked.events.told
    assert told[0] == ("on_event", "i1", {"event": "x"})
    assert told[1] == ("on_chunk", asked["stream"], b"a", meta)
    assert told[2] == ("on_chunk", asked["stream"], b"b", None)
    assert (told[3][:2], told[3][2].run_us) == (("on_end", asked["stream"]), 9)
    assert (told[4][:2], told[4][2].status) == (("on_error", asked["error"]), 424)
    assert told[5] == ("on_returned", asked["returned"], "worker\ufffd")
    assert len(told) == 6
    assert linked.link._pending == {}


@on_a_link
def test_a_whole_reply_behind_another_frame_is_reported_too(linked: Linked) -> None:
    first, second = linked.sent(), linked.sent()
    data = reply(1) + frames.encode(frames.EVENT, 0, b"{}") + reply(2)
    linked.link.data_received(data)
    assert [told[:2] for told in linked.events.told] == [
        ("on_reply", first), ("on_event", "i1"), ("on_reply", second),
    ]  # fmt: skip


@pytest.mark.parametrize("ident", [2, 1 << 40])
@pytest.mark.parametrize("kind", [frames.REPLY, frames.END, frames.ERROR])
def test_an_answer_to_what_was_never_asked_ends_the_connection(kind: int, ident: int) -> None:
    @on_a_link
    def check(linked: Linked) -> None:
        linked.sent()
        linked.link.data_received(frames.encode_reply(ident, kind=kind))
        assert (linked.events.told, linked.wire.told[1:]) == ([], ["abort"])

    check()


@on_a_link
def test_a_call_that_is_none_of_ours_ends_the_connection(linked: Linked) -> None:
    linked.sent()
    linked.link.data_received(frames.encode(frames.CONTROL_REPLY, 1, b"{}"))
    assert linked.wire.told[1:] == ["abort"]


@on_a_link
async def test_the_answer_to_what_was_told_is_nobodys(linked: Linked) -> None:
    linked.link.tell({"op": "models", "copy": 7, "load": "m"})
    await asyncio.sleep(0)
    [frame] = linked.frames
    assert (frame.kind, frame.payload) == (
        frames.CONTROL,
        b'{"op":"models","copy":7,"load":"m"}',
    )
    linked.link.data_received(frames.encode(frames.CONTROL_REPLY, frame.ident, b"{}"))
    assert linked.wire.told[1:] == []
    linked.link.data_received(frames.encode(frames.CONTROL_REPLY, frame.ident, b"{}"))
    assert linked.wire.told[1:] == ["abort"], "it is answered once"


@on_a_link
def test_a_reply_whose_meta_is_longer_than_it_is_no_reply(linked: Linked) -> None:
    invocation = linked.sent()
    torn = frames.HEAD.pack(frames.REPLY_HEAD.size + 3, frames.REPLY, 0, 4, invocation.ident)
    linked.link.data_received(torn + bytes(frames.REPLY_HEAD.size + 3))
    assert linked.wire.told[1:] == ["abort"]
    linked.link.connection_lost(None)
    assert linked.events.told == [("on_unusable", "i1", [invocation])], "to be sent elsewhere"


# Frames that do not come to their end


@on_a_link
async def test_a_frame_that_begins_is_looked_at_until_it_ends(linked: Linked) -> None:
    linked.sent()
    data = reply(1)
    linked.link.data_received(data[:20])
    await asyncio.sleep(LOOKS_MAX * LOOK_S)
    linked.link.data_received(data[20:40])
    assert linked.wire.told[1:] == []
    linked.link.data_received(data[40:])
    assert [told[0] for told in linked.events.told] == ["on_reply"]
    await asyncio.sleep(3 * LOOKS_MAX * LOOK_S)
    assert linked.wire.told[1:] == []
    linked.link.data_received(frames.encode(frames.EVENT, 0, b"{}")[:-1])
    await asyncio.sleep((LOOKS_MAX + 0.5) * LOOK_S)
    assert linked.wire.told[1:] == []
    await asyncio.sleep(LOOK_S)
    assert linked.wire.told[1:] == ["abort"]


@on_a_link
async def test_one_frame_is_looked_at_once_a_second_in_however_many_pieces_it_comes(
    linked: Linked,
) -> None:
    linked.sent()
    data = reply(1, b"x" * 100)
    for at in range(20):
        linked.link.data_received(data[at : at + 1])
    await asyncio.sleep((LOOKS_MAX + 0.5) * LOOK_S)
    assert linked.wire.told[1:] == []


@on_a_link
async def test_a_connection_that_is_lost_is_looked_at_no_more(linked: Linked) -> None:
    linked.sent()
    linked.link.data_received(reply(1)[:20])
    await asyncio.sleep(9 * LOOK_S)
    linked.link.connection_lost(None)
    second = linked.connect()
    linked.events.told.clear()
    linked.sent()
    second.writes.clear()
    linked.link.data_received(reply(2)[:20])
    await asyncio.sleep(9 * LOOK_S)
    assert second.told[1:] == []
    linked.link.data_received(reply(2)[20:])
    assert [told[0] for told in linked.events.told] == ["on_reply"]


# Links that hold back


@on_a_link
async def test_what_waits_leaves_once_it_is_resumed_with_the_time_that_is_left(
    linked: Linked,
) -> None:
    linked.link.pause_writing()
    assert linked.events.told == [("on_paused", "i1", True)]
    waiting = [linked.request(body) for body in (b"a", b"b", b"c")]
    for invocation, deadline_ms in zip(waiting, (10_000, 2_000, 3_001), strict=True):
        linked.link.send(invocation, 7, deadline_ms)
    await asyncio.sleep(3.0)
    assert linked.wire.writes == []
    linked.link.resume_writing()
    invokes = [frames.decode_invoke(f.payload, f.meta_bytes) for f in linked.frames]
    assert [(one.body, one.deadline_ms) for one in invokes] == [
        (b"a", 7000), (b"b", 1), (b"c", 1),
    ]  # fmt: skip
    assert linked.events.told == [("on_paused", "i1", True), ("on_paused", "i1", False)]
    linked.link.send(linked.request(b"d"), 7, 1)
    await asyncio.sleep(0)
    assert len(linked.frames) == 4


@on_a_link
def test_what_is_cancelled_while_it_waits_leaves_no_trace(linked: Linked) -> None:
    linked.link.pause_writing()
    waiting = [linked.request(body) for body in (b"a", b"b")]
    for invocation in waiting:
        linked.link.send(invocation, 7, 1000)
    linked.link.cancel(waiting[0])
    linked.link.resume_writing()
    assert [f.kind for f in linked.frames] == [frames.INVOKE]
    assert [waiting[1]] == list(linked.link._pending.values())


@on_a_link
async def test_no_more_leaves_than_the_transport_takes(linked: Linked) -> None:
    linked.link.pause_writing()
    for body in (b"a", b"b", b"c"):
        linked.link.send(linked.request(body), 7, 1000)
    linked.wire.unread_bytes = BUFFER_BYTES_MAX
    linked.link.resume_writing()
    assert linked.wire.writes == []
    linked.link.send(linked.request(b"d"), 7, 1000)
    linked.wire.unread_bytes = BUFFER_BYTES_MAX - 1
    await asyncio.sleep(0)
    invokes = [frames.decode_invoke(f.payload, f.meta_bytes) for f in linked.frames]
    assert [one.body for one in invokes] == [b"a", b"b", b"c", b"d"]
    assert linked.wire.told == [(BUFFER_BYTES_MAX, BUFFER_BYTES_RESUME)]


@on_a_link
def test_what_pauses_it_again_stops_the_sending(linked: Linked) -> None:
    linked.link.pause_writing()
    for body in (b"a", b"b"):
        linked.link.send(linked.request(body), 7, 1000)
    linked.events.told.clear()
    write = linked.wire.write

    def pausing(data: Any) -> None:
        write(data)
        linked.link.pause_writing()

    linked.wire.write = pausing  # type: ignore[method-assign]
    linked.link.resume_writing()
    assert len(linked.frames) == 1
    assert linked.events.told == [("on_paused", "i1", True)]
    linked.wire.write = write  # type: ignore[method-assign]
    linked.link.send(linked.request(b"c"), 7, 1000)
    assert len(linked.frames) == 1
    linked.link.resume_writing()
    assert len(linked.frames) == 3
    assert linked.events.told[-1] == ("on_paused", "i1", False)


# Connections


@on_a_link
def test_a_lost_connection_gives_back_what_it_had_sent_and_what_waited(linked: Linked) -> None:
    sent = linked.sent()
    linked.link.pause_writing()
    waiting = linked.request()
    linked.link.send(waiting, 7, 1000)
    linked.events.told.clear()
    linked.link.connection_lost(None)
    linked.link.connection_lost(None)
    assert linked.events.told == [("on_unusable", "i1", [sent, waiting])]
    assert not linked.link.usable
    linked.link.resume_writing()
    linked.link.cancel(sent)
    linked.link._flush()
    assert len(linked.events.told) == 1


@on_a_link
async def test_a_new_connection_begins_with_nothing_of_the_old_one(linked: Linked) -> None:
    linked.link.pause_writing()
    linked.link.connection_lost(None)
    assert linked.link._lost.is_set()
    linked.events.told.clear()
    second = linked.connect()
    assert linked.events.told == [("on_usable", "i1", True)]
    assert (linked.link.usable, second.told) == (True, [(BUFFER_BYTES_MAX, BUFFER_BYTES_RESUME)])
    linked.sent(b"new")
    assert [f.ident for f in linked.frames] == [1]

    linked.link.send(linked.request(b"x" * 100_000), 7, 1)
    linked.link.connection_lost(None)
    third = linked.connect()
    linked.link.send(linked.request(b"first"), 7, 1)
    await asyncio.sleep(0)
    assert [isinstance(write, bytes) for write in third.writes] == [True]
    assert [f.payload[-5:] for f in linked.frames] == [b"first"]


@on_a_link
async def test_closing_reports_what_was_unanswered_and_what_connects_late_is_cut(
    linked: Linked,
) -> None:
    sent = linked.sent()
    await linked.link.close()
    await linked.link.close()
    assert linked.events.told == [("on_unusable", "i1", [sent])]
    assert linked.wire.told[1:] == ["abort"]
    late = LinkWire()
    linked.link.connection_made(late)
    assert (late.told, linked.link.usable, len(linked.events.told)) == (["abort"], False, 1)
    linked.link.connection_lost(None)
    assert len(linked.events.told) == 1


class Calling(FrameLink):
    """Calls an instance that takes `lives_s` (None = it is not there) of each connection."""

    def __init__(self, lives_s: list[float | None]) -> None:
        self.told = LinkEventsSeen()
        super().__init__("i1", "unix:/nowhere", cast(Any, self.told))
        self.lives_s = lives_s
        self.called_at: list[float] = []
        self.began = self._loop.time()

    async def _connect(self) -> None:
        self._lost.clear()
        self.called_at.append(round(self._loop.time() - self.began, 3))
        life_s = self.lives_s.pop(0) if self.lives_s else 1e9
        if life_s is None:
            raise ConnectionRefusedError("nobody listens")
        self.connection_made(LinkWire())
        self._loop.call_later(life_s, self.connection_lost, None)


def called(lives_s: list[float | None], until_s: float = 100.0) -> list[float]:
    seen: list[float] = []

    async def main() -> None:
        link = Calling(lives_s)
        opening = asyncio.ensure_future(link.open(1000.0))
        await asyncio.sleep(until_s)
        await opening
        seen.extend(link.called_at)
        await link.close()

    run_virtual(main)
    return seen


def test_an_instance_that_is_not_there_is_called_ever_more_seldom() -> None:
    times = [0.0, 0.02, 0.06, 0.14, 0.3, 0.62, 1.26, 2.26, 3.26]
    assert called([None] * 8) == times


def test_one_that_breaks_at_once_is_called_as_seldom_and_one_that_lasted_is_called_soon() -> None:
    assert called([0.0] * 7) == [0.0, 0.02, 0.06, 0.14, 0.3, 0.62, 1.26, 2.26]
    assert called([0.0, 0.0, 0.5, 0.5]) == [0.0, 0.02, 0.06, 0.64, 1.3]
    assert called([0.0, 0.0, 1.0, 0.5]) == [0.0, 0.02, 0.06, 1.08, 1.62]


async def test_opening_takes_as_long_as_it_may_and_goes_on_behind_it() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    link = Calling([None] * 6)
    began = loop.time()
    with pytest.raises(NotNowError) as caught:
        await link.open(0.5)
    assert round(loop.time() - began, 3) == 0.5
    assert (caught.value.code, caught.value.retry_after_s) == ("instance-unreachable", 1.0)
    assert not link.usable
    await asyncio.sleep(5.0)
    assert link.usable
    await link.close()


async def test_what_was_closed_before_it_connected_calls_no_more() -> None:
    link = Calling([None] * 100)
    opening = asyncio.ensure_future(link.open(1000.0))
    await asyncio.sleep(3.0)
    await link.close()
    calls = len(link.called_at)
    await asyncio.sleep(30.0)
    assert len(link.called_at) == calls
    with pytest.raises(asyncio.CancelledError):
        await opening


@pytest.mark.loop(by=asyncio.run)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_is_a_path_or_a_host_and_a_port(host: str) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    events = LinkEventsSeen()
    link = FrameLink("i1", f"tcp:{host}:{port}", cast(Any, events))
    await asyncio.wait_for(link.open(20.0), 20.0)
    assert events.told == [("on_usable", "i1", True)]
    await link.close()
    server.close()

"""`control/instances/instance_client.py`: calls and events over one connection, and how each can
go wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.control.instances.instance_client import InstanceClient
from penstock.errors import CallerError, InternalError, NotNowError
from penstock.wire import frames


class Peer(asyncio.Protocol):
    """An instance's end: hands every call to the test."""

    def __init__(self, on_call: Callable[[Peer, int, dict[str, Any]], None]) -> None:
        self._on_call = on_call
        self._decoder = frames.FrameDecoder()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert frame.kind == frames.CONTROL
            self._on_call(self, frame.ident, json.loads(frame.payload))

    def reply(self, ident: int, fields: dict[str, Any], kind: int = frames.CONTROL_REPLY) -> None:
        self.transport.write(frames.encode(kind, ident, json.dumps(fields).encode()))


def with_peer(
    tmp_path: Path,
    on_call: Callable[[Peer, int, dict[str, Any]], None],
    test: Callable[[InstanceClient, list[Any]], Coroutine[Any, Any, None]],
) -> list[Any]:
    """Runs `test` with a connected client; returns the events and the word `closed`."""
    events: list[Any] = []

    async def run() -> None:
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Peer(on_call), str(tmp_path / "i.sock"))
        client = await InstanceClient.connect(
            "one",
            f"unix:{tmp_path / 'i.sock'}",
            on_event=events.append,
            on_close=closed.set,
        )
        await test(client, events)
        client.close()
        server.close()
        await asyncio.wait_for(closed.wait(), 60)
        events.append("closed")

    asyncio.run(run())
    return events


def test_an_answer_that_tells_of_an_error_is_an_answer(tmp_path: Path) -> None:
    """The story of a model that could not be loaded: nobody could say why, for that very reason."""

    def on_call(peer: Peer, ident: int, op: dict[str, Any]) -> None:
        error = {"family": "caller", "code": "no", "message": "no!"}
        peer.reply(ident, {"ok": True, "error": error} if op["op"] == "tell" else {"error": error})

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        assert (await client.call({"op": "tell"}, timeout_s=10.0))["error"]["code"] == "no"
        with pytest.raises(CallerError, match="no!"):
            await client.call({"op": "do"}, timeout_s=10.0)

    with_peer(tmp_path, on_call, test)


def test_answers_find_their_calls_in_any_order(tmp_path: Path) -> None:
    waiting: list[tuple[Peer, int, dict[str, Any]]] = []

    def on_call(peer: Peer, ident: int, op: dict[str, Any]) -> None:
        waiting.append((peer, ident, op))
        if len(waiting) == 2:
            for one, number, asked in reversed(waiting):
                one.reply(number, {"ok": True, "told": asked["op"]})

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        first, second = await asyncio.gather(
            client.call({"op": "a"}, timeout_s=10.0), client.call({"op": "b"}, timeout_s=10.0)
        )
        assert (first["told"], second["told"]) == ("a", "b")

    with_peer(tmp_path, on_call, test)


def test_an_instances_error_is_raised_as_it_was(tmp_path: Path) -> None:
    def on_call(peer: Peer, ident: int, _op: dict[str, Any]) -> None:
        peer.reply(ident, {"error": CallerError("wrong", "it is wrong", hint="mend it").to_dict()})

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        with pytest.raises(CallerError) as raised:
            await client.unload(3, timeout_s=10.0)
        assert (raised.value.code, raised.value.hint) == ("wrong", "mend it")

    with_peer(tmp_path, on_call, test)


def test_a_call_that_is_not_answered_ends_in_time_and_a_late_answer_is_ignored(
    tmp_path: Path,
) -> None:
    late: list[tuple[Peer, int]] = []

    def on_call(peer: Peer, ident: int, op: dict[str, Any]) -> None:
        if op["op"] == "status":
            late.append((peer, ident))
            return
        for one, number in late:
            one.reply(number, {"ok": True, "late": True})
        peer.reply(ident, {"ok": True})

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        with pytest.raises(NotNowError) as raised:
            await client.status(timeout_s=0.01)
        assert raised.value.code == "instance-silent"
        assert await client.explain(1, timeout_s=10.0) == {"ok": True}

    with_peer(tmp_path, on_call, test)


def test_events_are_handed_on(tmp_path: Path) -> None:
    def on_call(peer: Peer, ident: int, _op: dict[str, Any]) -> None:
        peer.reply(0, {"event": "copy-lost", "copy": 7}, frames.EVENT)
        peer.reply(ident, {"ok": True})

    async def test(client: InstanceClient, events: list[Any]) -> None:
        await client.status(timeout_s=10.0)
        assert events == [{"event": "copy-lost", "copy": 7}]

    with_peer(tmp_path, on_call, test)


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 64, frames.encode(frames.CONTROL_REPLY, 1, b"{not json")]
)
def test_a_peer_that_talks_nonsense_is_left(tmp_path: Path, garbage: bytes) -> None:
    def on_call(peer: Peer, _ident: int, _op: dict[str, Any]) -> None:
        peer.transport.write(garbage)

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        with pytest.raises(NotNowError) as raised:
            await client.status(timeout_s=10.0)
        assert raised.value.code == "instance-gone"
        with pytest.raises(NotNowError):  # and from now on at once
            await client.status(timeout_s=10.0)

    assert with_peer(tmp_path, on_call, test) == ["closed"]


def test_an_instance_that_dies_ends_every_call(tmp_path: Path) -> None:
    def on_call(peer: Peer, _ident: int, _op: dict[str, Any]) -> None:
        peer.transport.abort()

    async def test(client: InstanceClient, _events: list[Any]) -> None:
        results = await asyncio.gather(
            *(client.status(timeout_s=10.0) for _ in range(3)), return_exceptions=True
        )
        assert {getattr(one, "code", None) for one in results} == {"instance-gone"}

    assert with_peer(tmp_path, on_call, test) == ["closed"]


@pytest.mark.parametrize(
    ("address", "kind"),
    [("unix:/nowhere.sock", NotNowError), ("tcp:127.0.0.1:1", NotNowError), ("x", InternalError)],
)
async def test_an_instance_that_is_not_there(address: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await InstanceClient.connect(
            "one", address, on_event=lambda event: None, on_close=lambda: None
        )

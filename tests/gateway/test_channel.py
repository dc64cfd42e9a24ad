"""The channel between processes of a server: what is told, asked and answered, and its end."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.kit.gateway import run
from tests.kit.polling import until

from penstock.core.deployment.deployment import (
    ComparedRoutes,
    CopyRoute,
    EndpointRoutes,
    TargetRoutes,
    VariantRoutes,
)
from penstock.core.rollout.agreement import AgreementSpec
from penstock.errors import CallerError, NotNowError
from penstock.gateway.channel import messages
from penstock.gateway.channel.channel import Channel, open_channel
from penstock.gateway.channel.messages import Json, routes_from
from penstock.wire.frames import HEAD, FrameError

pytestmark = pytest.mark.loop(by=run)


class ChannelEnd:
    """Writes down what it hears; `asked` does what a test says."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Json, bytes]] = []
        self.ended = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def told(self, op: str, fields: Json, data: bytes) -> None:
        self.heard.append((op, fields, data))

    async def asked(self, op: str, fields: Json) -> Json:
        self.heard.append((op, fields, b""))
        if op == "refuse":
            raise CallerError("no-such-thing", "there is none", hint="Look elsewhere.", status=404)
        if op == "fail":
            raise RuntimeError("a bug")
        if op == "wait":
            await self.hold.wait()
        return {"answer": op} | fields

    def closed(self) -> None:
        self.ended += 1


async def pair() -> tuple[Channel, ChannelEnd, Channel, ChannelEnd]:
    ours, its = socket.socketpair()
    here, there = ChannelEnd(), ChannelEnd()
    return await open_channel(ours, here), here, await open_channel(its, there), there


async def test_what_is_told_is_heard_in_its_order_with_its_bytes_and_so_is_what_is_asked() -> None:
    channel, _, other, there = await pair()
    large = b"\0bytes\xff" * 100_000
    channel.tell("first", {"n": 1})
    answers = [asyncio.create_task(channel.ask(f"ask {n}", {"n": n}, timeout_s=10)) for n in (1, 2)]
    await asyncio.sleep(0)
    channel.tell("second", data=large)
    assert [await one for one in answers] == [
        {"answer": "ask 1", "n": 1},
        {"answer": "ask 2", "n": 2},
    ]
    await until(lambda: len(there.heard) == 4)
    told = [one for one in there.heard if not one[0].startswith("ask")]
    assert told == [("first", {"n": 1}, b""), ("second", {}, large)]
    assert [one[0] for one in there.heard if one not in told] == ["ask 1", "ask 2"]
    channel.close()
    other.close()


async def test_both_ends_ask_at_once_and_each_gets_its_own_answers() -> None:
    channel, _, other, there = await pair()
    there.hold.clear()
    late = asyncio.create_task(channel.ask("wait", {"n": 1}, timeout_s=10))
    quick = await channel.ask("quick", {"n": 2}, timeout_s=10)
    back = await other.ask("back", {}, timeout_s=10)
    assert (quick, back) == ({"answer": "quick", "n": 2}, {"answer": "back"})
    assert not late.done()
    there.hold.set()
    assert await late == {"answer": "wait", "n": 1}
    channel.close()


async def test_an_error_is_told_as_it_was_raised_and_a_bug_by_its_code_alone() -> None:
    channel, _, _, _ = await pair()
    with pytest.raises(CallerError) as refused:
        await channel.ask("refuse", timeout_s=10)
    told = refused.value
    assert (told.code, told.hint, told.status) == ("no-such-thing", "Look elsewhere.", 404)
    with pytest.raises(Exception, match="fail failed") as failed:
        await channel.ask("fail", timeout_s=10)
    assert "bug" not in str(failed.value)
    assert await channel.ask("more", timeout_s=10) == {"answer": "more"}
    channel.close()


async def test_the_end_of_a_process_fails_what_was_asked_and_is_told_once() -> None:
    channel, here, other, there = await pair()
    there.hold.clear()
    asked = asyncio.create_task(channel.ask("wait", timeout_s=30))
    await until(lambda: there.heard)
    other.close()
    with pytest.raises(NotNowError) as gone:
        await asked
    assert gone.value.code == "process-gone"
    await until(lambda: here.ended == 1 and there.ended == 1)
    assert not channel.is_open
    channel.tell("nobody hears this")
    with pytest.raises(NotNowError, match="has ended"):
        await channel.ask("nor this", timeout_s=30)
    channel.close()
    assert here.ended == 1


async def test_a_process_that_does_not_answer_is_not_waited_for_longer_than_asked() -> None:
    channel, _, _, there = await pair()
    there.hold.clear()
    with pytest.raises(NotNowError) as silent:
        await channel.ask("wait", timeout_s=0.05)
    assert silent.value.code == "process-silent"
    there.hold.set()  # its answer comes late, and means nothing any more
    assert await channel.ask("more", timeout_s=10) == {"answer": "more"}
    channel.close()


@pytest.mark.parametrize(
    "payload",
    [b"", b"\1\0\0", b"\5\0\0\0{}", b"\2\0\0\0[]", b"\3\0\0\0{x}", b"\xff\xff\xff\xff{}"],
)
async def test_what_is_no_message_ends_the_channel(payload: bytes) -> None:
    with pytest.raises(FrameError):
        messages.decode(payload)
    ours, its = socket.socketpair()
    here = ChannelEnd()
    channel = await open_channel(ours, here)
    its.setblocking(False)
    head = HEAD.pack(len(payload), messages.TELL, 0, 0, 0)
    await asyncio.get_running_loop().sock_sendall(its, head + payload)
    await until(lambda: here.ended == 1)
    assert not channel.is_open
    its.close()


def test_frames_of_requests_are_none_of_the_channels() -> None:
    with pytest.raises(FrameError):
        list(messages.decoder().feed(HEAD.pack(0, 1, 0, 0, 0)))


def test_a_message_is_these_bytes() -> None:
    encoded = messages.encode(messages.TELL, 0, {"op": "x"}, b"data")
    assert encoded.hex(" ", 4) == bytes.fromhex(
        "12000000 40 00 0000 0000000000000000 0a000000 7b226f70223a2278227d 64617461"
    ).hex(" ", 4)
    assert messages.decode(encoded[HEAD.size :]) == ({"op": "x"}, b"data")


def test_routes_are_the_same_on_the_other_side() -> None:
    routes = EndpointRoutes(
        endpoint="e",
        variants=(
            VariantRoutes(
                name="v",
                weight=0.5,
                strategy="RANDOM",
                copies=(
                    CopyRoute(copy=1, instance_id="i", outstanding_max=3, incoming=True),
                    CopyRoute(copy=2, instance_id="i", outstanding_max=3, base_copy=1),
                ),
                model={"inputs": [{"name": "x", "shape": [-1, 2]}], "lanes": 2},
                multi_model=True,
                component="c",
                zero_capacity="hold",
                compared=ComparedRoutes(rollout=7, spec=AgreementSpec(kind="exact")),
            ),
            VariantRoutes(name="w", weight=1.0, strategy="RANDOM", copies=(), incoming=True),
        ),
        takes_components=True,
        asynchronous=True,
        served_names={"densenet_onnx": "", "resnet": "team/resnet"},
        targets=(
            TargetRoutes(target="a", serves="a-2"),
            TargetRoutes(
                target="b",
                serves="b",
                incoming="b-2",
                share=0.1,
                compared=ComparedRoutes(rollout=8, spec=AgreementSpec(scorer="judge")),
            ),
        ),
        shadows=(
            VariantRoutes(
                name="dark",
                weight=0.5,
                strategy="RANDOM",
                copies=(CopyRoute(copy=3, instance_id="j", outstanding_max=3),),
            ),
        ),
    )
    fields, _ = messages.decode(messages.encode(messages.TELL, 0, {"routes": routes})[HEAD.size :])
    assert routes_from(fields["routes"]) == routes


def test_routes_of_an_older_server_have_one_generation() -> None:
    """While a cluster is updated, one server's gateways may be told by another's control plane."""
    variant = {"name": "v", "weight": 1.0, "strategy": "RANDOM", "copies": []}
    told = routes_from({"endpoint": "e", "variants": [variant]})
    assert told == EndpointRoutes(
        endpoint="e",
        variants=(VariantRoutes(name="v", weight=1.0, strategy="RANDOM", copies=()),),
    )

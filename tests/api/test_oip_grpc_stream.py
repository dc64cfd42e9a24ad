"""ModelStreamInfer: several requests on one call, answers in pieces, order, cancellation."""

from __future__ import annotations

import asyncio
import gc
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.environments import python_of
from tests.kit.gateway import run, silent
from tests.kit.polling import until
from tests.kit.streams import HeldStream, end, error_of, first, more, operations, streaming

from penstock.errors import ModelError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.wire import frames
from penstock.wire.oip_messages import (
    SERVICE,
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)

pytestmark = pytest.mark.loop(by=run)

GRPC = "application/x-oip-grpc"


def request(ident: str, *, final: bool = False) -> bytes:
    made = ModelInferRequest(model_name="echo", id=ident)
    if final:
        made.parameters["triton_enable_empty_final_response"].bool_param = True
    return bytes(made.SerializeToString())


def answer(ident: str, text: bytes) -> bytes:
    """What an instance sends of a piece, and as a whole answer."""
    made = ModelInferResponse(model_name="echo", model_version="1", id=ident)
    made.outputs.add(name="text_output", datatype="BYTES", shape=[1])
    made.raw_output_contents.append(len(text).to_bytes(4, "little") + text)
    return bytes(made.SerializeToString())


def summary(data: bytes) -> tuple[str, str, bool | None]:
    """(id, text or error, whether it says that it is the last)."""
    message = ModelStreamInferResponse.FromString(data)
    response = message.infer_response
    text = b"".join(raw[4:] for raw in response.raw_output_contents).decode()
    final = response.parameters.get("triton_final_response")
    return response.id, message.error_message or text, final.bool_param if final else None


class StreamingClient:
    """One call under way: `send` a request, `told` is what came."""

    def __init__(self, served: DoorSite) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.told: list[tuple[str, str, bool | None]] = []
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}")
        self._call = self._channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(self._requests())
        self._reader = asyncio.ensure_future(self._read())

    async def _requests(self) -> AsyncIterator[bytes]:
        while (request := await self._queue.get()) is not None:
            yield request

    async def _read(self) -> None:
        async for data in self._call:
            self.told.append(summary(data))

    def send(self, *requests: bytes) -> None:
        for each in requests:
            self._queue.put_nowait(each)

    async def end(self) -> None:
        """Sends no more, and reads to the end."""
        self._queue.put_nowait(None)
        await self._reader
        await self._channel.close()

    async def cancel(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()


def with_client(test: Callable[[DoorSite, StreamingClient, HeldStream], Any]) -> None:
    async def main() -> None:
        async with door_site() as served:
            told = served.instance.on_invoke = HeldStream()
            await test(served, StreamingClient(served), told)

    run(main)


def test_pieces_leave_when_they_are_made_and_requests_run_side_by_side() -> None:
    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a"), request("b"))
        await until(lambda: len(told.idents) == 2)
        a, b = told.idents
        told.send(first(b, answer("b", b"b1"), GRPC))
        await until(lambda: client.told == [("b", "b1", False)])
        told.send(first(a, answer("a", b"a1"), GRPC), more(b, answer("b", b"b2")))
        await until(lambda: client.told[1:] == [("a", "a1", False), ("b", "b2", False)])
        told.send(end(b), more(a, answer("a", b"a2")), end(a))
        await client.end()
        assert client.told[3:] == [("a", "a2", False)]
        assert served.dispatcher.in_flight == 0
        assert (
            operations(served.instance.invokes) == [("oip-grpc", {"operation": "stream_infer"})] * 2
        )

    with_client(test)


def test_who_asks_for_it_is_told_by_an_empty_answer_that_one_is_complete() -> None:
    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a", final=True), request("b", final=True))
        await until(lambda: len(told.idents) == 2)
        a, b = told.idents
        told.send(first(a, answer("a", b"a1"), GRPC), end(a))
        told.send(frames.encode_reply(b, body=answer("b", b"whole")))
        await client.end()
        assert client.told == [("a", "a1", False), ("a", "", True), ("b", "whole", True)]

    with_client(test)


def test_what_a_message_held_is_gone_with_its_answers() -> None:
    """Without the collector of cycles, which comes rarely."""

    def held() -> int:
        return sum(isinstance(each, Invocation) for each in gc.get_objects())

    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        gc.collect()
        before = held()
        gc.disable()
        try:
            client.send(request("a"), request("b"))
            await until(lambda: len(told.idents) == 2)
            a, b = told.idents
            assert held() == before + 2
            told.send(frames.encode_reply(b, body=answer("b", b"whole")))
            told.send(first(a, answer("a", b"a1"), GRPC), end(a))
            await client.end()
            assert held() == before
        finally:
            gc.enable()

    with_client(test)


def test_a_whole_answer_is_marked_as_the_last_without_being_asked() -> None:
    """Clients of decoupled models read until that mark, whatever the model is."""

    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a"))
        await until(lambda: len(told.idents) == 1)
        told.send(frames.encode_reply(told.idents[0], body=answer("a", b"whole")))
        await client.end()
        assert client.told == [("a", "whole", True)]

    with_client(test)


def test_a_model_that_says_itself_which_piece_is_the_last_is_passed_on() -> None:
    def said(text: bytes, last: bool) -> bytes:
        made = ModelInferResponse.FromString(answer("a", text))
        made.parameters["triton_final_response"].bool_param = last
        return bytes(made.SerializeToString())

    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a", final=True))
        await until(lambda: told.idents)
        [a] = told.idents
        told.send(first(a, said(b"1", False), GRPC), more(a, said(b"2", True)), end(a))
        await client.end()
        assert client.told == [("a", "1", False), ("a", "2", True)]

    with_client(test)


def test_whole_answers_keep_the_order_of_their_requests_and_wait_for_no_stream() -> None:
    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(*(request(ident) for ident in "abcd"))
        await until(lambda: len(told.idents) == 4)
        a, b, c, d = told.idents
        told.send(frames.encode_reply(d, body=answer("d", b"4")))
        told.send(frames.encode_reply(b, body=answer("b", b"2")))
        told.send(first(a, answer("a", b"1"), GRPC))
        await until(lambda: len(client.told) == 2)
        assert client.told == [("b", "2", True), ("a", "1", False)]
        told.send(error_of(c, ModelError("x", "no", original_message="no")))
        told.send(end(a))
        await client.end()
        assert client.told[2:] == [("c", "no", None), ("d", "4", True)]

    with_client(test)


def test_a_stream_that_breaks_is_told_with_its_id_and_the_call_goes_on() -> None:
    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a"))
        await until(lambda: told.idents)
        error = ModelError("stream-broken", "x", original_message="the engine ended")
        told.send(first(told.idents[0], answer("a", b"1"), GRPC), error_of(told.idents[0], error))
        await until(lambda: len(client.told) == 2)
        client.send(b"\x0a", request("b"))
        await until(lambda: len(told.idents) == 2)
        told.send(frames.encode_reply(told.idents[1], body=answer("b", b"2")))
        await client.end()
        assert client.told == [
            ("a", "1", False),
            ("a", "the engine ended", None),
            ("", "The message is not a ModelInferRequest.", None),
            ("b", "2", True),
        ]

    with_client(test)


def test_a_client_that_cancels_the_call_cancels_all_its_requests() -> None:
    async def test(served: DoorSite, client: StreamingClient, told: HeldStream) -> None:
        client.send(request("a"), request("b"))
        await until(lambda: len(told.idents) == 2)
        told.send(first(told.idents[0], answer("a", b"1"), GRPC))
        await until(lambda: client.told)
        await client.cancel()
        await until(lambda: sorted(served.instance.cancelled) == told.idents)
        assert served.dispatcher.in_flight == 0

    with_client(test)


async def test_only_so_many_requests_of_one_call_are_in_flight() -> None:
    async with door_site() as served:
        served.instance.on_invoke = silent
        client = StreamingClient(served)
        client.send(*(request(str(number)) for number in range(70)))
        await until(lambda: len(served.instance.invokes) == 64)
        assert served.dispatcher.in_flight == 64
        await client.cancel()
        await until(lambda: not served.dispatcher.in_flight)


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.api.oip.grpc_stream.UNREAD_BYTES_MAX", 4 << 20)
    async with falling_behind() as (served, call, told, ident):
        while not served.instance.cancelled:
            told.send(more(ident, PIECE))
            await asyncio.sleep(0)
        await until(lambda: not served.dispatcher.in_flight)
        assert served.instance.cancelled == [ident]
        await ends_unread(call)


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def ends_unread(call: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(call)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "were not read" in (caught.value.details() or "")


PIECE = answer("a", b"x" * 1_000_000)


@asynccontextmanager
async def falling_behind() -> AsyncIterator[tuple[DoorSite, Any, HeldStream, int]]:
    """A client that does not read its stream, whose model was asked to wait."""
    async with door_site() as served:
        told = served.instance.on_invoke = HeldStream()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")()
            await call.write(request("a"))
            await until(lambda: told.idents)
            [ident] = told.idents
            told.send(first(ident, answer("a", b"x"), GRPC))
            while not served.instance.paced:
                told.send(more(ident, PIECE))
                await asyncio.sleep(0)
            assert served.instance.paced[0] == (ident, True)
            yield served, call, told, ident


async def test_the_model_of_a_client_that_falls_behind_waits_until_it_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # This model makes its pieces in no time, so any number is under way before it hears of it.
    monkeypatch.setattr("penstock.api.oip.grpc_stream.UNREAD_BYTES_MAX", 1 << 30)
    async with falling_behind() as (served, call, told, ident):
        while (ident, False) not in served.instance.paced:
            assert await call.read()
        told.send(end(ident))
        await call.done_writing()
        await read_all(call)
        assert served.instance.cancelled == []


async def test_a_client_that_reads_nothing_while_a_model_waits_loses_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.api.oip.grpc_stream.UNREAD_S_MAX", 0.1)
    monkeypatch.setattr("penstock.api.oip.grpc_stream.READ_BYTES_PER_S_MIN", 1 << 30)
    async with falling_behind() as (served, call, told, ident):

        def cut() -> bool:
            """gRPC itself takes some of it for the client, and then there has to be more."""
            if served.instance.paced[-1] == (ident, False):
                told.send(more(ident, PIECE))
            return bool(served.instance.cancelled == [ident])

        await until(cut)
        await ends_unread(call)


CLIENT = """
import faulthandler, queue, sys
faulthandler.dump_traceback_later(100, exit=True)  # a test has two minutes
import numpy as np
import tritonclient.grpc as triton

answers = queue.Queue()
client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
client.start_stream(lambda result, error: answers.put((result, error)))
text = triton.InferInput("text_input", [1], "BYTES")
text.set_data_from_numpy(np.array([b"hello"], dtype=object))
seen = []
for ident in ("r1", "r2"):
    client.async_stream_infer("echo", [text], request_id=ident, enable_empty_final_response=True)
    while True:
        result, error = answers.get(timeout=60)
        assert error is None, error
        response = result.get_response()
        if response.parameters["triton_final_response"].bool_param:
            break
        seen.append((response.id, result.as_numpy("text_output")[0].decode()))
client.async_stream_infer("nobody", [text])
result, error = answers.get(timeout=60)
client.stop_stream()
print(seen, "unknown model" in str(error))
"""


async def test_tritonclient_streams_unmodified() -> None:
    python = str(python_of("client-tritonclient"))

    def generate(connection: Any, ident: int, invoke: frames.Invoke) -> None:
        asked = ModelInferRequest.FromString(invoke.body).id
        pieces = [answer(asked, text) for text in (b"one ", b"two")]
        streaming(*pieces, content_type=GRPC)(connection, ident, invoke)

    async with door_site() as served:
        served.instance.on_invoke = generate
        # In a thread and not through the loop, which forks: gRPC's threads do not bear that.
        done = await asyncio.to_thread(
            subprocess.run,
            [python, "-c", CLIENT, str(served.grpc_port)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        pairs = [(ident, text) for ident in ("r1", "r2") for text in ("one ", "two")]
        assert done.stdout.strip() == f"{pairs} True"

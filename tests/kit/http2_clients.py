"""An HTTP/2 client on a loopback, made of h2: requests at once on one connection, by stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

NAMES = ("method", "scheme", "authority", "path")


@dataclass
class Http2Answer:
    """What has come on one stream."""

    interim: list[int] = field(default_factory=list)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None  #: the code

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


class Http2Speaker:
    """The client's side of one connection, without its socket: a subclass has `write`.

    `opens_windows` False: it gives no window back by itself.
    """

    def __init__(self, *, opens_windows: bool = True, window_bytes: int | None = None) -> None:
        self.opens_windows = opens_windows
        self.answers: dict[int, Http2Answer] = {}
        self.last_accepted: int | None = None  #: by the last GOAWAY
        self.closed = False
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        )
        # h2 takes a GOAWAY for the end; open streams go on (RFC 9113, 6.8).
        machine = self.h2.state_machine
        is_open, told = h2.connection.ConnectionState.CLIENT_OPEN, h2.connection.ConnectionInputs
        machine._transitions = {
            **machine._transitions, (is_open, told.RECV_GOAWAY): (None, is_open),
        }  # fmt: skip
        if window_bytes is not None:
            initial = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
            self.h2.local_settings[initial] = window_bytes
            self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.write(data)

    def begin(
        self,
        method: str,
        path: str,
        *headers: tuple[str, str],
        end: bool = True,
        authority: str = "localhost",
    ) -> int:
        """Sends a head; returns the stream."""
        stream = int(self.h2.get_next_available_stream_id())
        pseudo = zip(NAMES, (method, "http", authority, path), strict=True)
        left_out = ("scheme", "path") if method == "CONNECT" else ()
        head = [(f":{name}", value) for name, value in pseudo if name not in left_out]
        self.h2.send_headers(stream, [*head, *headers], end_stream=end)
        self.answers[stream] = Http2Answer()
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """A piece that its windows take."""
        frame_bytes_max = self.h2.max_outbound_frame_size
        while len(data) > frame_bytes_max:
            self.h2.send_data(stream, data[:frame_bytes_max])
            data = data[frame_bytes_max:]
        self.h2.send_data(stream, data, end_stream=end)
        self.flush()

    def post(self, path: str, body: bytes = b"", *headers: tuple[str, str], **about: Any) -> int:
        length = ("content-length", str(len(body)))
        stream = self.begin("POST", path, length, *headers, end=not body, **about)
        if body:
            self.send(stream, body, end=True)
        return stream

    def take(self, data: bytes) -> None:
        """What the server has sent."""
        for event in self.h2.receive_data(data):
            self._take(event)
        self.flush()

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.last_accepted = event.last_stream_id
        answer = self.answers.get(getattr(event, "stream_id", 0) or 0, Http2Answer())
        if isinstance(event, h2.events.InformationalResponseReceived):
            answer.interim.append(int(dict(event.headers)[":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            answer.headers = {str(name): str(value) for name, value in event.headers}
            answer.status = int(answer.headers.pop(":status"))
        elif isinstance(event, h2.events.DataReceived):
            answer.pieces.append(event.data)
            if self.opens_windows:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.ended = True
        elif isinstance(event, h2.events.StreamReset) and not answer.ended:
            answer.reset = int(event.error_code)

    def reset(self, stream: int) -> None:
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self.flush()


class Http2Client(Http2Speaker):
    """The same over a socket; it reads whenever a method waits."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **about: Any
    ) -> None:
        super().__init__(**about)
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(
        cls,
        port: int,
        *,
        opens_windows: bool = True,
        window_bytes: int | None = None,
        preface_cut: int = 0,
        **options: Any,
    ) -> Http2Client:
        """`preface_cut`: the first so many bytes come by themselves."""
        streams = await asyncio.open_connection("127.0.0.1", port, **options)
        client = cls(*streams, opens_windows=opens_windows, window_bytes=window_bytes)
        if preface_cut:
            opening = client.h2.data_to_send()
            client.writer.write(opening[:preface_cut])
            await asyncio.sleep(0.02)
            client.writer.write(opening[preface_cut:])
        client.flush()
        return client

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def upload(self, stream: int, body: bytes) -> None:
        """The whole body, as the server's windows allow."""
        answer = self.answers[stream]
        while body:
            if answer.ended or answer.reset is not None or self.closed:
                return
            window = self.h2.local_flow_control_window(stream)
            if window <= 0:
                await self.read()
                continue
            piece, body = body[:window], body[window:]
            self.send(stream, piece, end=not body)
            await self.writer.drain()

    async def ask(
        self, method: str, path: str, body: bytes = b"", *headers: tuple[str, str], **about: Any
    ) -> Http2Answer:
        stream = self.begin(method, path, *headers, end=not body, **about)
        await self.upload(stream, body)
        return await self.answer(stream)

    async def answer(self, stream: int) -> Http2Answer:
        """Waits until the answer is complete, reset, or can't come any more."""
        answer = self.answers[stream]
        while not (answer.ended or answer.reset is not None or self.closed):
            await self.read()
        return answer

    async def read(self) -> None:
        """Takes what comes next; `closed` once nothing comes any more."""
        assert not self.closed, "nothing comes any more"
        async with asyncio.timeout(20):
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError:
                data = b""
        if not data:
            self.closed = True
            return
        self.take(data)

    async def wait_closed(self) -> None:
        while not self.closed:
            await self.read()

    def close(self) -> None:
        self.writer.transport.abort()

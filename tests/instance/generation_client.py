"""A frame client that keeps every frame of an answer: streams have many."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.instances import FrameClient

from penstock.wire import frames

LAST = (frames.REPLY, frames.END, frames.ERROR, frames.RETURNED)


class StreamClient(FrameClient):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.socket.settimeout(90.0)  # an engine that starts anew on a busy machine takes its time
        self.parts: dict[int, list[frames.Frame]] = {}

    def read(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the instance closed the connection")
        for frame in self.decoder.feed(data):
            if frame.kind == frames.EVENT:
                self.events.append(json.loads(frame.payload))
            elif frame.kind == frames.CONTROL_REPLY:
                self.answers[frame.ident] = frame
            else:
                parts = self.parts.setdefault(frame.ident, [])
                assert not parts or parts[-1].kind not in LAST, f"{frame.ident}: ended twice"
                parts.append(frame)

    def whole(self, ident: int) -> Generated:
        """Waits for the end of an answer."""
        while not self.parts.get(ident) or self.parts[ident][-1].kind not in LAST:
            self.read()
        return Generated(self.parts[ident])

    def begun(self, ident: int) -> None:
        """Waits for the first piece of an answer."""
        while not self.parts.get(ident):
            self.read()

    def ask(self, copy: int, body: Any, **meta: Any) -> Generated:
        return self.whole(self.begin(copy, body, **meta))

    def begin(self, copy: int, body: Any, **meta: Any) -> int:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        parameters = meta.pop("asked", None)
        if parameters is not None:
            meta["parameters"] = json.dumps(parameters)
        return self.send(copy, encoded, **meta)

    def together(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Control calls that are under way at once, and their answers in the same order."""
        idents = [self.begin_control(**call) for call in calls]
        return [self.result(ident) for ident in idents]

    def cancel(self, ident: int) -> None:
        self.socket.sendall(frames.encode(frames.CANCEL, ident))


class Generated:
    """What became of a request."""

    def __init__(self, parts: list[frames.Frame]) -> None:
        *chunks, last = parts
        self.kind = last.kind
        self.content_type = None
        for at, chunk in enumerate(chunks):
            assert chunk.kind == frames.CHUNK
            assert bool(chunk.flags & frames.FIRST) == (at == 0)
        if chunks:
            meta = frames.decode_reply_meta(chunks[0].payload[: chunks[0].meta_bytes])
            self.content_type = meta.content_type
        self.chunks = [chunk.payload[chunk.meta_bytes :] for chunk in chunks]
        if last.kind == frames.RETURNED:
            self.reason = last.payload.decode()
            return
        self.reply = frames.decode_reply(last.payload, last.meta_bytes)
        self.meta = frames.decode_reply_meta(self.reply.meta)
        self.body = self.reply.body

    @property
    def json(self) -> Any:
        assert self.kind == frames.REPLY, self.error
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.kind == frames.ERROR, self.kind
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The JSON of each server-sent event of a stream; "[DONE]" as it stands."""
        assert self.kind == frames.END, self.error
        found = []
        for line in b"".join(self.chunks).decode().split("\n\n"):
            if line:
                text = line.removeprefix("data:").strip()
                found.append(text if text == "[DONE]" else json.loads(text))
        return found

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.meta.generation)

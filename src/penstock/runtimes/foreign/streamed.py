"""An answer of a foreign server that is passed on piece by piece, as it is written.

Only answers without a length are: a server that knows it has written the whole. The server waits
while the reader can't take more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.runtimes.base import AnswerStream
from penstock.wire.frames import CUSTOM_ATTRIBUTES
from penstock.wire.http_client import Headers, HttpAnswer, HttpClientConnection, WholeAnswer

_ATTRIBUTES: Final = CUSTOM_ATTRIBUTES.encode()


def content_of(answer: HttpAnswer) -> tuple[str, str | None]:
    """Content type and custom attributes."""
    attributes = answer.headers.get(_ATTRIBUTES)
    kind = answer.headers.get(b"content-type", b"application/octet-stream")
    return kind.decode("latin-1"), None if attributes is None else attributes.decode("latin-1")


class StreamedAnswer(WholeAnswer):
    """An `AnswerReader`. What is not streamed is collected; `sent` says that a piece was."""

    __slots__ = ("_began", "_connection", "_stream", "_streams", "sent")

    def __init__(
        self,
        answered: Callable[[HttpAnswer | None], None],
        stream: AnswerStream,
        connection: HttpClientConnection,
        began: Callable[[], None],
    ) -> None:
        """`began`: called before the first piece is passed on."""
        super().__init__(answered)
        self._stream = stream
        self._connection = connection
        self._began = began
        self._streams = False
        self.sent = False

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        super().on_head(status, headers, length)
        self._streams = length is None and 200 <= status < 300

    def on_body(self, data: bytes) -> None:
        if not self._streams:
            super().on_body(data)
            return
        if not self.sent:
            self.sent = True
            self._began()
            self._stream.begin(*content_of(self.answer()))
        self._stream.send(data)
        if self._stream.full:
            self._connection.pause()
            self._stream.when_taken(self._connection.resume)

"""An instance that lies: well-formed frames that make no sense, and bytes that are no frames.

Each request gets one of `MISDEEDS`, chosen by the seed. Bodies that are sent for one carry its
own mark or none, so an answer that reaches another client is seen. What a misdeed does is in its
name; a fair share of the requests is answered as it should be, now or later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import orjson
from tests.kit.virtual_network import VirtualInstance

from penstock.wire import frames

_NO_MARK = b"!" * 24
_JSON = frames.encode_reply_meta(frames.ReplyMeta("application/json"))
_STREAM = frames.encode_reply_meta(frames.ReplyMeta("text/event-stream"))

#: Metas that are no array of texts, or not what the gateway can put into a head.
METAS = (
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"7",
    b'"text"',
    b'{"a":1,"b":2,"c":3,"d":4}',
    b"[1,2,3,4]",
    b"[[],{},null,{}]",
    b'["a/b","x\\r\\nInjected: yes"]',
    b'["\\ud800"]',
    b'["\\u20ac","\\u20ac"]',
    orjson.dumps(["x"] * 100),
    orjson.dumps([None, None, 10**18]),
    orjson.dumps([None, None, None, "not json"]),
    orjson.dumps([None, None, None, '{"tokens_in": -5, "tokens_out": 1e308}']),
    orjson.dumps([None, None, None, '{"tokens_out": 9223372036854775807, "first_token_s": 1e308}']),
)
#: Bodies of ERROR that are no error of ours, or one with fields of the wrong kind.
ERRORS = (
    b"",
    b"\xff",
    b"[]",
    b"{}",
    b'{"code": 7, "message": [], "hint": {}, "family": "caller"}',
    b'{"code": "x", "message": "m", "family": "caller", "status": "four"}',
    b'{"code": "x", "message": "m", "family": "not-now", "status": 503, "retry_after_s": "soon"}',
    b'{"code": "x", "message": "m", "family": "model", "original_status": "bad",'
    b' "original_message": 5}',
    b'{"code": "x", "message": "\\r\\n\\r\\n", "family": "model", "status": 99999}',
    b'{"code": "x", "message": "m", "family": "model", "status": 204}',
    b'{"code": "x", "message": "m", "family": "internal", "status": -1, "retry_after_s": 1e300}',
)
NEWS = (
    b"[]",
    b"null",
    b"{",
    b'{"event": "copy-lost", "copy": true}',
    b'{"event": "copy-lost", "copy": "1"}',
    b'{"event": [], "copy": 1}',
    b'{"event": "copy-ready", "copy": 99}',
)


class Byzantine(VirtualInstance):
    """`honesty`: the share of requests that it answers as it should."""

    def __init__(self, instance_id: str, rng: random.Random, *, honesty: float) -> None:
        super().__init__(instance_id)
        self._rng = rng
        self._honesty = honesty
        self._loop = asyncio.get_running_loop()
        self._idents = [1]
        self.on_invoke = self._answer
        self.done: list[str] = []  #: misdeeds, for whoever reads a failure

    def _answer(self, _: VirtualInstance, ident: int, invoke: frames.Invoke) -> None:
        self._idents.append(ident)
        name = "reply"
        if self._rng.random() >= self._honesty:
            name = self._rng.choice(MISDEEDS)
        self.done.append(name)
        getattr(self, f"_{name}")(ident, invoke.body)

    def _later(self, data: bytes, delay_s: float | None = None) -> None:
        if delay_s is None:
            delay_s = self._rng.choice(
                (0.0, 0.0, 0.001, self._rng.random(), 3 * self._rng.random())
            )
        transport = self.transport
        if transport is not None:
            self._loop.call_later(delay_s, transport.send, data)

    def _after(self, call: Callable[[], None]) -> None:
        self._loop.call_later(2 * self._rng.random(), call)

    # as it should be

    def _reply(self, ident: int, body: bytes) -> None:
        if self._rng.random() < 0.5:
            self._stream(ident, body)
        else:
            self._later(frames.encode_reply(ident, batch_rows=1, meta=_JSON, body=body))

    def _stream(self, ident: int, body: bytes) -> None:
        first = frames.encode(
            frames.CHUNK, ident, _STREAM + body, flags=frames.FIRST, meta_bytes=len(_STREAM)
        )
        delay_s = self._rng.random()
        self._later(first, delay_s)
        for _ in range(self._rng.randrange(4)):
            delay_s += 0.2 * self._rng.random()
            self._later(frames.encode(frames.CHUNK, ident, body), delay_s)
        self._later(frames.encode_reply(ident, kind=frames.END), delay_s + 0.01)

    # misdeeds

    def _silence(self, ident: int, body: bytes) -> None: ...

    def _twice(self, ident: int, body: bytes) -> None:
        self._reply(ident, body)
        self._reply(ident, body)

    def _returned(self, ident: int, body: bytes) -> None:
        reason = self._rng.choice((b"worker-died", b"draining", b"\xff\xfe", b"", b"x" * 5000))
        self._later(frames.encode(frames.RETURNED, ident, reason))

    def _error(self, ident: int, body: bytes) -> None:
        text = self._rng.choice(ERRORS)
        self._later(frames.encode_reply(ident, kind=frames.ERROR, body=text))

    def _error_in_a_stream(self, ident: int, body: bytes) -> None:
        text = self._rng.choice(ERRORS)
        whole = frames.encode(frames.CHUNK, ident, body) + frames.encode_reply(
            ident, kind=frames.ERROR, body=text, meta=self._rng.choice(METAS)
        )
        self._later(whole)

    def _unknown_ident(self, ident: int, body: bytes) -> None:
        wrong = self._rng.choice((0, ident + 1, ident + 1000, 1 << 63, (1 << 64) - 1))
        kind = self._rng.choice((frames.REPLY, frames.END, frames.ERROR))
        self._later(frames.encode_reply(wrong, kind=kind, body=_NO_MARK))

    def _late(self, ident: int, body: bytes) -> None:
        self._later(frames.encode_reply(ident, body=body), 6 + 6 * self._rng.random())

    def _earlier_one_again(self, ident: int, body: bytes) -> None:
        earlier = self._rng.choice(self._idents)
        kind = self._rng.choice((frames.REPLY, frames.CHUNK, frames.END, frames.RETURNED))
        self._later(frames.encode_reply(earlier, kind=kind, body=_NO_MARK))

    def _end_alone(self, ident: int, body: bytes) -> None:
        self._later(frames.encode_reply(ident, kind=frames.END, meta=self._rng.choice(METAS)))

    def _piece_behind_the_end(self, ident: int, body: bytes) -> None:
        end = frames.encode_reply(ident, kind=frames.END)
        piece = frames.encode(frames.CHUNK, ident, body)
        self._later(piece + end + piece + end)

    def _reply_behind_a_piece(self, ident: int, body: bytes) -> None:
        self._later(
            frames.encode(frames.CHUNK, ident, body) + frames.encode_reply(ident, body=body)
        )

    def _returned_behind_a_piece(self, ident: int, body: bytes) -> None:
        self._later(frames.encode(frames.CHUNK, ident, body))
        self._later(frames.encode(frames.RETURNED, ident, b"worker-died"), 3.0)

    def _pieces_for_ever(self, ident: int, body: bytes) -> None:
        for at in range(60):
            flags = self._rng.choice((0, frames.FIRST))
            self._later(frames.encode(frames.CHUNK, ident, body, flags=flags), at * 0.5)

    def _absurd_meta(self, ident: int, body: bytes) -> None:
        meta = self._rng.choice(METAS)
        kind = self._rng.choice((frames.REPLY, frames.END))
        self._later(frames.encode_reply(ident, kind=kind, meta=meta, body=body))

    def _absurd_meta_of_a_piece(self, ident: int, body: bytes) -> None:
        meta = self._rng.choice(METAS)
        first = frames.encode(
            frames.CHUNK, ident, meta + body, flags=frames.FIRST, meta_bytes=len(meta)
        )
        self._later(first + frames.encode_reply(ident, kind=frames.END, meta=meta))

    def _absurd_numbers(self, ident: int, body: bytes) -> None:
        self._later(
            frames.encode_reply(
                ident, status=65535, batch_rows=65535, lane=255, reason=255,
                queue_us=(1 << 32) - 1, run_us=self._rng.choice((0, 1000)), body=body,
            )
        )  # fmt: skip

    def _no_reply_head(self, ident: int, body: bytes) -> None:
        kind = self._rng.choice((frames.REPLY, frames.END, frames.ERROR))
        self._later(frames.encode(kind, ident, bytes(self._rng.randrange(14))))

    def _wrong_kind(self, ident: int, body: bytes) -> None:
        self._later(frames.encode(self._rng.randrange(256), ident, self._rng.randbytes(40)))

    def _huge_claim(self, ident: int, body: bytes) -> None:
        size = self._rng.choice((1 << 16, 1 << 24, (1 << 30) - 1, 1 << 30, (1 << 32) - 1))
        self._later(frames.HEAD.pack(size, frames.REPLY, 0, 0, ident) + _NO_MARK)

    def _torn(self, ident: int, body: bytes) -> None:
        whole = frames.encode_reply(ident, body=_NO_MARK)
        self._later(whole[: self._rng.randrange(1, len(whole))])

    def _torn_and_gone(self, ident: int, body: bytes) -> None:
        whole = frames.encode_reply(ident, body=body)
        self.send(whole[: self._rng.randrange(1, len(whole))])
        self.drop()

    def _flipped_bit(self, ident: int, body: bytes) -> None:
        whole = bytearray(frames.encode_reply(ident, meta=_JSON, body=_NO_MARK))
        bit = self._rng.randrange(30 * 8)
        whole[bit // 8] ^= 1 << bit % 8
        self._later(bytes(whole))

    def _noise(self, ident: int, body: bytes) -> None:
        self._later(self._rng.randbytes(self._rng.randrange(1, 200)))

    def _news(self, ident: int, body: bytes) -> None:
        self._later(frames.encode(frames.EVENT, 0, self._rng.choice(NEWS)))
        self._reply(ident, body)

    def _copy_comes_and_goes(self, ident: int, body: bytes) -> None:
        copy = int(self.instance_id[1:])
        for event in (b"copy-lost", b"copy-ready"):
            text = b'{"event": "%b", "copy": %d}' % (event, copy)
            self._later(frames.encode(frames.EVENT, 0, text), self._rng.random())
        self._returned(ident, body)

    def _byte_by_byte(self, ident: int, body: bytes) -> None:
        """Frames of others may come in between: then it is torn."""
        whole = frames.encode_reply(ident, body=_NO_MARK)
        for at in range(len(whole)):
            self._later(whole[at : at + 1], at * 0.002)

    def _gone(self, ident: int, body: bytes) -> None:
        self.drop()

    def _away_for_a_while(self, ident: int, body: bytes) -> None:
        self.accepts = False
        self.drop()
        self._after(lambda: setattr(self, "accepts", True))

    def _stops_reading(self, ident: int, body: bytes) -> None:
        transport = self.transport
        if transport is not None:
            transport.reading = False
            self._after(transport.read_all)
        self._later(frames.encode_reply(ident, body=body))


MISDEEDS = tuple(
    name[1:]
    for name, member in vars(Byzantine).items()
    if callable(member)
    and name not in ("__init__", "_answer", "_later", "_after", "_reply", "_stream")
)

#: Behind these the instance's next frames are read as a part of the torn one: what comes of it may
#: hold a part of another answer.
TEARS = frozenset(
    ("byte_by_byte", "flipped_bit", "huge_claim", "noise", "torn", "torn_and_gone", "wrong_kind")
)

"""Our machine against `h2`: a client made of it, cuts at random, windows, hostile bytes.

`h2` and `hpack` are the reference here: two implementations that agree on random traffic have no
common author to share a misreading with.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import defaultdict

import pytest
from h2 import events as of_h2
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Decoder, Encoder
from http2_bytes import GRPC, START, data, get, headers, post

from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import (
    ConnectionFailed,
    DataReceived,
    Http2Event,
    RequestReceived,
    StreamReset,
    TrailersReceived,
    WindowOpened,
)
from penstock.wire.http2.hpack import Field, HpackDecoder, HpackEncoder
from penstock.wire.http2.spec import Http2Spec

STEPS_MAX = 20_000


class EchoService:
    """The driver and the application of a test: answers each request with its own body."""

    def __init__(self, chance: random.Random, spec: Http2Spec) -> None:
        self.machine = Http2Connection(spec, now=0.0)
        self.chance = chance
        self.unsent: dict[int, bytearray] = defaultdict(bytearray)
        self.trailers: dict[int, tuple[Field, ...]] = {}
        self.complete: set[int] = set()
        self.heads: dict[int, RequestReceived] = {}

    def act(self, event: Http2Event) -> None:
        if isinstance(event, RequestReceived):
            self.heads[event.stream] = event
            self.machine.send_headers(event.stream, ((b":status", b"200"), *event.fields))
            if event.end:
                self.complete.add(event.stream)
        elif isinstance(event, DataReceived):
            self.unsent[event.stream] += event.data
            self.machine.acknowledge(event.stream, event.flow_bytes)
            if event.end:
                self.complete.add(event.stream)
        elif isinstance(event, TrailersReceived):
            self.trailers[event.stream] = event.fields
            self.complete.add(event.stream)
        elif isinstance(event, StreamReset):
            self.complete.discard(event.stream)
            self.unsent.pop(event.stream, None)
            return
        else:
            assert isinstance(event, WindowOpened), event
        self.send(event.stream)

    def send(self, stream: int) -> None:
        rest = self.unsent[stream]
        ends = stream in self.complete
        last = ends and stream not in self.trailers
        taken = self.machine.send_data(stream, bytes(rest), end=last)
        whole = taken == len(rest)
        del rest[:taken]
        if ends and whole:
            if not last:
                self.machine.send_trailers(stream, self.trailers[stream])
            self.complete.discard(stream)


class OracleClient:
    """`h2` as a client that opens streams, sends bodies in pieces, and cancels some."""

    def __init__(self, chance: random.Random, streams: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.chance = chance
        self.left = streams
        self.unsent: dict[int, bytes] = {}
        self.asked: dict[int, tuple[list[Field], bytes, bool]] = {}
        self.heads: dict[int, list[Field]] = {}
        self.bodies: dict[int, bytearray] = defaultdict(bytearray)
        self.trailers: dict[int, list[Field]] = {}
        self.ended: set[int] = set()
        self.cancelled: set[int] = set()
        self.h2.initiate_connection()
        self.h2.update_settings({frames.INITIAL_WINDOW_SIZE: chance.choice([100, 5_000, 65_535])})

    @property
    def done(self) -> bool:
        return not self.left and self.asked.keys() == self.ended | self.cancelled

    def step(self) -> None:
        open_streams = len(self.asked) - len(self.ended | self.cancelled)
        choice = self.chance.random()
        if self.left and open_streams < 10 and choice < 0.3:
            self.left -= 1
            self.open()
        elif self.unsent and choice < 0.9:
            self.send(self.chance.choice(sorted(self.unsent)))
        elif open_streams and choice > 0.98:
            stream = self.chance.choice(sorted(self.asked.keys() - self.ended - self.cancelled))
            self.h2.reset_stream(stream, frames.CANCEL)
            self.cancelled.add(stream)
            self.unsent.pop(stream, None)

    def open(self) -> None:
        chance = self.chance
        stream = self.h2.get_next_available_stream_id()
        fields: list[Field] = [(b"x-%d" % chance.randrange(9), b"v" * chance.randrange(99))]
        if chance.random() < 0.2:
            fields.append((b"x-large", b"v" * chance.randrange(9_000)))
        body = chance.randbytes(chance.choice([0, 5, 200, 3_000, 70_000]))
        fields += [(b"content-length", b"%d" % len(body))] if chance.random() < 0.3 else []
        self.asked[stream] = (fields, body, bool(body) and chance.random() < 0.3)
        self.h2.send_headers(stream, [*GRPC[:4], *fields], end_stream=not body)
        if body:
            self.unsent[stream] = body

    def send(self, stream: int) -> None:
        rest = self.unsent[stream]
        padding = self.chance.choice([None, None, 0, 9, 255])
        room = self.h2.local_flow_control_window(stream) - (0 if padding is None else padding + 1)
        frame_room = self.h2.max_outbound_frame_size - 256
        size = min(self.chance.randint(1, 20_000), room, frame_room, len(rest))
        if size <= 0:
            return
        rest, piece = rest[size:], rest[:size]
        with_trailers = self.asked[stream][2]
        end = not rest and not with_trailers
        self.h2.send_data(stream, piece, end_stream=end, pad_length=padding)
        self.unsent[stream] = rest
        if not rest:
            del self.unsent[stream]
            if with_trailers:
                self.h2.send_headers(stream, [(b"x-sum", b"%d" % stream)], end_stream=True)

    def receive(self, piece: bytes) -> None:
        for event in self.h2.receive_data(piece):
            assert not isinstance(event, of_h2.ConnectionTerminated), event
            if isinstance(event, of_h2.ResponseReceived):
                self.heads[event.stream_id] = [(bytes(n), bytes(v)) for n, v in event.headers]
            elif isinstance(event, of_h2.DataReceived):
                self.bodies[event.stream_id] += event.data
                if event.stream_id not in self.cancelled:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, of_h2.TrailersReceived):
                self.trailers[event.stream_id] = [(bytes(n), bytes(v)) for n, v in event.headers]
            elif isinstance(event, of_h2.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, of_h2.StreamReset):
                assert event.stream_id in self.cancelled, event


@pytest.mark.parametrize("seed", range(6))
def test_a_client_of_h2_gets_every_answer(seed: int) -> None:
    chance = random.Random(seed)
    service = EchoService(
        chance,
        Http2Spec(
            streams_max=10,
            stream_window_bytes=chance.choice([65_535, 200_000]),
            connection_window_bytes=chance.choice([65_535, 300_000]),
        ),
    )
    client = OracleClient(chance, streams=60)
    to_server, to_client = bytearray(), bytearray()
    for _ in range(STEPS_MAX):
        if client.done:
            break
        client.step()
        to_server += client.h2.data_to_send()
        piece = bytes(to_server[: chance.choice([1, 9, 100, 5_000, 70_000])])
        del to_server[: len(piece)]
        for event in service.machine.receive(piece, now=0.0):
            service.act(event)
        to_client += service.machine.take_output()
        piece = bytes(to_client[: chance.choice([1, 9, 100, 5_000, 70_000])])
        del to_client[: len(piece)]
        client.receive(piece)
    assert client.done, f"seed {seed}: {len(client.ended)} of {len(client.asked)}"
    assert len(client.ended) > 20
    for stream in client.ended - client.cancelled:
        fields, body, with_trailers = client.asked[stream]
        assert client.heads[stream] == [(b":status", b"200"), *fields], f"seed {seed}"
        assert client.bodies[stream] == body, f"seed {seed}"
        expected = [(b"x-sum", b"%d" % stream)] if with_trailers else None
        assert client.trailers.get(stream) == expected, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_hpack_decodes_what_we_encode_and_we_what_it_encodes(seed: int) -> None:
    chance = random.Random(seed)
    pool = [
        (b"name-%d" % chance.randrange(20), chance.randbytes(chance.choice([0, 3, 40, 200, 700])))
        for _ in range(60)
    ]
    ours, theirs = HpackEncoder(), Encoder()
    reading, checking = HpackDecoder(1 << 16), Decoder(max_header_list_size=1 << 16)
    for _ in range(500):
        fields = tuple(chance.choice(pool) for _ in range(chance.randrange(8)))
        if chance.random() < 0.1:
            ours.resize(chance.choice([0, 64, 300, 4_096, 65_536]))
            theirs.header_table_size = chance.choice([0, 64, 300, 4_096])
        block = ours.known(fields)
        block = ours.encode(fields) if block is None else block
        checked = checking.decode(block, raw=True)
        assert tuple((bytes(n), bytes(v)) for n, v in checked) == fields, f"seed {seed}"
        encoded = theirs.encode(fields, huffman=chance.random() < 0.5)
        assert tuple(reading.decode(encoded)) == fields, f"seed {seed}"


# Hostile bytes


def _conversation(chance: random.Random) -> bytearray:
    """What a client may send, with every type of frame in it."""
    blocks = Encoder()
    sent = bytearray(START)
    for stream in range(1, 2 * chance.randint(2, 12), 2):
        block = blocks.encode(GRPC, huffman=chance.random() < 0.5)
        pieces = [
            post(stream) + data(stream, chance.randbytes(99), end=True),
            get(stream),
            frames.frame(1, 5, stream, block),
            frames.frame(1, 0, stream, block[:9]) + frames.frame(9, 4, stream, block[9:]),
            headers(stream, GRPC, end=False) + frames.rst_stream(stream, 8),
        ]
        sent += chance.choice(pieces)
        sent += chance.choice(
            [
                b"",
                frames.window_update(0, 99),
                frames.window_update(stream, 99),
                frames.settings({chance.randrange(8): chance.randrange(1 << 20)}),
                frames.frame(6, 0, 0, bytes(8)),
                frames.frame(2, 0, stream, bytes(5)),
                frames.go_away(0, 0),
                frames.frame(chance.randrange(256), chance.randrange(256), stream, bytes(9)),
            ]
        )
    return sent


def _corrupt(chance: random.Random, sent: bytearray) -> None:
    for _ in range(chance.choice([0, 1, 1, 3, 20])):
        at = chance.randrange(chance.choice([0, len(START)]), len(sent))
        how = chance.randrange(4)
        if how == 0:
            sent[at] = chance.randrange(256)
        elif how == 1:
            sent[at] ^= 1 << chance.randrange(8)
        elif how == 2:
            del sent[at : at + chance.randrange(12)]
        else:
            sent[at:at] = chance.randbytes(chance.randrange(12))
        if len(sent) <= len(START):
            break


def _answered(seed: int) -> bool:
    """One conversation, corrupted; whether the machine has ended it."""
    chance = random.Random(seed)
    sent = _conversation(chance)
    _corrupt(chance, sent)
    machine = Http2Connection(now=0.0)
    begun: set[int] = set()
    at = 0
    while at < len(sent):
        size = chance.choice([1, 10, 1_000])
        events = machine.receive(bytes(sent[at : at + size]), now=0.0)
        at += size
        for event in events:
            if isinstance(event, RequestReceived):
                assert event.stream not in begun, f"seed {seed}"
                begun.add(event.stream)
                machine.send_headers(event.stream, ((b":status", b"200"),))
                machine.send_data(event.stream, b"abc", end=chance.random() < 0.5)
            elif isinstance(event, DataReceived | TrailersReceived | StreamReset):
                assert event.stream in begun, f"seed {seed}"
            elif isinstance(event, ConnectionFailed):
                assert event is events[-1], f"seed {seed}"
                assert machine.closed, f"seed {seed}"
        assert len(machine.take_output()) < 20_000, f"seed {seed}"
    return machine.closed


def test_bytes_that_were_corrupted_give_events_or_the_end_and_nothing_else() -> None:
    failures = sum(_answered(seed) for seed in range(2_000))
    assert 200 < failures < 1_800  # both ends of a conversation were tried


def test_bytes_that_were_corrupted_leave_no_memory_behind() -> None:
    tracemalloc.start()
    try:
        for seed in range(60):
            _answered(seed)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 200_000
    assert peak < 1_000_000

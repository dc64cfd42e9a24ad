"""What a unary gRPC call costs in the HTTP/2 machine, and in `h2` with `hpack`: us of processor.

The bytes are those of grpcio: its fields, a message of 200 bytes each way, head, message and
trailers as the answer; calls of one connection, one after another or eight at once. With deadlines
of their own, calls also bring the two window updates that grpcio sends with each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived as H2Data
from h2.events import StreamEnded as H2End
from hpack import Encoder

from bench.arithmetic import alternated
from bench.report import finish, spread, versions
from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import DataReceived
from penstock.wire.http2.frames import END_HEADERS, END_STREAM, frame

FIELDS = (
    (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
    (b":authority", b"127.0.0.1:8001"),
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
    (b"user-agent", b"grpc-python/1.85.3 grpc-c/58.0.0 (linux; chttp2)"),
)
HEAD = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
)
TRAILERS = ((b"grpc-status", b"0"), (b"grpc-message", b""))
MESSAGE = b"\0\0\0\0\xc8" + b"x" * 200
START = frames.PREFACE + frame(frames.SETTINGS, 0, 0) + frames.window_update(0, 1 << 30)


def reads(calls: int, at_once: int, *, deadlines: bool) -> Iterator[bytes]:
    """What the server reads: `at_once` heads and their messages in each piece."""
    encoder = Encoder()
    for first in range(0, calls, at_once):
        heads, bodies = [], []
        for call in range(first, first + at_once):
            stream = 2 * call + 1
            own = [(b"grpc-timeout", b"%dm" % (900 + call % 97))] if deadlines else []
            block = encoder.encode([*FIELDS, *own], huffman=False)
            heads.append(frame(frames.HEADERS, END_HEADERS, stream, block))
            bodies.append(frame(frames.DATA, END_STREAM, stream, MESSAGE))
            if deadlines:
                heads.append(frames.window_update(stream, 5))
                bodies.append(frames.window_update(0, 5))
        yield b"".join(heads + bodies)


def by_penstock(pieces: Sequence[bytes]) -> tuple[float, bytes]:
    """Seconds of processor, and what the last piece was answered."""
    connection = Http2Connection(now=0.0)
    connection.receive(START, now=0.0)
    connection.take_output()
    began = time.thread_time()
    output = b""
    for piece in pieces:
        for event in connection.receive(piece, now=0.0):
            if type(event) is DataReceived:
                connection.acknowledge(event.stream, event.flow_bytes)
                if event.end:
                    connection.send_headers(event.stream, HEAD)
                    connection.send_data(event.stream, MESSAGE)
                    connection.send_trailers(event.stream, TRAILERS)
        output = connection.take_output()
    return time.thread_time() - began, output


def by_h2(pieces: Sequence[bytes]) -> tuple[float, bytes]:
    connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    connection.receive_data(START)
    connection.data_to_send()
    began = time.thread_time()
    output = b""
    for piece in pieces:
        for event in connection.receive_data(piece):
            if type(event) is H2Data:
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif type(event) is H2End:
                connection.send_headers(event.stream_id, HEAD)
                connection.send_data(event.stream_id, MESSAGE)
                connection.send_headers(event.stream_id, TRAILERS, end_stream=True)
        output = connection.data_to_send()
    return time.thread_time() - began, output


MACHINES: dict[str, Callable[[Sequence[bytes]], tuple[float, bytes]]] = {
    "penstock": by_penstock,
    "h2": by_h2,
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench http2_machine", description=__doc__)
    parser.add_argument("--calls", type=int, default=800, help="of one connection; a multiple of 8")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args(arguments)
    figures = {}
    for deadlines in (False, True):
        for at_once in (1, 8):
            pieces = list(reads(options.calls, at_once, deadlines=deadlines))
            took: dict[str, list[float]] = {name: [] for name in MACHINES}
            for turn in range(options.repetitions):
                for name in alternated(list(MACHINES), turn):
                    seconds, output = MACHINES[name](pieces)
                    assert output.count(MESSAGE) == at_once
                    took[name].append(seconds / options.calls * 1e6)
            ratios = [h2 / ours for ours, h2 in zip(*took.values(), strict=True)]
            case = f"{at_once}_at_once" + ("_with_deadlines" if deadlines else "")
            figures[case] = {
                **{f"{name}_us": spread(each) for name, each in took.items()},
                "h2_by_penstock": spread(ratios),
            }
            print(f"{case:26}  " + "  ".join(f"{n} {min(t):.1f} us" for n, t in took.items()))
    finish("http2_machine", figures, versions=versions("h2", "hpack"), calls=options.calls)

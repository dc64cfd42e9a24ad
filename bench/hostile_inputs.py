"""What a stranger may send to each parser, in the shapes that cost a careless one most.

An `Attack` makes an input of any size and gives it to the parser that the server gives it to. Sizes
end where the server stops reading. `bench/cost_per_byte.py` measures them, and
`tests/wire/test_cost_per_byte.py` holds that their cost grows with their size and no faster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import io
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.hostile_http2 import SHAPES as HTTP2_SHAPES
from bench.hostile_http2 import served, served_byte_by_byte
from penstock.api.access import KeyAuthenticator
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.oip.grpc_stream import infer_names
from penstock.api.oip.http import inflate
from penstock.api.openai.request import READ_AT_ONCE_BYTES, ModelScan, model_of
from penstock.api.runtime.request import read as read_rare_headers
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.triton import pbtxt
from penstock.cli.client import payloads_of
from penstock.clock import ManualClock, SystemClock
from penstock.config import LimitConfig
from penstock.core.request.grants import Grant
from penstock.errors import PenstockError
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.listener import HttpListener
from penstock.gateway.request_id import RequestIds
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.metrics.math.expression import LENGTH_MAX, parse_expression
from penstock.metrics.math.search import parse_search
from penstock.metrics.series.statistics import parse_statistic
from penstock.wire.aws import eventstream, json_rpc, query, sigv4, validate, values
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import BODY_BYTES_MAX, HttpRequest
from penstock.wire.aws.models import CLOUDWATCH, SAGEMAKER, service_model
from penstock.wire.frames import RequestMeta

KIB, MIB = 1 << 10, 1 << 20
READ = 64 * KIB  #: what one read of a socket gives at most
HEAD_BYTES = LimitConfig().head_bytes_max
DATA_BYTES = LimitConfig().body_bytes_max

#: Where a parser runs: on the gateway's loop, beside it on a thread, or in an instance.
LOOP, THREAD, INSTANCE, LOAD = "loop", "thread", "instance", "load"
CLIENT = "client"  #: the server only writes it: what reads it is our command line


@dataclass(frozen=True, slots=True)
class Attack:
    parser: str
    shape: str
    make: Callable[[int], bytes]  #: an input of about so many bytes
    #: reads it as the server does, in steps where the server does so; refusals are its own affair
    run: Callable[[bytes], Iterator[None] | None]
    bytes_max: int  #: what the server reads
    where: str = LOOP

    @property
    def name(self) -> str:
        return f"{self.parser}: {self.shape}"


def attacks() -> Iterator[Attack]:
    """All of them; those of a parser stand together."""
    yield from _heads()
    yield from _credentials()
    yield from _control_plane()
    yield from _metrics()
    yield from _data_plane()
    yield from _instances()
    yield from _artifacts()


def _repeat(unit: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: before + unit * max(1, (size - len(before + after)) // len(unit)) + after


def _numbered(unit: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    """`unit` with a number where it says %d."""

    def make(size: int) -> bytes:
        count = max(1, (size - len(before + after)) // (len(unit) + 3))
        return before + b"".join(unit % number for number in range(count)) + after

    return make


def _nested(opening: bytes, closing: bytes, inside: bytes = b"") -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        depth = size // (len(opening) + len(closing))
        return opening * depth + inside + closing * depth

    return make


def _zipped(plain: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: gzip.compress(plain(size), mtime=0)


def _refusing(parse: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with contextlib.suppress(AwsError, PenstockError, ValueError):
            parse(data)

    return run


# The gateway's loop: heads


class _Nowhere(asyncio.Transport):
    """A client that reads everything and says nothing."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: Any) -> None: ...
    def writelines(self, list_of_data: Any) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0


class _NoDoor:
    """Nothing is served: only what reading costs is to be seen."""

    def handle(self, call: Call) -> bool:
        call.answer(status_line(404), b"")
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        call.answer_error(error)

    def written(self, call: Call) -> None: ...
    def abandoned(self, call: Call) -> None: ...


def _http(data: bytes) -> None:
    listener = HttpListener(
        limits=LimitConfig(),
        clock=SystemClock(),
        ids=RequestIds("00000000-0000-4000-8000-0000"),
        doors=(),
        fallback=_NoDoor(),
    )
    connection = HttpConnection(listener)
    connection.connection_made(_Nowhere())
    for at in range(0, len(data), 64 * KIB):  # as much as one read of a socket gives
        connection.data_received(data[at : at + 64 * KIB])
    connection.connection_lost(None)


def _heads() -> Iterator[Attack]:
    start = b"POST /ping HTTP/1.1\r\nHost: localhost\r\n"
    chunked = start + b"Transfer-Encoding: chunked\r\n\r\n"
    shapes: dict[str, tuple[Callable[[int], bytes], int]] = {
        "many fields": (_numbered(b"a%d:\r\n", start, b"\r\n"), HEAD_BYTES),
        "one field, many times": (_repeat(b"Content-Type:a\r\n", start, b"\r\n"), HEAD_BYTES),
        "rare field, many times": (_repeat(b"Authorization:a\r\n", start, b"\r\n"), HEAD_BYTES),
        "long target": (_repeat(b"%2e/", b"GET /", b" HTTP/1.1\r\n\r\n"), HEAD_BYTES),
        "spaces": (_repeat(b" ", start + b"a:", b"x\r\n\r\n"), HEAD_BYTES),
        "no end": (_repeat(b"a", start), HEAD_BYTES),
        "pipelined": (_repeat(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"), READ),
        "chunks of a byte": (_repeat(b"1\r\na\r\n", chunked, b"0\r\n\r\n"), READ),
        "trailers": (_repeat(b"a:b\r\n", chunked + b"0\r\n", b"\r\n"), READ),
    }
    for shape, (make, bytes_max) in shapes.items():
        yield Attack("HTTP", shape, make, _http, bytes_max)
    for shape, make in HTTP2_SHAPES.items():
        yield Attack("HTTP/2", shape, make, served, MIB)
    zeros = HTTP2_SHAPES["data of a byte"]
    yield Attack("HTTP/2", "bytes one by one", zeros, served_byte_by_byte, MIB)


# ... and credentials


class _Ring:
    def secret(self, access_key_id: str) -> str | None:
        return "secret" if access_key_id == "PENS" else None

    def bearer(self, token: str) -> str | None:
        return None

    def grant(self, key_id: str) -> Grant | None:
        return Grant()


_WALL_S = 1_700_000_000.0
_STAMP = b"20231114T221320Z"
_SIGNED = (
    b"AWS4-HMAC-SHA256 Credential=PENS/20231114/us-east-1/sagemaker/aws4_request, "
    b"SignedHeaders=host;x-amz-date, Signature=" + b"0" * 64
)


def _authenticate(
    authorization: bytes,
    path: bytes = b"/endpoints/a/invocations",
    text: bytes = b"",
    extra: bytes = b"",
) -> None:
    authenticator = KeyAuthenticator(_Ring(), ManualClock(wall_s=_WALL_S), own_key="own")
    headers = [(b"host", b"localhost"), (b"x-amz-date", _STAMP), (b"authorization", authorization)]
    if extra:
        headers.append((b"x-extra", extra))
    for look in (authenticator.check_head, authenticator.check):
        try:
            look("POST", path, text, headers, *(() if look == authenticator.check_head else (b"",)))
        except (AwsError, PenstockError):
            continue


def _credentials() -> Iterator[Attack]:
    scheme = b"AWS4-HMAC-SHA256 "
    shapes = {
        "spaces": _repeat(b" ", scheme + b"x", b"!"),
        "parameters": _numbered(b"a%d=b,", scheme),
        "commas": _repeat(b",", scheme),
        "equals signs": _repeat(b"=", scheme + b"Credential"),
        "slashes": _repeat(b"/", scheme + b"Credential=", b",SignedHeaders=a,Signature=b"),
        "signed headers": _numbered(
            b"a%d;", scheme + b"Credential=PENS/20231114/r/sagemaker/aws4_request,SignedHeaders=",
            b"z,Signature=" + b"0" * 64,
        ),
    }  # fmt: skip
    for shape, make in shapes.items():
        yield Attack("SigV4", shape, make, _authenticate, HEAD_BYTES)
    encoded = b"Bearer sagemaker-api-key-"

    def token(unit: bytes) -> Callable[[int], bytes]:
        url = b"sagemaker.amazonaws.com/?Action=CallWithBearerToken"
        return lambda size: encoded + base64.b64encode(_repeat(unit, url)(size * 3 // 4))

    for shape, make in {
        "own form": _repeat(b"A", b"Bearer psk_"),
        "not base64": _repeat(b"%", encoded),
        "base64 of &": token(b"&"),
        "base64 of %": token(b"&a=%41"),
        "spaces": _repeat(b" ", b"Bearer ", b"x"),
    }.items():
        yield Attack("bearer", shape, make, _authenticate, HEAD_BYTES)
    for shape, unit in (
        ("dots", b"../"),
        ("slashes", b"//"),
        ("percent", b"%2F"),
        ("plain", b"a/"),
    ):
        yield Attack(
            "SigV4 path", shape, _repeat(unit, b"/"),
            lambda data: _authenticate(_SIGNED, data), HEAD_BYTES,
        )  # fmt: skip
    for shape, unit in (("parameters", b"a&"), ("percent", b"%41&"), ("equals signs", b"=")):
        yield Attack(
            "presigned query", shape, _repeat(unit, b"X-Amz-Signature=" + b"0" * 64 + b"&"),
            lambda data: _authenticate(_SIGNED, text=data), HEAD_BYTES,
        )  # fmt: skip
    folded = sigv4.canonical_request
    for shape, unit in (("spaces", b" "), ("words", b"a ")):
        yield Attack(
            "SigV4 header", shape, _repeat(unit, b"", b"a"),
            _refusing(lambda data: folded(
                HttpRequest("POST", "/", "", {"host": data.decode()}), ("host",), "")),
            HEAD_BYTES,
        )  # fmt: skip
    for shape, unit in (("hyphens", b"-"), ("letters", b"a"), ("spaces", b" ")):
        yield Attack(
            "runtime headers", shape, _repeat(unit, b"a", b"!"),
            _refusing(lambda data: read_rare_headers(
                data, data, {b"x-amzn-sagemaker-session-id": data[:256],
                             b"x-amzn-sagemaker-target-variant": data[:1024],
                             b"x-penstock-deadline-ms": data})),
            HEAD_BYTES,
        )  # fmt: skip


# The control plane


def _json(operation: str, service: str = SAGEMAKER) -> Callable[[bytes], None]:
    model = service_model(service)
    target = f"{model.metadata['targetPrefix']}.{operation}"
    served = {**SAGEMAKER_OPERATIONS, **CLOUDWATCH_OPERATIONS}

    def parse(body: bytes) -> None:
        encoding = {"content-encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
        http = HttpRequest("POST", "/", "", {"x-amz-target": target, **encoding}, body)
        found, params = json_rpc.parse_request(model, http, served=served)
        validate.validate(found.input_shape, params)

    return _refusing(parse)


def _form(body: bytes) -> None:
    model = service_model(CLOUDWATCH)
    encoding = {"content-encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
    http = HttpRequest("POST", "/", "", encoding, body)
    found, params = query.parse_request(model, http, served=CLOUDWATCH_OPERATIONS)
    validate.validate(found.input_shape, params)


def _control_plane() -> Iterator[Attack]:
    create, tags = _json("CreateModel"), _json("AddTags")
    shapes: dict[str, tuple[Callable[[int], bytes], Callable[[bytes], None]]] = {
        "lists": (_repeat(b"[],", b'{"Containers":[', b"[]]}"), create),
        "objects": (_repeat(b"{},", b'{"Containers":[', b"{}]}"), create),
        "nulls": (_repeat(b"null,", b'{"Containers":[', b"null]}"), create),
        "keys": (_numbered(b'"k%d":1,', b"{", b'"z":1}'), create),
        "environment": (
            _numbered(b'"k%d":"v",', b'{"PrimaryContainer":{"Environment":{', b'"z":"v"}}}'),
            create,
        ),
        "one key": (_repeat(b'"ModelName":"a",', b"{", b'"ModelName":"a"}'), create),
        "brackets": (_nested(b"[", b"]"), create),
        "digits": (_repeat(b"1", b'{"ModelName":', b"}"), create),
        "escapes": (_repeat(b"\\u00e9", b'{"ModelName":"', b'"}'), create),
        "name": (_repeat(b"a-", b'{"ModelName":"', b'!"}'), create),
        "URL": (
            _repeat(b"a/", b'{"PrimaryContainer":{"ModelDataUrl":"s3://', b'\\n"}}'),
            create,
        ),
        "URLs": (
            _repeat(
                b'{"ModelDataUrl":"s3://' + b"a" * 900 + b'\\n"},', b'{"Containers":[', b"{}]}"
            ),
            create,
        ),
        "tags": (_repeat(b'{"Key":"a"},', b'{"ResourceArn":"arn:x","Tags":[', b"{}]}"), tags),
        "ARN": (_repeat(b"a", b'{"ResourceArn":"arn:aws', b'!","Tags":[]}'), tags),
    }
    for shape, (make, run) in shapes.items():
        yield Attack("AWS JSON", shape, make, run, BODY_BYTES_MAX, THREAD)
    action = b"Action=PutMetricData&"
    forms = {
        "fields": _numbered(b"a%d&", action),
        "ampersands": _repeat(b"&", action),
        "dots": _repeat(b"a.", action),
        "deep names": _numbered(b"a%d" + b".a" * 30 + b"&", action),
        "members": _numbered(b"MetricData.member.%d.MetricName=a&", action + b"Namespace=n&"),
        "values": _numbered(b"MetricData.member.1.Values.member.%d=1&", action + b"Namespace=n&"),
        "percent": _repeat(b"%41", action),
        "one field": _repeat(b"Namespace=a&", action),
        "plus": _repeat(b"+", action + b"Namespace="),
        "number": _repeat(b"1", action + b"MetricData.member.1.Value="),
        "time": _repeat(b"1", action + b"MetricData.member.1.Timestamp=", b"x"),
    }
    for shape, make in forms.items():
        yield Attack("AWS Query", shape, make, _refusing(_form), BODY_BYTES_MAX, THREAD)
        if shape in ("fields", "deep names", "dots"):
            zipped = f"{shape}, gzip"
            yield Attack(
                "AWS Query", zipped, _zipped(make), _refusing(_form), BODY_BYTES_MAX, THREAD
            )
    bomb = _zipped(lambda size: bytes(size * 1000))
    yield Attack("AWS Query", "gzip of zeros", bomb, _refusing(_form), 64 * KIB, THREAD)
    yield Attack("AWS JSON", "gzip of zeros", bomb, create, 64 * KIB, THREAD)


# Expressions of CloudWatch


def _metrics() -> Iterator[Attack]:
    def text(parse: Callable[[str], Any]) -> Callable[[bytes], None]:
        return _refusing(lambda data: parse(data.decode("latin-1")))

    for shape, make in {
        "brackets": _nested(b"(", b")", b"1"),
        "open brackets": _repeat(b"["),
        "minus signs": _repeat(b"-"),
        "digits": _repeat(b"1", b"", b"x"),
        "spaces": _repeat(b" ", b"1", b"!"),
        "sums": _repeat(b"m+", b"", b"m"),
        "powers": _repeat(b"2^", b"", b"2"),
        "quotes": _repeat(b"'", b"", b"x"),
    }.items():
        yield Attack("metric math", shape, make, text(parse_expression), LENGTH_MAX)
    for shape, make in {
        "words": _repeat(b"a "),
        "quotes": _repeat(b'"'),
        "NOT": _repeat(b"NOT "),
        "brackets": _repeat(b"("),
        "OR": _repeat(b"a OR ", b"", b"a"),
        "spaces": _repeat(b" ", b"a", b'"'),
        "schema": _repeat(b",", b"{", b""),
    }.items():
        yield Attack("metric search", shape, make, text(parse_search), LENGTH_MAX)
    for shape, make in {
        "digits": _repeat(b"9", b"p"),
        "range": _repeat(b"1", b"TM(", b"%:2%)"),
        "colons": _repeat(b":", b"TM("),
    }.items():
        yield Attack("statistic", shape, make, text(parse_statistic), 64 * KIB)
    for shape, make in {
        "digits": _repeat(b"1", b"", b"x"),
        "words": _repeat(b"a "),
        "spaces": _repeat(b" ", b"1", b"x"),
        "commas": _repeat(b",", b"Mon"),
    }.items():
        parse = text(lambda given: values.parse_timestamp(given, "at"))
        yield Attack("timestamp", shape, make, parse, BODY_BYTES_MAX, THREAD)


# The data plane's own readers


def _scan_model(body: bytes) -> Iterator[None]:
    with contextlib.suppress(PenstockError, ValueError):
        yield from ModelScan(body).steps()


def _data_plane() -> Iterator[Attack]:
    for shape, make in {
        "lists": _repeat(b"[],", b'{"a":[', b'[]],"model":"m"}'),
        "objects": _repeat(b"{},", b'{"a":[', b'{}],"model":"m"}'),
        "numbers": _repeat(b"1,", b'{"a":[', b'1],"model":"m"}'),
        "strings": _repeat(b'"",', b'{"a":[', b'""],"model":"m"}'),
        "escapes": _repeat(b'\\"', b'{"a":"', b'","model":"m"}'),
        "one key": _repeat(b'"model":"a",', b"{", b'"model":"m"}'),
        "brackets": _nested(b"[", b"]"),
        "no end": _repeat(b"a", b'{"model":"'),
    }.items():
        yield Attack("OpenAI model", shape, make, _scan_model, DATA_BYTES)
        yield Attack("OpenAI body", shape, make, _refusing(model_of), READ_AT_ONCE_BYTES)
    for shape, make in {
        "numbers": _repeat(b"\x28\x00"),
        "names": _repeat(b"\x0a\x01a"),
        "empty fields": _repeat(b"\x2a\x00"),
        "long numbers": _repeat(b"\x28" + b"\xff" * 9),
        "one field": lambda size: b"\x2a" + _varint(size) + bytes(size),
    }.items():
        yield Attack("protobuf scan", shape, make, _refusing(infer_names), DATA_BYTES)
    noise = random.Random(7).randbytes
    for shape, make in {"zeros": lambda size: bytes(size * 1000), "noise": noise}.items():
        zipped = _zipped(make)
        unzip = _refusing(lambda body: inflate(body, b"gzip", DATA_BYTES))
        yield Attack("inflate", shape, zipped, unzip, 64 * KIB if shape == "zeros" else DATA_BYTES)

    def frames(data: bytes) -> None:
        for _ in payloads_of(io.BytesIO(data)):
            pass

    small = eventstream.encode({}, b"")
    for shape, make in {"small frames": _repeat(small), "zeros": _repeat(b"\0")}.items():
        yield Attack("event stream", shape, make, _refusing(frames), DATA_BYTES, CLIENT)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


# Instances: bodies of tensor models

_FP32 = CodecModel(
    name="m", version="1", batched=True, outputs=(),
    inputs=(TensorSpec(name="x", dtype="FP32", shape=(-1, -1)),),
)  # fmt: skip
_BYTES = CodecModel(
    name="m", version="1", batched=True, outputs=(),
    inputs=(TensorSpec(name="x", dtype="BYTES", shape=(-1, -1)),),
)  # fmt: skip


def _decode(model: CodecModel, kind: str, door: str | None = None) -> Callable[[bytes], None]:
    meta = RequestMeta(content_type=kind, door=door)
    return _refusing(lambda body: decode_tensors(model, meta, body))


def _npz(data: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", data(size))
        return out.getvalue()

    return make


def _many_members(size: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(max(1, size // 110)):
            archive.writestr(f"{number}.npy", b"")
    return out.getvalue()


def _instances() -> Iterator[Attack]:
    plain = _decode(_FP32, "application/json")
    oip = b'{"inputs":[{"name":"x","datatype":"FP32","shape":['
    shapes: dict[str, tuple[str, Callable[[int], bytes], Callable[[bytes], None]]] = {
        "lists": ("JSON", _repeat(b"[],", b"[", b"[]]"), plain),
        "objects": ("JSON", _repeat(b"{},", b"[", b"{}]"), plain),
        "numbers": ("JSON", _repeat(b"1,", b"[[", b"1]]"), plain),
        "ragged": ("JSON", _repeat(b"[1],[1,2],", b"[", b"[1]]"), plain),
        "brackets": ("JSON", _nested(b"[", b"]"), plain),
        "digits": ("JSON", _repeat(b"1", b"[[", b"]]"), plain),
        "keys": ("JSON", _numbered(b'"k%d":1,', b"[{", b'"x":1}]'), plain),
        "nested strings": (
            "JSON", _repeat(b'[""],', b"[", b'[""]]'), _decode(_BYTES, "application/json")
        ),
        "lines": ("JSON lines", _repeat(b"[1]\n"), _decode(_FP32, "application/jsonlines")),
        "empty lines": ("JSON lines", _repeat(b"\n"), _decode(_FP32, "application/jsonlines")),
        "shape": ("OIP JSON", _repeat(b"1,", oip, b'1],"data":[1]}]}'),
                  _decode(_FP32, "application/json", "oip")),
        "inputs": ("OIP JSON", _repeat(b'{"name":"x"},', b'{"inputs":[', b"{}]}"),
                   _decode(_FP32, "application/json", "oip")),
        "outputs": (
            "OIP JSON",
            _repeat(b'{"name":"y"},', oip + b'1,1],"data":[1]}],"outputs":[', b'{"name":"y"}]}'),
            _decode(_FP32, "application/json", "oip"),
        ),
        "cells": ("CSV", _repeat(b"1,"), _decode(_FP32, "text/csv")),
        "rows": ("CSV", _repeat(b"1\n"), _decode(_FP32, "text/csv")),
        "quotes": ("CSV", _repeat(b'"'), _decode(_FP32, "text/csv")),
        "digits ": ("CSV", _repeat(b"1"), _decode(_FP32, "text/csv")),
        "header": ("NPY", lambda size: b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little")
                   + b"(" * size, _decode(_FP32, "application/x-npy")),
        "names of fields": ("NPY", lambda size: b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little")
                   + b"{" + b"'a':1," * (size // 6), _decode(_FP32, "application/x-npy")),
        "zeros": ("NPZ", _npz(lambda size: bytes(min(size * 1000, 64 * MIB))),
                  _decode(_FP32, "application/x-npz")),
        "members": ("NPZ", _many_members, _decode(_FP32, "application/x-npz")),
        "fields": ("protobuf", _repeat(b"\x2a\x00"), _decode(_FP32, "application/x-oip-grpc")),
        "nested": ("protobuf", _repeat(b"\x2a\x02\x18\x01"),
                   _decode(_FP32, "application/x-oip-grpc")),
    }  # fmt: skip
    caps = {"header": 64 * KIB, "names of fields": 64 * KIB, "zeros": 64 * KIB}
    for shape, (parser, make, run) in shapes.items():
        bytes_max = caps.get(shape, DATA_BYTES)
        yield Attack(parser, shape.strip(), make, run, bytes_max, INSTANCE)


# Files of models


def _artifacts() -> Iterator[Attack]:
    def text(data: bytes) -> None:
        pbtxt.parse(data.decode("latin-1"), where="config.pbtxt")

    for shape, make in {
        "comments": _repeat(b"#"),
        "comment lines": _repeat(b"#\n", b"", b"!"),
        "spaces": _repeat(b" ", b"", b"!"),
        "quotes": _repeat(b'"', b"a: "),
        "escapes": _repeat(b"\\", b'a: "'),
        "braces": _repeat(b"a{"),
        "fields": _repeat(b"a:1 "),
        "digits": _repeat(b"1", b"a:", b"!"),
        "signs": _repeat(b"-", b"a:"),
    }.items():
        yield Attack("pbtxt", shape, make, _refusing(text), MIB, LOAD)
    for shape, make in {
        "lists": _repeat(b"["),
        "keys": _numbered(b"k%d: 1\n", b"schema: 1\n"),
        "items": _repeat(b"- a\n", b"labels:\n"),
        "spaces": _repeat(b" ", b"a:", b"b"),
        "quotes": _repeat(b"'", b"a: "),
    }.items():
        yield Attack("YAML", shape, make, _refusing(model_yaml.parse), MIB, LOAD)

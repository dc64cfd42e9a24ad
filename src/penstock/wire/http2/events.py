"""What `Http2Connection.receive` returns: tuples, since several are made for each request."""

from __future__ import annotations

from typing import NamedTuple

from penstock.wire.http2.hpack import Field


class RequestReceived(NamedTuple):
    """A request has begun; it is valid by RFC 9113, 8. Its stream has no event before this one."""

    stream: int
    method: bytes
    path: bytes  #: with the query; b"" of CONNECT
    authority: bytes  #: that of `host`, where only this was sent; b"" = none
    scheme: bytes  #: b"" of CONNECT
    fields: tuple[Field, ...]  #: names in lower case, no pseudo fields, cookies joined
    end: bool  #: there is neither body nor trailers


class DataReceived(NamedTuple):
    """A piece of the body. Give `flow_bytes` to `acknowledge` once it is consumed."""

    stream: int
    data: bytes
    flow_bytes: int  #: what it took from the windows: the data and its padding
    end: bool  #: the request is complete


class TrailersReceived(NamedTuple):
    """The request is complete, and has trailers."""

    stream: int
    fields: tuple[Field, ...]


class StreamReset(NamedTuple):
    """The stream is gone; what is sent on it from now on is dropped."""

    stream: int
    code: int
    words: str  #: which rule the peer has broken; "" where the peer has reset it


class WindowOpened(NamedTuple):
    """`send_data` has taken less than it was given, and takes more now."""

    stream: int


class PingAnswered(NamedTuple):
    payload: bytes  #: as given to `ping`


class GoAwayReceived(NamedTuple):
    """The client begins no stream any more; those that are open go on."""

    last_stream: int
    code: int
    words: bytes  #: debug data


class Drained(NamedTuple):
    """`drain` has taken effect: the client opens no stream here any more."""

    last_stream: int  #: the last one that was accepted


class ConnectionFailed(NamedTuple):
    """The peer broke the protocol, or its bounds. All streams are gone.

    The driver writes `take_output` once more, which has a GOAWAY for it, and closes.
    """

    code: int
    words: str


Http2Event = (
    RequestReceived
    | DataReceived
    | TrailersReceived
    | StreamReset
    | WindowOpened
    | PingAnswered
    | GoAwayReceived
    | Drained
    | ConnectionFailed
)

"""The bounds of an HTTP/2 connection. What a peer may cost is decided here."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.wire.http2 import frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Spec:
    """Bounds for one connection. The peer is told the first five by SETTINGS."""

    #: streams at once; RFC 9113, 6.5.2, recommends no less than 100, and nginx has 128
    streams_max: int = 128
    #: unconsumed bytes of one request's body; not below the protocol's own 65,535
    stream_window_bytes: int = 1 << 20
    #: unconsumed bytes of all bodies of the connection; not below the protocol's own 65,535
    connection_window_bytes: int = 4 << 20
    frame_bytes_max: int = frames.FRAME_BYTES_DEFAULT  #: of a payload
    #: of a decoded header list, each field with 32 bytes more (6.5.2). A larger one is answered
    #: 431; one four times as large ends the connection.
    header_list_bytes_max: int = 16_384
    #: Frames that carry nothing a request needs (PING, SETTINGS, WINDOW_UPDATE, empty DATA, ...),
    #: as many as may come at once. Each useful frame gives a few back: see `state`.
    control_frames_burst: int = 1_000
    control_frames_per_s: float = 100.0
    #: Streams that the peer ends before they got an answer (CVE-2023-44487), or makes us end
    #: (CVE-2025-8671); each complete answer gives one back. nghttp2's own bounds.
    resets_burst: int = 1_000
    resets_per_s: float = 33.0
    #: replies to control frames that wait to be taken: above, the peer sends and does not read
    unread_bytes_max: int = 65_536

    def __post_init__(self) -> None:
        window_bytes = min(self.stream_window_bytes, self.connection_window_bytes)
        # A peer may use the defaults until it has our SETTINGS, and no check waits for that.
        assert window_bytes >= frames.WINDOW_BYTES_DEFAULT
        assert self.connection_window_bytes <= frames.WINDOW_BYTES_MAX
        assert self.stream_window_bytes <= frames.WINDOW_BYTES_MAX
        assert frames.FRAME_BYTES_DEFAULT <= self.frame_bytes_max <= frames.FRAME_BYTES_MAX

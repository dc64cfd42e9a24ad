"""A client's request as bytes for a region, without headers of the client's own connection.

The client's credentials are replaced by the region's. The remaining deadline goes with every
attempt, so that no region computes an answer that nobody waits for.
"""

from __future__ import annotations

from typing import Final

from penstock.gateway.http.call import Call
from penstock.orchestrator.regions_file import RegionAccess
from penstock.wire.http_client import HOP_BY_HOP

ROOM: Final = b"x-penstock-room"  #: asks how many more requests an endpoint takes, and reports it

_LEFT_OUT: Final = HOP_BY_HOP | {
    b"authorization", b"content-length", b"expect", b"host", b"x-amz-content-sha256",
    b"x-amz-date", b"x-amz-security-token", b"x-penstock-deadline-ms", ROOM,
}  # fmt: skip


def written(
    call: Call, body: bytes, access: RegionAccess, *, left_s: float, asks_room: bool
) -> bytes:
    """The whole request; `left_s`: seconds until its deadline."""
    lines = [
        b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (call.method, call.url, access.address.authority),
        access.credential.line,
    ]
    named = {name.strip().lower() for name in _connection_options(call)}
    for name, value in call.headers:
        lower = name.lower()
        if lower not in _LEFT_OUT and lower not in named:
            lines.append(b"%b: %b\r\n" % (name, value))
    if asks_room:
        lines.append(b"%b: ?1\r\n" % ROOM)
    lines.append(b"x-penstock-deadline-ms: %d\r\n" % max(1, int(left_s * 1000.0)))
    if body or call.method not in (b"GET", b"HEAD"):
        lines.append(b"content-length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    lines.append(body)
    return b"".join(lines)


def plain(path: bytes, access: RegionAccess) -> bytes:
    """A GET request of the orchestrator itself."""
    return b"GET %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (
        path,
        access.address.authority,
        access.credential.line,
    )


def _connection_options(call: Call) -> list[bytes]:
    """The headers that the client marked as for this connection only."""
    return [
        option
        for name, value in call.headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    ]

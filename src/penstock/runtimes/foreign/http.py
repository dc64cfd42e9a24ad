"""HTTP to a foreign model server on this machine: limits of answers, and single requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.wire.http_client import HttpAnswer, HttpClientSpec, fetch, request_of

#: Fits, with its head, into a frame between instance and gateway.
ANSWER_BYTES_MAX: Final = (1 << 30) - 65_536

_HOST: Final = "127.0.0.1"


def server_at(port: int) -> HttpClientSpec:
    return HttpClientSpec(
        host=_HOST, port=port, body_bytes_max=ANSWER_BYTES_MAX, acknowledge_at_once=True
    )


def request_at(
    port: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes:
    return request_of(method, path, {"host": f"{_HOST}:{port}", **headers}, body)


async def ask_once(
    port: int, method: str, path: str, body: bytes = b"", *, timeout_s: float
) -> HttpAnswer | None:
    """Sends JSON and returns JSON, over a connection of its own; None: the server ended before it
    answered.

    Raises OSError: nobody listens, or there is no answer in time (TimeoutError).
    """
    headers = {"accept": "application/json", "connection": "close"}
    if body:
        headers["content-type"] = "application/json"
    request = request_at(port, method, path, headers, body)
    return await fetch(server_at(port), request, timeout_s=timeout_s)

"""Files of the server's machine, for an instance that runs on another one.

An instance opens a TLS connection to the server's artifact door; both ends show certificates. Each
connection carries one request and one reply: the length of some JSON in 8 bytes, the JSON, and then
a file's bytes if the request was for a file.

    {"list": uri, "within": uri}        -> {"files": [...], "single": ..., "settled": ...,
                                            "changed_at": ...}
    {"names": uri}                      -> {"names": [...]}: the models below a prefix
    {"read": uri, "name": ..., "stamp": ...}  -> {"size": n}, then n bytes, then one
                                            more where the file was this one to its end
    any of them                         -> {"error": {...}}

This is the client; `control/artifact_door.py` is the server. It blocks, as all sources do.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES, Listing, SourceFile
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources import object_store
from penstock.errors import InternalError, NotNowError, PenstockError, from_dict

#: Enough for a listing of as many files as an artifact may have, with the longest names.
ANSWER_BYTES_MAX: Final = 64 * 2**20
REQUEST_BYTES_MAX: Final = 65_536
UNCHANGED: Final = b"."


@dataclass(slots=True)
class _DoorTold:
    """This process's side of the connection; an instance gets it once, at its start."""

    context: ssl.SSLContext | None = None
    server: str = ""  #: the name that the server's certificate must have


_told = _DoorTold()


def tell(context: ssl.SSLContext, server: str) -> None:
    """Sets, for this process, the TLS context to use and the name to expect of the server."""
    _told.context, _told.server = context, server


def list_files(door: str, uri: str, within: str, *, budget: Budget) -> Listing:
    """The listing of `uri` on the server's machine. `door`: "host:port".

    Raises what `look` raises on the server, and NotNowError `artifact-unreachable`.
    """
    answer, _ = _asked(door, {"list": uri, "within": within}, budget, keep=False)
    files = tuple(
        SourceFile(
            name=safe_path(str(row["name"]), where=budget.what),
            size=int(row["size"]),
            stamp=str(row["stamp"]),
            executable=bool(row["executable"]),
            chunks=_reader(door, uri, row, budget),
        )
        for row in answer["files"]
    )
    return Listing(
        files=files,
        single=bool(answer["single"]),
        settled=bool(answer["settled"]),
        changed_at=float(answer["changed_at"]),
    )


def names_below(door: str, uri: str, *, budget: Budget) -> list[str]:
    """Names of the target models below a prefix, in no order."""
    answer, _ = _asked(door, {"names": uri}, budget, keep=False)
    return [str(name) for name in answer["names"]]


def _reader(door: str, uri: str, row: dict[str, Any], budget: Budget) -> Any:
    return lambda: _chunks(door, uri, str(row["name"]), str(row["stamp"]), budget)


def _chunks(door: str, uri: str, name: str, stamp: str, budget: Budget) -> Iterator[bytes]:
    asked = {"read": uri, "name": name, "stamp": stamp}
    answer, connection = _asked(door, asked, budget, keep=True)
    left = int(answer["size"])
    with connection, _unreachable(budget):
        while left:
            budget.check()
            chunk = connection.recv(min(CHUNK_BYTES, left))
            if not chunk:
                raise ConnectionResetError(f"it ended {left} bytes early")
            left -= len(chunk)
            yield chunk
        if connection.recv(1) != UNCHANGED:
            raise NotNowError(
                "artifact-changed",
                f"{budget.what}: {name} changed on the server's machine while it was read",
                retry_after_s=1.0,
            )


def _asked(
    door: str, asked: dict[str, str], budget: Budget, *, keep: bool
) -> tuple[dict[str, Any], ssl.SSLSocket]:
    """The reply and the connection: open if `keep`, with nothing read beyond the reply."""
    if _told.context is None:
        raise InternalError("identity-missing", "an instance has no certificate to show")
    budget.check()
    host, _, port = door.rpartition(":")
    with _unreachable(budget), contextlib.ExitStack() as stack:
        plain = stack.enter_context(
            socket.create_connection((host.strip("[]"), int(port)), object_store.CONNECT_S)
        )
        plain.settimeout(object_store.STALL_S)
        connection = stack.enter_context(
            _told.context.wrap_socket(plain, server_hostname=_told.server)
        )
        connection.sendall(json.dumps(asked).encode() + b"\n")
        answer = json.loads(_framed(connection))
        if "error" in answer:
            raise from_dict(answer["error"])
        if keep:
            stack.pop_all()
        return answer, connection


def _framed(connection: ssl.SSLSocket) -> bytes:
    """Reads a reply. Its length comes first, in 8 bytes, so that no byte of the file is
    consumed."""
    size = int.from_bytes(_exactly(connection, 8), "big")
    if size > ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    read = bytearray()
    while len(read) < size:
        chunk = connection.recv(size - len(read))
        if not chunk:
            raise ConnectionResetError("the server has closed the connection")
        read += chunk
    return bytes(read)


@contextlib.contextmanager
def _unreachable(budget: Budget) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except (OSError, ValueError, KeyError) as error:  # ssl.SSLError is an OSError
        raise object_store.unreachable(
            budget.what, f"the server's files can't be asked for: {error}"
        ) from error

"""A connection to an instance, by whatever kind of address, handed over once it may be used.

Over TLS a protocol gets its transport only when the instance has shown its certificate, accepted
ours and sent its version (the greeting). Until then we send no data.

In TLS 1.3 the connecting end finishes its handshake before the other end has judged its
certificate. So only the greeting proves that both ends accept each other. Over a Unix socket there
is no greeting: both ends are of one machine and one installation.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import orjson

from penstock import __version__
from penstock.errors import InternalError, NotNowError, PenstockError
from penstock.fleet.identity import contexts
from penstock.wire import frames

EVENT: Final = "hello"


def hello(instance_id: str) -> bytes:
    """The greeting frame."""
    told = {
        "event": EVENT,
        "instance_id": instance_id,
        "version": __version__,
        "wire": frames.LAYOUT,
    }
    return frames.encode(frames.EVENT, 0, orjson.dumps(told))


def check(frame: frames.Frame, instance_id: str) -> None:
    """Raises NotNowError: `instance-version`, or `instance-untrusted` for another first word."""
    try:
        told = orjson.loads(frame.payload) if frame.kind == frames.EVENT else {}
        spoken = told.get("event") == EVENT and told.get("instance_id") == instance_id
    except (orjson.JSONDecodeError, AttributeError):
        spoken = False
    if not spoken:
        raise NotNowError(
            "instance-untrusted",
            f"what answers for instance {instance_id} does not greet as an instance does",
        )
    check_version(str(told.get("version")), str(told.get("wire")), f"instance {instance_id}")


def check_version(version: str, wire: str, who: str) -> None:
    """Raises NotNowError `instance-version` unless both versions are exactly ours."""
    if (version, wire) != (__version__, frames.LAYOUT):
        raise NotNowError(
            "instance-version",
            f"{who} runs Penstock {version[:40]} (frames {wire[:40]}), this server {__version__}"
            f" (frames {frames.LAYOUT})",
            hint="Install the server's version of Penstock on every node, then restart them.",
        )


#: Time for both round trips of TLS and the greeting; a very busy machine is slow.
GREETING_S_MAX: Final = 10.0
#: Far more than a greeting has.
_GREETING_BYTES_MAX: Final = 4096

#: Makes the TLS settings of the end that connects; called for the first address that needs them.
Tls = Callable[[], ssl.SSLContext]


def no_tls() -> ssl.SSLContext:
    """For a server whose instances are all on its own machine: it needs no TLS."""
    raise InternalError("identity-missing", "this process has no certificate to show to instances")


async def dial(
    instance_id: str, address: str, protocol: asyncio.Protocol, *, tls: Tls = no_tls
) -> None:
    """Connects `protocol` to "unix:/path", "tcp:host:port" or "tls:host:port".

    Raises OSError where nobody answers; NotNowError `instance-untrusted` or `instance-version`
    where one end must not talk to the other.
    """
    loop = asyncio.get_running_loop()
    kind, _, where = address.partition(":")
    if kind == "unix":
        await loop.create_unix_connection(lambda: protocol, where)
        return
    host, _, port = where.rpartition(":")
    if kind == "tcp":
        await loop.create_connection(lambda: protocol, host, int(port))
    elif kind == "tls":
        await _dial_tls(instance_id, host.strip("[]"), int(port), protocol, tls())
    else:
        raise InternalError("address-unknown", f"not an address: {address!r}")


async def _dial_tls(
    instance_id: str, host: str, port: int, protocol: asyncio.Protocol, context: ssl.SSLContext
) -> None:
    loop = asyncio.get_running_loop()
    try:
        transport, greeted = await loop.create_connection(
            lambda: _Greeted(instance_id),
            host,
            port,
            ssl=context,
            server_hostname=contexts.of_instance(instance_id),
            ssl_handshake_timeout=GREETING_S_MAX,
        )
    except ssl.SSLError as error:
        raise _untrusted(instance_id, _told(error)) from error
    try:
        async with asyncio.timeout(GREETING_S_MAX):
            await greeted.heard
    except BaseException as error:
        transport.abort()
        if isinstance(error, ssl.SSLError):
            raise _untrusted(instance_id, _told(error)) from error
        raise
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if greeted.lost is not None:  # the connection broke right after its greeting
        protocol.connection_lost(greeted.lost)
    elif greeted.rest:
        protocol.data_received(greeted.rest)


class _Greeted(asyncio.Protocol):
    """Waits for the greeting, and passes on the bytes behind it."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = instance_id
        self.rest = b""  #: bytes not yet read; once the greeting is read, those behind it
        self.heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: Exception | None = None

    def data_received(self, data: bytes) -> None:
        self.rest += data
        if self.heard.done() or len(self.rest) < frames.HEAD.size:
            return
        size = frames.HEAD.unpack_from(self.rest)[0]
        if size > _GREETING_BYTES_MAX:
            self._fail(_untrusted(self._instance_id, "what it says first is no greeting"))
            return
        stop = frames.HEAD.size + size
        if len(self.rest) < stop:
            return
        try:
            [frame] = frames.FrameDecoder(frames.FROM_INSTANCE).feed(self.rest[:stop])
            check(frame, self._instance_id)
        except PenstockError as error:
            self._fail(error)
            return
        self.rest = self.rest[stop:]
        self.heard.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc or ConnectionResetError("the instance has closed the connection")
        self._fail(self.lost)

    def _fail(self, error: Exception) -> None:
        if not self.heard.done():
            self.heard.set_exception(error)


def _told(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not the one of this instance: {error.verify_message}"
    return f"it refuses this server's certificate: {error.reason}"


def _untrusted(instance_id: str, cause: str) -> NotNowError:
    return NotNowError(
        "instance-untrusted",
        f"what answers for instance {instance_id} can't be talked to: {cause}",
        hint="Another deployment may use the same address; its certificates are not ours.",
    )

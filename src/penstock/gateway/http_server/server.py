"""The gateway's HTTP server put together: doors, application, limits and TLS on one port."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock.config import LimitConfig, ListenConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.host_gate import gate_for
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http.asgi import AsgiApp, AsgiDoor
from penstock.gateway.http.call import Call, Door
from penstock.gateway.http.listener_state import Authenticator, BodyLimit
from penstock.gateway.http_server.listener import HttpServerListener

#: When the server stops: time for the last bytes of finished answers, in s.
LAST_BYTES_S = 1.0


class GatewayServer:
    """Serves one dispatcher. `start`, then `stop`, which drains."""

    def __init__(
        self,
        config: ListenConfig,
        limits: LimitConfig,
        dispatcher: Dispatcher,
        doors: Sequence[tuple[bytes, Door]],
        asgi_app: AsgiApp,
        authenticator: Authenticator | None = None,
        *,
        interest: Iterable[bytes] = (),
        refusal: Callable[[Call, PenstockError], bool] | None = None,
        reuse_port: bool = False,
        bodies: BodyBudget | None = None,
        inner: str | None = None,
        held: Sequence[socket.socket] = (),
        body_limits: Sequence[tuple[bytes, BodyLimit]] = (),
    ) -> None:
        """
        Args:
            doors: (path prefix, door) of the hot paths, tried in order.
            interest: lower-case names of the headers that these doors read in `Call.rare`.
            refusal: answers what is refused before the application sees it (see `AsgiDoor`).
            reuse_port: several gateway processes share the port.
            bodies: the budget of all doors of this process; None = a budget of this server alone.
            inner: path of the Unix socket where gateway processes forward requests, instead of a
                port; None: a port.
            held: sockets that listen at the port already (see `HttpListener.start`).
            body_limits: as in `ListenerState`.
        """
        self._config = config
        self._limits = limits
        self._dispatcher = dispatcher
        self._reuse_port = reuse_port
        self._inner = inner
        self._held = held
        self.listener = HttpServerListener(
            limits=limits,
            clock=dispatcher.clock,
            ids=dispatcher.ids,
            doors=doors,
            fallback=AsgiDoor(asgi_app, refusal=refusal, handed_on=inner is not None),
            authenticator=authenticator,
            interest=interest,
            bodies=bodies,
            body_limits=body_limits,
            gate=gate_for(
                config.host,
                hosts=config.hosts,
                origins=config.origins,
                machine_names=(socket.gethostname(),),
                asks=authenticator is not None,
            ),
        )
        self.port = 0

    async def start(self) -> int:
        """Listens; returns the port, 0 if there is none.

        Raises CallerError (`port-in-use`, `tls-unusable`, ...).
        """
        if self._inner is not None:
            await self.listener.start_at(self._inner)
            return 0
        self.port = await self.listener.start(
            self._config.host,
            self._config.port,
            tls=tls_context(self._config),
            reuse_port=self._reuse_port,
            held=self._held,
        )
        return self.port

    async def stop(self) -> bool:
        """Refuses new requests and lets those in flight end; False if some had to be cut off."""
        timeout_s = self._limits.drain_s_max
        self.listener.send_away()
        drained = await self._dispatcher.drain(timeout_s)
        if not drained:
            # Requests that are cut off get an error first: a stream ends with its protocol's own
            # error.
            await self._dispatcher.close()
        await self.listener.stop(LAST_BYTES_S)
        await self._dispatcher.close()
        return drained


def tls_context(config: ListenConfig) -> ssl.SSLContext | None:
    """The server side of TLS; None without TLS. Raises CallerError if the files can't be used."""
    return tls_of(config.tls_cert, config.tls_key, "h2", "http/1.1")


def tls_of(cert: Path | None, key: Path | None, *protocols: str) -> ssl.SSLContext | None:
    """The same for some protocols, by their names in ALPN (RFC 7301), the preferred one first."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise CallerError("tls-unusable", "TLS needs both a certificate and a key.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(protocols)
    try:
        # This wrong password is used for an encrypted key: without one OpenSSL would ask the
        # terminal.
        context.load_cert_chain(cert, key, password=lambda: "-")
    except (OSError, ssl.SSLError) as cause:
        raise CallerError(
            "tls-unusable",
            f"{cert} and {key} can't be used: {cause}",
            hint="Give a PEM certificate chain and the PEM key that belongs to it.",
        ) from cause
    return context

"""What a server answers while another one leads.

It forwards requests to the leader unchanged, so that clients need not know which server leads; its
own health and metrics it answers itself. While the leader can't be reached, requests that only read
records of the SageMaker API are answered from the shared database. All others are told to retry in
a moment (503 `not-the-leader`). No endpoint is served here: instances belong to the leader.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.api.access import KeyAuthenticator
from penstock.api.admin.answers import error_answer
from penstock.api.app import aws_root, build_refusal, failed
from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.aws import AwsFrontDoor, AwsService, Operation
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.cleanup import ShieldedExitStack
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.control.access.keys import FollowedKeys
from penstock.control.database.leader_table import following, not_the_leader
from penstock.control.leader.leadership import Leadership
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.jobs.spec import TransformSpec
from penstock.core.request.host_gate import gate_for
from penstock.core.servers.election import LeaderObserved
from penstock.errors import NotNowError
from penstock.gateway.http.asgi import AsgiApp, AsgiDoor, Message, Scope
from penstock.gateway.http.proxy import ProxyApp, Receive, Send
from penstock.gateway.http.shared_port import SharedPort
from penstock.gateway.http_server.listener import HttpServerListener
from penstock.gateway.http_server.server import tls_context
from penstock.gateway.request_id import RequestIds
from penstock.jobs.transform.records import JobRecord
from penstock.metrics.page.pages import StandbyPage
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER
from penstock.wire.http_client import HttpClientConnection, HttpClientSpec, connect

_CONNECT_S_MAX: Final = 2.0
#: Marks a request that a server has forwarded already, so that two servers don't forward in a
#: circle.
HANDED_ON: Final = b"x-penstock-handed-on"
#: Paths that this server always answers itself.
_OWN: Final = ("/ping", "/health", "/v2/health/live", "/metrics")


class LeaderProxy(ProxyApp):
    """An ASGI application that forwards to the leader, or falls back if it can't be reached."""

    def __init__(
        self, leader: Callable[[], LeaderObserved], otherwise: AsgiApp, *, trusted: Path | None
    ) -> None:
        """
        Args:
            leader: returns the current leader.
            otherwise: answers requests if the leader does not.
            trusted: accepted certificates of the leader, besides those of known authorities.
        """
        super().__init__("")
        self._leader = leader
        self._otherwise = otherwise
        self._trusted = trusted
        self._open: set[HttpClientConnection] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handed_on = any(name == HANDED_ON for name, _ in scope["headers"])
        if handed_on or scope["path"] in _OWN:
            await self._otherwise(scope, receive, send)
            return
        await super().__call__(
            dict(scope, headers=[*scope["headers"], (HANDED_ON, b"1")]), receive, send
        )

    async def open(self) -> HttpClientConnection:
        leader = self._leader()
        if not leader.session or not leader.address:
            raise ConnectionError("nobody is known to lead")
        url = urlsplit(leader.address)
        tls = self._tls() if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        connection = await connect(
            HttpClientSpec(
                host=url.hostname or "", port=port, tls=tls, connect_s_max=_CONNECT_S_MAX
            )
        )
        self._open = {one for one in self._open if not one.ended} | {connection}
        return connection

    async def away(self, scope: Scope, body: bytes, send: Send) -> None:
        gone = asyncio.Event()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        await self._otherwise(scope, receive, send)

    def cut(self) -> None:
        """Ends requests that wait for the leader: the fallback answers them, or they are cut
        off."""
        for connection in self._open:
            connection.abort()
        self._open.clear()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._trusted is not None:
            context.load_verify_locations(self._trusted)
        return context


_log = logging.getLogger(__name__)

_STOP_S: Final = 1.0

#: Operations that need only the records. A transform job's progress is known where it runs.
_READS: Final = frozenset(
    name
    for name in SAGEMAKER_OPERATIONS
    if name.startswith(("Describe", "List")) and name != "DescribeTransformJob"
)


class _NothingRuns:
    """The control plane of a server without instances or running jobs."""

    def notify(self, endpoint: str) -> None:
        """Does nothing: a follower does not reconcile."""

    def current_counts(self, endpoint: str) -> Mapping[str, int]:
        return {}

    def pool_counts(self, endpoint: str) -> Mapping[str, Mapping[str, int]]:
        return {}

    def kept_counts(self, endpoint: str) -> Mapping[str, int]:
        return {}

    def last_failure(self, endpoint: str, variant: str) -> str:
        return ""

    def copy_counts(self, endpoint: str) -> Mapping[str, int]:
        return {}

    def copy_types(self, endpoint: str) -> Mapping[str, Mapping[str, int]]:
        return {}

    async def check(self, spec: TransformSpec) -> None:
        """Does nothing: the leader checks it."""

    def progress(self, record: JobRecord) -> Mapping[str, Any]:
        return {}


class Standby:
    """The listener of a follower. Call `start`, then `stop`; `start` may follow again."""

    def __init__(
        self, config: ServerConfig, leadership: Leadership, clock: Clock, port: SharedPort
    ) -> None:
        """`port`: the port to listen on, which outlives this object."""
        self._config = config
        self._held_port = port
        self._leadership = leadership
        self._clock = clock
        self._ids = RequestIds()
        self._stack = ShieldedExitStack()

    async def start(self) -> None:
        """Raises the errors of listening and of opening the database."""
        config, listen = self._config, self._config.listen
        async with ShieldedExitStack() as stack:
            term = following(self._leadership.session)
            database = StoreThread(
                lambda: Store(config.state_dir, config.control.database, term=term)
            )
            stack.push_async_callback(database.close)
            await database.open()
            authenticator = None
            if listen.auth:
                keys = FollowedKeys(database, config.state_dir, config.control.key_file)
                stack.push_async_callback(keys.close)
                authenticator = KeyAuthenticator(await keys.open(whole=False), self._clock)
            aws = self._aws(database)
            leader = LeaderProxy(
                lambda: self._leadership.seen, self._app(aws), trusted=listen.tls_cert
            )
            listener = HttpServerListener(
                limits=config.limits,
                clock=self._clock,
                ids=self._ids,
                doors=(),
                fallback=AsgiDoor(leader, refusal=build_refusal(aws)),
                authenticator=authenticator,
                gate=gate_for(
                    listen.host,
                    hosts=listen.hosts,
                    origins=listen.origins,
                    machine_names=(socket.gethostname(),),
                    asks=authenticator is not None,
                ),
            )
            await listener.start(
                listen.host, listen.port, tls=tls_context(listen), held=self._held_port.sockets
            )
            stack.push_async_callback(listener.stop, _STOP_S)
            stack.callback(leader.cut)  # first: requests that wait for the leader are told to retry
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Idempotent."""
        await self._stack.aclose()

    def _aws(self, database: StoreThread) -> AwsFrontDoor:
        control = self._config.control
        runs = _NothingRuns()

        def context(region: str) -> SagemakerContext:
            return SagemakerContext(database, runs, self._clock, region, control.account_id, runs)

        async def refuse(_context: Any, _params: dict[str, Any]) -> dict[str, Any]:
            raise self._not_the_leader()

        reads: dict[str, Operation] = {
            name: served if name in _READS else refuse
            for name, served in SAGEMAKER_OPERATIONS.items()
        }
        others = (AUTOSCALING, AUTOSCALING_OPERATIONS), (CLOUDWATCH, CLOUDWATCH_OPERATIONS)
        return AwsFrontDoor(
            (
                AwsService(SAGEMAKER, MappingProxyType(reads), context),
                *(
                    AwsService(service, dict.fromkeys(known, refuse), lambda region: None)
                    for service, known in others
                ),
            ),
            region_default=control.region,
        )

    def _who_leads(self) -> tuple[str, str]:
        seen = self._leadership.seen
        return (seen.name, seen.address) if seen.session else ("", "")

    def _app(self, aws: AwsFrontDoor) -> Any:
        page = StandbyPage(self._who_leads)

        async def metrics(request: Request) -> Response:
            body, content_type = page.render(request.headers.get("accept", ""))
            return Response(body, headers={"content-type": content_type})

        async def ping(_request: Request) -> Response:
            return PlainTextResponse("")

        async def refuse(_request: Request) -> Response:
            error = self._not_the_leader()
            return error_answer(error, {"retry-after": str(round(error.retry_after_s or 1.0))})

        methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]
        return Starlette(
            routes=[
                Route("/", aws_root(aws), methods=["POST"]),
                Route("/ping", ping, methods=["GET"]),
                Route("/health", ping, methods=["GET"]),
                Route("/v2/health/live", ping, methods=["GET"]),
                Route("/metrics", metrics, methods=["GET"]),
                Route("/{path:path}", refuse, methods=methods),
            ],
            exception_handlers={Exception: failed},
        )

    def _not_the_leader(self) -> NotNowError:
        return not_the_leader(self._leadership.seen)

"""All gateway processes of a server, as one `RoutePublisher`.

Each process gets the same messages in the same order: the whole state when it starts, then every
change. A condition on all gateways holds once all that serve have confirmed it: `connect` returns
when every gateway has its connection, `drained` when no gateway has a request left on the copies.
Nobody waits for a process that has ended or hangs. It is started again, after a pause that grows
while it keeps ending.

The control plane's own dispatcher is one of them, without a front door: offline work uses it.

`WaitingSums` adds up how many requests wait for a copy, over all gateways.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.control.gateways.member import GatewayMember
from penstock.control.ports import RoutePublisher
from penstock.core.backoff import Backoff
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.errors import NotNowError, PenstockError
from penstock.gateway.channel.messages import Json

log = logging.getLogger(__name__)

#: Time to start and import, in s. It takes about a second; a busy laptop gets a minute.
START_S_MAX: Final = 60.0
#: A gateway that sends nothing for so long counts as hanging: it sends its metrics each second.
SILENT_S_MAX: Final = 10.0
_LOOK_EVERY_S: Final = 0.5
_CONNECT_S_MAX: Final = 15.0
_ANSWER_S_MAX: Final = 2.0
_RESTART: Final = Backoff(0.1, 10.0)
#: A gateway that served at least this long is restarted without a pause.
_WELL_S: Final = 30.0
_LOOP: Final = "gateways"
_UNANSWERED: Final = ("process-gone", "process-silent")


class GroupEvents(Protocol):
    """Messages of gateways that are not about routes."""

    def on_told(self, name: str, op: str, fields: Json, data: bytes) -> None: ...

    async def on_asked(self, name: str, op: str, fields: Json) -> Json: ...

    def on_gone(self, name: str) -> None:
        """A gateway has ended, and so have its requests in flight."""


class GatewayGroup:
    """`start` it once instances can receive its process ids; `close` it before they end."""

    def __init__(
        self,
        local: RoutePublisher,
        count: int,
        *,
        command: Sequence[str],
        settings: Callable[[str], Mapping[str, Any]],
        events: GroupEvents,
        admit: Callable[[Sequence[int]], Awaitable[None]],
        apart: Callable[[str, str], AbstractContextManager[None]],
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        """
        Args:
            local: the control plane's own dispatcher.
            command: starts a gateway; the number of a descriptor is appended.
            settings: gateway name -> what that gateway gets besides the shared state.
            admit: returns once every instance accepts connections of these processes.
            apart: (loop, item) -> a context in which a failure affects only that item.
            inherited: sockets that each gateway has under the same numbers.
        """
        self._local = local
        self._names = [f"gateway-{number}" for number in range(1, count + 1)]
        self._command = tuple(command)
        self._settings = settings
        self._events = events
        self._admit = admit
        self._apart = apart
        self._inherited = tuple(one.fileno() for one in inherited)
        #: processes that have begun and have not ended
        self._members: dict[str, GatewayMember] = {}
        self._instances: dict[str, str] = {}  #: id -> address
        self._routes: dict[str, EndpointRoutes] = {}
        self._shared: dict[str, Json] = {}  #: op -> the last message of that kind to all gateways
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: set[int] = set()  #: ids of processes that have started and not begun
        self._starts: dict[str, int] = {}  #: name -> times that its process was started
        self._closing = False

    def pids(self) -> list[int]:
        """Ids of the processes that connect to instances."""
        return sorted({*self._starting, *(one.pid for one in self._members.values())})

    def seen(self) -> list[dict[str, Any]]:
        """The state of each gateway, by name, as JSON for people."""
        found = []
        for name in self._names:
            member = self._members.get(name)
            serving = member is not None and member.serving
            found.append(
                {
                    "name": name,
                    "pid": member.pid if member is not None else None,
                    "state": "serving" if serving else "starting",
                    "starts": self._starts.get(name, 0),
                }
            )
        return found

    async def start(self) -> None:
        """Returns once all serve. Raises the error that keeps one from serving (`port-in-use`,
        ...)."""
        first = [asyncio.get_running_loop().create_future() for _ in self._names]
        self._tasks = [
            asyncio.create_task(self._keep(name, served), name=name)
            for name, served in zip(self._names, first, strict=True)
        ]
        self._tasks.append(asyncio.create_task(self._watch(), name="gateways"))
        try:
            await asyncio.gather(*first)
        finally:
            for served in first:
                served.cancel()

    async def close(self, drain_s: float = 0.0) -> None:
        """Lets requests in flight finish, then ends the gateways. Idempotent."""
        self._closing = True
        members = list(self._members.values())
        await asyncio.gather(*(one.stop(drain_s) for one in members))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    # RoutePublisher

    async def connect(self, instance_id: str, address: str) -> None:
        self._instances[instance_id] = address
        fields = {"instance_id": instance_id, "address": address}
        await asyncio.gather(
            self._local.connect(instance_id, address),
            self._ask_all("connect", fields, timeout_s=_CONNECT_S_MAX),
        )

    async def disconnect(self, instance_id: str) -> None:
        self._instances.pop(instance_id, None)
        fields = {"instance_id": instance_id}
        await asyncio.gather(
            self._local.disconnect(instance_id),
            self._ask_all("disconnect", fields, timeout_s=_CONNECT_S_MAX),
        )

    def publish(self, routes: EndpointRoutes) -> None:
        self._routes[routes.endpoint] = routes
        self._local.publish(routes)
        self._tell_all("publish", {"routes": routes})

    def withdraw(self, endpoint: str) -> None:
        self._routes.pop(endpoint, None)
        self._local.withdraw(endpoint)
        self._tell_all("withdraw", {"endpoint": endpoint})

    def outstanding(self, copy: int) -> int:
        """Counts the requests of all gateways: instances report them to the local dispatcher."""
        return self._local.outstanding(copy)

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        """The local dispatcher first: it knows the sequences of all gateways, and a gateway keeps
        its way to a copy until it is asked."""
        watched = list(copies)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        mine = await self._local.drained(watched, timeout_s)
        left_s = max(0.0, until - loop.time())
        fields = {"copies": watched, "timeout_s": left_s}
        answers = await self._ask_all("drained", fields, timeout_s=left_s + _ANSWER_S_MAX)
        return mine and all(answer["drained"] for answer in answers)

    # Other messages

    def share(self, op: str, fields: Json) -> None:
        """Sends a message to every gateway, also to those that start later."""
        self._shared[op] = fields
        self._tell_all(op, fields)

    def tell_others(self, name: str, op: str, fields: Json) -> None:
        """Sends a message to every gateway but one."""
        for one in self._members.values():
            if one.name != name:
                one.tell(op, fields)

    async def ask_each(self, op: str, fields: Json) -> dict[str, Json]:
        """Gateway name -> its answer. Gateways that do not answer in time are left out."""
        serving = self._serving()
        answers = await asyncio.gather(
            *(one.ask(op, fields, timeout_s=_ANSWER_S_MAX) for one in serving),
            return_exceptions=True,
        )
        return {
            one.name: answer
            for one, answer in zip(serving, answers, strict=True)
            if isinstance(answer, dict)
        }

    def names(self) -> list[str]:
        """The names of the gateways that serve now."""
        return [one.name for one in self._serving()]

    async def ask_one(self, name: str, op: str, fields: Json) -> Json | None:
        """The answer of one gateway; None: it does not serve, or does not answer in time."""
        for one in self._serving():
            if one.name == name:
                with contextlib.suppress(PenstockError):
                    return await one.ask(op, fields, timeout_s=_ANSWER_S_MAX)
        return None

    # Members

    def on_told(self, member: GatewayMember, op: str, fields: Json, data: bytes) -> None:
        with self._apart(_LOOP, f"{member.name} says {op}"):  # else its channel would end
            self._events.on_told(member.name, op, fields, data)

    async def on_asked(self, member: GatewayMember, op: str, fields: Json) -> Json:
        return await self._events.on_asked(member.name, op, fields)

    def _serving(self) -> list[GatewayMember]:
        return [one for one in self._members.values() if one.serving]

    def _tell_all(self, op: str, fields: Json) -> None:
        for one in self._members.values():
            with self._apart(_LOOP, one.name):
                one.tell(op, fields)

    async def _ask_all(self, op: str, fields: Json, *, timeout_s: float) -> list[Json]:
        """The answers of all gateways that serve. Those that are starting get the message too, in
        order.

        Raises the error that one of them answers.
        """
        serving = self._serving()
        for one in self._members.values():
            if one not in serving:
                one.tell(op, fields)
        answers = await asyncio.gather(
            *(one.ask(op, fields, timeout_s=timeout_s) for one in serving), return_exceptions=True
        )
        heard = []
        for answer in answers:
            if isinstance(answer, dict):
                heard.append(answer)
            elif not isinstance(answer, NotNowError) or answer.code not in _UNANSWERED:
                raise answer
        return heard

    async def _keep(self, name: str, served: asyncio.Future[None]) -> None:
        """Runs one gateway, and starts it again whenever it ends."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._closing:
            member = GatewayMember(name, self)
            began = loop.time()
            try:
                await self._run(member, served)
            except PenstockError as error:
                log.error("%s can't be started: %s", name, error.message)
            except Exception:
                log.exception("%s can't be started", name)
            if not served.done():
                failed = member.failure or NotNowError("gateway-not-started", f"{name} ended")
                served.set_exception(failed)
                return
            if loop.time() >= began + _WELL_S:
                failures = 0
            failures += 1
            await asyncio.sleep(_RESTART.pause_s(failures))

    async def _run(self, member: GatewayMember, served: asyncio.Future[None]) -> None:
        """Runs one process from its start to its end."""
        await member.start(self._command, self._inherited)
        self._starts[member.name] = self._starts.get(member.name, 0) + 1
        self._starting.add(member.pid)
        try:
            await self._admit(self.pids())
        except BaseException:
            member.kill()
            raise
        finally:
            self._starting.discard(member.pid)
        # No await from here to `begin`: a later change must be sent after it.
        self._members[member.name] = member
        member.begin(
            {
                **self._settings(member.name),
                "instances": self._instances,
                "routes": list(self._routes.values()),
                "shared": self._shared,
            }
        )
        try:
            await member.up.wait()
            if member.failure is not None:
                log.error("%s can't serve: %s", member.name, member.failure.message)
                member.kill()
            elif not served.done():
                served.set_result(None)
            await member.ended.wait()
        finally:
            if self._members.get(member.name) is member:
                del self._members[member.name]
            self._events.on_gone(member.name)

    async def _watch(self) -> None:
        """Ends processes that hang. It counts checks instead of seconds: while this process itself
        could not run, the silence of others means nothing."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for one in list(self._members.values()):
                with self._apart(_LOOP, one.name):
                    self._look(one)

    def _look(self, one: GatewayMember) -> None:
        one.silent_ticks += 1
        limit_s = SILENT_S_MAX if one.serving else START_S_MAX
        if one.silent_ticks * _LOOK_EVERY_S > limit_s and not one.closing:
            log.error("%s (process %d) hangs: it is ended", one.name, one.pid)
            one.kill()


Pool = tuple[str, str, str]  #: endpoint, variant, component


class WaitingSums:
    """Each gateway reports its own number of waiting requests; the autoscaler gets the sum."""

    def __init__(self, on_waiting: Callable[[str, str, str, int], None]) -> None:
        self._on_waiting = on_waiting
        self._told: dict[Pool, dict[str, int]] = {}  #: pool -> gateway -> its requests that wait

    def told(self, source: str, endpoint: str, variant: str, component: str, count: int) -> None:
        pool = endpoint, variant, component
        by_source = self._told.setdefault(pool, {})
        if count:
            by_source[source] = count
        else:
            by_source.pop(source, None)
            if not by_source:
                del self._told[pool]
        self._on_waiting(endpoint, variant, component, sum(by_source.values()))

    def of(self, endpoint: str) -> int:
        """The requests that wait for copies of an endpoint, in processes with a name."""
        return sum(
            count
            for pool, by_source in self._told.items()
            if pool[0] == endpoint
            for source, count in by_source.items()
            if source
        )

    def gone(self, source: str) -> None:
        """A gateway has ended, and so have the requests that waited there."""
        for pool in [pool for pool, told in self._told.items() if source in told]:
            self.told(source, *pool, 0)

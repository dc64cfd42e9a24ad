"""All gateway processes of a server, as one `RoutePublisher`.

Each is told the same, in the same order: on its start all there is, then every change. What must be
true of all of them is true when all that serve have said so: `connect` returns when every gateway
has its connection, `drained` when no gateway has a request left on the copies. One that ends or
hangs is waited for by nobody; it is started again, after a pause that grows while it keeps ending.

The control plane's own dispatcher is one of them, without a door: offline work goes through it.

How many requests wait for a copy, over all gateways.
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

#: Its process starts and imports in a second; a busy laptop gets a minute.
START_S_MAX: Final = 60.0
#: One that says nothing for so long does not serve either: it tells its metrics each second.
SILENT_S_MAX: Final = 10.0
_LOOK_EVERY_S: Final = 0.5
_CONNECT_S_MAX: Final = 15.0
_ANSWER_S_MAX: Final = 2.0
_RESTART: Final = Backoff(0.1, 10.0)
#: One that has served as long is started again at once when it ends.
_WELL_S: Final = 30.0
_LOOP: Final = "gateways"
_UNANSWERED: Final = ("process-gone", "process-silent")


class GroupEvents(Protocol):
    """What gateways say that is not about routes."""

    def on_told(self, name: str, op: str, fields: Json, data: bytes) -> None: ...

    async def on_asked(self, name: str, op: str, fields: Json) -> Json: ...

    def on_gone(self, name: str) -> None:
        """A gateway has ended, and with it all that it had in flight."""


class GatewayGroup:
    """`start` it once instances may be told of its processes; `close` it before they end."""

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
            command: that starts a gateway; the number of a descriptor is added.
            settings: what a gateway is told besides the state of things, by its name.
            admit: returns once every instance accepts connections of these processes.
            apart: (loop, item) -> inside of it a failure is that item's alone.
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
        self._members: dict[str, GatewayMember] = {}  #: begun and not ended
        self._instances: dict[str, str] = {}  #: id -> address
        self._routes: dict[str, EndpointRoutes] = {}
        self._shared: dict[str, Json] = {}  #: op -> what all are told of it last
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: set[int] = set()  #: processes that have not begun
        self._starts: dict[str, int] = {}  #: by name
        self._closing = False

    def pids(self) -> list[int]:
        """The processes that instances may be reached from."""
        return sorted({*self._starting, *(one.pid for one in self._members.values())})

    def seen(self) -> list[dict[str, Any]]:
        """Each gateway by its name, for people."""
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
        """Returns once all serve. Raises what keeps one of them from it (`port-in-use`, ...)."""
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
        """Lets what is in flight end, then the gateways. Idempotent."""
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
        """As the instance has told the control plane's own dispatcher: those of all gateways."""
        return self._local.outstanding(copy)

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        watched = list(copies)
        fields = {"copies": watched, "timeout_s": timeout_s}
        mine, answers = await asyncio.gather(
            self._local.drained(watched, timeout_s),
            self._ask_all("drained", fields, timeout_s=timeout_s + _ANSWER_S_MAX),
        )
        return mine and all(answer["drained"] for answer in answers)

    # What else is said

    def share(self, op: str, fields: Json) -> None:
        """Tells every gateway, those that start later too."""
        self._shared[op] = fields
        self._tell_all(op, fields)

    def tell_others(self, name: str, op: str, fields: Json) -> None:
        """Tells every gateway but one."""
        for one in self._members.values():
            if one.name != name:
                one.tell(op, fields)

    async def ask_each(self, op: str, fields: Json) -> dict[str, Json]:
        """What each gateway that serves answers, by its name; without those that are silent."""
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
        """Of the gateways that serve now."""
        return [one.name for one in self._serving()]

    async def ask_one(self, name: str, op: str, fields: Json) -> Json | None:
        """What one gateway answers; None: it does not serve, or is silent."""
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
        """The answers of all that serve; those that begin are told, in the same order.

        Raises what one of them answers.
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
        """One gateway, again and again."""
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
        """From its start to its end."""
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
        # No await from here on to `begin`: what changes after it is told after it.
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
        """Ends those that hang. Looks are counted and not seconds: where this process could not run
        itself, nobody's silence says anything."""
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
    """Each gateway tells its own number; whoever scales hears the sum."""

    def __init__(self, on_waiting: Callable[[str, str, str, int], None]) -> None:
        self._on_waiting = on_waiting
        self._told: dict[Pool, dict[str, int]] = {}  #: by gateway; those that wait

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
        """All that wait for copies of an endpoint in processes with a name."""
        return sum(
            count
            for pool, by_source in self._told.items()
            if pool[0] == endpoint
            for source, count in by_source.items()
            if source
        )

    def gone(self, source: str) -> None:
        """A gateway has ended, and with it whoever waited there."""
        for pool in [pool for pool, told in self._told.items() if source in told]:
            self.told(source, *pool, 0)

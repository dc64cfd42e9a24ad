"""The instance: its copies, its connections, and the control operations on them.

    prepare  fetches an artifact; answered with the memory that its model needs
    load     prepares if that was not done, starts the runtime; answered when the copy takes
             requests
    unload   drains a copy for at most `drain_s`, then ends it
    status   copies with state, queue and batches; memory and processor time
    explain  one copy's batcher; in a host, one target model
    give-back  requests of the calling connection that wait in a copy's queue; an EVENT `gave-back`
             after the last of them marks the end
    models   in a host: loads, unloads, pins or describes a target model; lists all known ones. With
             `wait_s` answered once it is done, or with the error
    transform       a span of a transform job through a copy that belongs to the job; answered when
                    its part is committed (`transform/`)
    transform-stop  ends all spans of a job
    share-counts  the calling connection gets the copies' counts of others' requests in flight
    gateways  ids of the processes that connect besides the one that started this instance
    ping     {}

Long operations run as tasks and block nothing. Events go to every connection, except counts of a
host's models (`model-counts`): only the connection that loaded the host gets them, because it adds
them up. The control plane decides which copies an instance has; nothing here plans.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from penstock.clock import Clock, SystemClock
from penstock.errors import CallerError, ModelError, PenstockError, logged
from penstock.fleet.identity import contexts, dial
from penstock.fleet.machine import cpu_s, resident_bytes
from penstock.instance import replies
from penstock.instance.adapters import AdapterCopy, Adapters, LoadedAdapter
from penstock.instance.connection import Connection
from penstock.instance.copy import Copy
from penstock.instance.engines.lane_threads import LaneEvents, LaneThreads
from penstock.instance.in_flight_counts import InFlightCounts
from penstock.instance.loading.load import LoadCall, Prepared, prepared
from penstock.instance.loading.loaded import Loaded
from penstock.instance.loading.phases import FETCHING, LOADING, LoadPhases
from penstock.instance.memory.account import MemoryAccount
from penstock.instance.memory.use import MemoryUse
from penstock.instance.multi_container.load import Containers, load_containers, prepared_containers
from penstock.instance.settings import InstanceSettings, imported_since
from penstock.instance.short_timers import ShortTimers
from penstock.instance.transform.transforms import Transforms
from penstock.instance.warm_up import load
from penstock.metrics.counts.container_delta import CONTAINER_COUNTS
from penstock.metrics.loop_lag import LoopLag
from penstock.runtimes.workers.control_group import used_by
from penstock.runtimes.workers.memory import adopted, tree_pids
from penstock.wire import frames

if TYPE_CHECKING:
    from penstock.instance.models.host import ModelHost
    from penstock.instance.models.hosted import HostedModels

    AnyCopy = Copy | ModelHost | AdapterCopy

_LOG = logging.getLogger(__name__)

_Operation = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

#: The server is near, and shakes hands at once; strangers can't hold a socket longer than this.
_HANDSHAKE_S_MAX = 10.0
#: struct ucred: pid, uid, gid.
_CREDENTIALS = struct.Struct("3i")


class InstanceServer:
    """Create it on the running loop. `listen`, then `drain` and `close`."""

    def __init__(
        self,
        settings: InstanceSettings,
        *,
        memory: MemoryUse | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.copies: dict[int, AnyCopy] = {}
        self.counts: InFlightCounts | None = None  #: None until a connection asks for counts
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._timers = ShortTimers(self._loop, self.clock)
        self._loaded: dict[int, Loaded | HostedModels | LoadedAdapter] = {}
        self._hosts: dict[int, ModelHost] = {}  #: those copies that host target models, by number
        self._loop_lag = LoopLag()
        self._loading = LoadPhases(self.clock)
        #: Modules that were imported before any model was loaded
        self._imported = frozenset(sys.modules)
        self._prepared: dict[int, Prepared] = {}
        self._memory = MemoryAccount(memory or MemoryUse(), settings.cache_dir)
        self._adapters = Adapters(
            settings, self._memory, self.copies, self._loaded, clock=self.clock
        )
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transforms = Transforms(settings, self._single)
        self._helper = LaneThreads(1, "large-bodies", self._loop)
        self._server: asyncio.AbstractServer | None = None
        self._parent = os.getppid()
        #: The first frame to clients that connect over a network.
        self.greeting = dial.hello(settings.instance_id)
        self._gateways: frozenset[int] = frozenset()  #: process ids of the gateways

    async def listen(self) -> str:
        """Returns the address, with the actual port.

        Raises CallerError for an invalid address, OSError if it is in use.
        """
        self._loop_lag.start()
        scheme, _, place = self._settings.address.partition(":")
        if scheme == "unix":
            self._server = await self._loop.create_unix_server(lambda: Connection(self), place)
            os.chmod(place, 0o600)
        elif scheme in ("tcp", "tls"):
            host, _, port = place.rpartition(":")
            server = await self._loop.create_server(
                lambda: Connection(self),
                host.strip("[]"),
                int(port),
                **(self._tls() if scheme == "tls" else {}),
            )
            self._server = server
            return f"{scheme}:{host}:{server.sockets[0].getsockname()[1]}"
        else:
            raise CallerError(
                "instance-address",
                f"{self._settings.address!r} is neither unix:/path nor tcp: or tls:host:port",
            )
        return self._settings.address

    def _tls(self) -> dict[str, Any]:
        if self._settings.identity is None:
            raise CallerError("instance-identity", "an instance with TLS needs an identity")
        context = contexts.listening(self._settings.identity)
        return {"ssl": context, "ssl_handshake_timeout": _HANDSHAKE_S_MAX}

    # Methods of ConnectionHost

    def admits(self, peer: socket.socket) -> bool:
        """Over a Unix socket: admits the process that started this one, and the gateways that it
        has named.

        All processes run as one user, so a model's process could find the socket and open it. The
        kernel reports who opened it, and no process can become another one's parent.
        """
        if peer.family != socket.AF_UNIX:
            return True
        pid, _, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if pid == self._parent or pid in self._gateways:
            return True
        _LOG.warning("a connection of process %d is refused: it is not the server", pid)
        return False

    def trusts(self, certificate: dict[str, Any]) -> bool:
        """Over TLS: trusts a verified certificate of the server, but of no other instance."""
        if contexts.comes_from_server(certificate):
            return True
        _LOG.warning("a connection is refused: its certificate is not the server's")
        return False

    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        for number, host in self._hosts.items():
            connection.send(_event("models-changed", number, host.tell_all()))

    def disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._transforms.disconnected(connection)

    def control(self, connection: Connection, ident: int, payload: bytes) -> None:
        task = self._loop.create_task(self._answer(connection, ident, payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: Connection, ident: int, payload: bytes) -> None:
        try:
            reply = {"ok": True, **await self._operation(connection, payload)}
        except PenstockError as error:
            reply = {"error": logged(error, _LOG.warning).to_dict()}
        except Exception as error:  # a bug in an operation is answered, and ends nothing else
            reply = {"error": replies.as_error(error, "the control operation").to_dict()}
        connection.send(frames.encode(frames.CONTROL_REPLY, ident, _written(reply)))

    def _operation(
        self, connection: Connection, payload: bytes
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        try:
            call = orjson.loads(payload)
            name = call["op"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise CallerError("bad-control-call", 'a control call is JSON with "op"') from None
        operations: dict[str, _Operation] = {
            "prepare": self._prepare,
            "load": partial(self._load, connection),
            "unload": self._unload,
            "status": self._status,
            "explain": self._explain,
            "models": self._models,
            "give-back": partial(self._give_back, connection),
            "transform": partial(self._transforms.transform, connection),
            "transform-stop": self._transforms.stop,
            "gateways": self._take_gateways,
            "share-counts": partial(self._share_counts, connection),
            "ping": self._ping,
        }
        if name not in operations:
            raise CallerError("bad-control-call", f"there is no operation {name!r}")
        return operations[name](call)

    # Operations

    async def _ping(self, call: dict[str, Any]) -> dict[str, Any]:
        return {"instance_id": self._settings.instance_id}

    async def _share_counts(self, connection: Connection, call: dict[str, Any]) -> dict[str, Any]:
        if self.counts is None:
            self.counts = InFlightCounts(self._loop)
            for each in self._connections:
                for number in each.held():
                    self.counts.taken(each, number)
        self.counts.listen(connection)
        return {}

    async def _take_gateways(self, call: dict[str, Any]) -> dict[str, Any]:
        self._gateways = frozenset(int(pid) for pid in call["pids"])
        return {}

    async def _prepare(self, call: dict[str, Any]) -> dict[str, Any]:
        wanted = LoadCall.from_dict(call, self._settings)
        if wanted.multi_model is not None:
            from penstock.instance.models.hosted import (  # noqa: PLC0415 - hosts are few
                prepared_host,
            )

            host_need = await prepared_host(wanted, self._settings)
            return {"digest": "", "need": dataclasses.asdict(host_need)}
        if wanted.base_copy:
            with self._busy_with(wanted.copy):
                return await self._adapters.prepare(wanted)
        with self._busy_with(wanted.copy):
            model = await self._prepared_now(wanted)
            need = await asyncio.to_thread(self._memory.need, model)
        self._prepared[wanted.copy] = model
        return {"digest": model.digest, "need": dataclasses.asdict(need)}

    async def _prepared_now(self, wanted: LoadCall) -> Prepared:
        phase = partial(self._loading.enter, wanted.copy)
        prepare = prepared_containers if wanted.containers else prepared
        return await prepare(wanted, self._settings, phase=phase)

    @contextlib.contextmanager
    def _busy_with(self, number: int) -> Iterator[None]:
        """Raises CallerError if such a copy exists or is being loaded."""
        if number in self.copies or number in self._loading:
            raise CallerError("copy-exists", f"copy {number} is already here")
        self._loading.begin(number, LOADING if number in self._prepared else FETCHING)
        try:
            yield
        finally:
            self._loading.end(number)

    async def _load(self, connection: Connection, call: dict[str, Any]) -> dict[str, Any]:
        wanted = LoadCall.from_dict(call, self._settings)
        number = wanted.copy
        if wanted.multi_model is not None:
            return self._load_host(wanted, connection)
        if wanted.base_copy:
            with self._busy_with(number):
                told = await self._adapters.load(wanted)
            return {**told, **self._memory.measured()}
        started = self.clock.monotonic()
        memory_before = resident_bytes(os.getpid())
        listener = LaneEvents()
        with self._busy_with(number):
            model = self._prepared.pop(number, None) or await self._prepared_now(wanted)
            async with self._memory.loading(model):
                start = load_containers if model.containers else load
                loaded = await start(model, listener)
        copy = loaded.copy(
            number,
            clock=self.clock,
            call_at=self._timers.call_at,
            elsewhere=partial(self._helper.submit, 0),
            on_state=lambda event, error: self._copy_event(event, number, error),
        )
        self.copies[number] = copy
        self._loaded[number] = loaded
        listener.attach(copy)
        if isinstance(loaded.runtime, Containers):
            loaded.runtime.count_on(
                lambda told: connection.send(_event(CONTAINER_COUNTS, number, {"containers": told}))
            )
        gc.collect()
        # A loaded model stays: garbage collections under traffic need not scan it again
        gc.freeze()
        workers = sum(resident_bytes(each) for pid in loaded.pids() for each in tree_pids(pid))
        return {
            "description": loaded.described,
            "digest": model.digest,
            "load_s": self.clock.monotonic() - started,
            "warm_up_s": loaded.warm_up_s,
            "modules": imported_since(self._imported),
            "memory_bytes": workers or max(0, resident_bytes(os.getpid()) - memory_before),
            **self._memory.measured(),
        }

    def _load_host(self, wanted: LoadCall, connection: Connection) -> dict[str, Any]:
        """A new host has no model and takes requests at once. Its counts go only to the connection
        that loaded it."""
        number = wanted.copy
        with self._busy_with(number):
            from penstock.instance.models.hosted import (  # noqa: PLC0415 - hosts are few
                HostedModels,
            )

            hosted = HostedModels(
                wanted,
                self._settings,
                clock=self.clock,
                call_at=self._timers.call_at,
                elsewhere=partial(self._helper.submit, 0),
                on_event=lambda name, fields: self._broadcast(_event(name, number, fields)),
                on_counts=lambda models: connection.send(
                    _event("model-counts", number, {"models": models})
                ),
            )
        self.copies[number] = self._hosts[number] = hosted.host
        self._loaded[number] = hosted
        self._broadcast(_event("models-changed", number, hosted.host.tell_all()))
        return {
            "description": hosted.described,
            "digest": "",
            "load_s": 0.0,
            "memory_bytes": 0,
            **self._memory.measured(),
        }

    async def _unload(self, call: dict[str, Any]) -> dict[str, Any]:
        """Gives back requests that are not answered within `drain_s`. Drops a copy that was only
        prepared."""
        number = call.get("copy")
        if not isinstance(number, int):
            return {"found": False}
        copy = self.copies.get(number)
        if copy is None:
            self._adapters.forget(number)
            return {"found": self._prepared.pop(number, None) is not None}
        await self._transforms.unload(number)
        await self._drained(copy, float(call.get("drain_s", 30.0)))
        self._adapters.end_with(number)
        self.copies.pop(number, None)
        self._hosts.pop(number, None)
        copy.close()
        loaded = self._loaded.pop(number, None)
        if loaded is not None:
            await loaded.close()
            gc.unfreeze()
        return {"found": True}

    async def _drained(self, copy: AnyCopy, drain_s: float) -> None:
        idle = asyncio.Event()
        copy.drain(idle.set)
        try:
            await asyncio.wait_for(idle.wait(), drain_s)
        except TimeoutError:
            _LOG.warning("copy %d: %d requests unanswered after its drain time", copy.number,
                         copy.unanswered)  # fmt: skip

    async def _status(self, call: dict[str, Any]) -> dict[str, Any]:
        copies = []
        for number, copy in self.copies.items():
            loaded = self._loaded[number]
            pids = loaded.pids()
            copies.append(
                {
                    **copy.status(),
                    **_code_metrics(copy, loaded),
                    "proof": loaded.proof.to_dict() if loaded.proof is not None else None,
                    "build": loaded.build.to_dict() if loaded.build is not None else None,
                    "workers": [_used_by(pid) for pid in pids],
                }
            )
        pid = os.getpid()
        self._memory.note(ran=any(copy.requests for copy in self.copies.values()))
        return {
            "instance_id": self._settings.instance_id,
            "pid": pid,
            "rss_bytes": resident_bytes(pid),
            **self._memory.measured(),
            "cpu_s": cpu_s(pid),
            "loading": self._loading.to_list(),
            "loop_lag": self._loop_lag.seen().to_dict(),
            "copies": copies,
        }

    async def _explain(self, call: dict[str, Any]) -> dict[str, Any]:
        number = call.get("copy")
        copy = self.copies.get(number) if isinstance(number, int) else None
        if copy is None:
            raise CallerError("unknown-copy", f"copy {call.get('copy')!r} is not here")
        host = self._hosts.get(copy.number)
        if host is not None and call.get("model"):
            return await host.explain_model(str(call["model"]))
        return copy.explain() | await self._loaded[copy.number].explain()

    async def _models(self, call: dict[str, Any]) -> dict[str, Any]:
        number = call.get("copy")
        host = self._hosts.get(number) if isinstance(number, int) else None
        if host is None:
            raise CallerError("unknown-copy", f"copy {number!r} is no host of target models")
        wait_s = float(call.get("wait_s", 0.0))
        if "load" in call:
            if_room = bool(call.get("if_room", False))
            return {
                "state": await host.explicit.load(str(call["load"]), wait_s=wait_s, if_room=if_room)
            }
        if "unload" in call:
            dependents = bool(call.get("dependents", False))
            await host.explicit.unload(str(call["unload"]), wait_s=wait_s, dependents=dependents)
        if "pin" in call:
            host.explicit.pin(str(call["pin"]), bool(call.get("pinned", True)))
        for name in call.get("pins", ()):
            host.explicit.pin(str(name), True)
        if "describe" in call:
            return host.describe(str(call["describe"]))
        if "list" in call:
            asked = call["list"]
            return host.index(after=str(asked["after"]), limit=int(asked["limit"]))
        return {}

    def _single(self, number: int) -> tuple[Copy, Loaded]:
        """A copy of one model, and the model. Raises CallerError."""
        copy, loaded = self.copies.get(number), self._loaded.get(number)
        if not isinstance(copy, Copy) or not isinstance(loaded, Loaded):
            raise CallerError("unknown-copy", f"copy {number} is not here, or no single model's")
        return copy, loaded

    async def _give_back(self, connection: Connection, call: dict[str, Any]) -> dict[str, Any]:
        number, count = call.get("copy"), call.get("count")
        if not isinstance(number, int) or not isinstance(count, int):
            raise CallerError("bad-control-call", 'give-back needs "copy" and "count"')
        copy = self.copies.get(number)
        # A host's requests stay: where a model is loaded matters more than the length of a queue.
        given = 0
        if isinstance(copy, Copy) and copy.state == "ready":
            given = copy.give_back_waiting(count, connection)
        connection.send(_event("gave-back", number, {"count": given}))
        return {"count": given}

    def _copy_event(self, event: str, number: int, error: PenstockError | None) -> None:
        fields: dict[str, Any] = {"event": event}
        _LOG.warning("%s: copy %d", event, number)
        if error is not None:
            fields["error"] = logged(error, _LOG.warning).to_dict()
        for each in (
            number,
            *self._adapters.on(number),
        ):  # a base's events concern its adapters too
            told = orjson.dumps(fields | {"copy": each})
            self._broadcast(frames.encode(frames.EVENT, 0, told))

    def _broadcast(self, frame: bytes) -> None:
        for connection in self._connections:
            connection.send(frame)

    # The end

    async def drain(self, drain_s: float = 30.0) -> None:
        """Finishes queued requests; new ones are given back to the gateway."""
        if self._server is not None:
            self._server.close()
        await self._transforms.close()
        await asyncio.gather(*(self._drained(copy, drain_s) for copy in self.copies.values()))

    async def close(self) -> None:
        self._loop_lag.stop()
        for copy in self.copies.values():
            copy.close()
        for connection in list(self._connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._memory.written()
        await asyncio.gather(*(loaded.close() for loaded in self._loaded.values()))
        self._helper.close()
        self._timers.close()

    def kill_workers(self) -> None:
        """Kills all workers at once: the server that started this instance is gone."""
        for loaded in self._loaded.values():
            loaded.kill()


def _event(name: str, copy: int, fields: dict[str, Any]) -> bytes:
    told = {"event": name, "copy": copy, **fields}
    return frames.encode(frames.EVENT, 0, orjson.dumps(told))


def _written(reply: dict[str, Any]) -> bytes:
    """A call is answered even where the model's description of itself is no JSON."""
    try:
        return orjson.dumps(reply)
    except TypeError as error:
        told = ModelError(
            "model-description-invalid",
            f"what the model says of itself can't be written down: {error}",
            hint="Look for characters that are not UTF-8 in model.yaml and the files beside it.",
        )
        return orjson.dumps({"error": told.to_dict()})


def _used_by(pid: int) -> dict[str, float]:
    """Memory and time of a copy's process and of all below it; of a container by its group."""
    group = used_by(pid) if pid in adopted else None
    if group is not None:
        return {"pid": pid, "rss_bytes": group.memory_bytes, "cpu_s": group.cpu_s}
    pids = tree_pids(pid)
    return {
        "pid": pid,
        "rss_bytes": sum(map(resident_bytes, pids)),
        "cpu_s": sum(map(cpu_s, pids)),
    }


def _code_metrics(copy: AnyCopy, loaded: Any) -> dict[str, Any]:
    """The series that the code of the copy's model has made, and that of the models it calls."""
    inner = getattr(loaded, "inner", None)
    if inner is None:
        return {}
    return {"code_metrics": [*copy.status().get("code_metrics", ()), *inner.code_metrics]}

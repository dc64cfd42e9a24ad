"""The fleet of a Ray cluster: instances as actors on its nodes, from the request for one to its
end.

Each instance has a placement group, and in it an actor that starts the instance as a child on its
node and watches it. Ray places instances and reports lost nodes. It never sees a request: gateways
and instances have connections of their own. When this process ends, by whatever means, the actors
end, and their instances with them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.cleanup import shielded
from penstock.errors import InternalError, NotNowError
from penstock.fleet.base import InstanceExit, InstanceHandle, InstanceSpec, SpareObserved
from penstock.fleet.identity.authority import Authority
from penstock.fleet.log_file import open_log
from penstock.fleet.ray.cluster import CALL_FAILED, Cluster, HeldActor
from penstock.fleet.ray.placing import Placing, bundle_of
from penstock.fleet.ray.starting import LAST_WORD_S_MAX, Starting, until_its_end

_log = logging.getLogger(__name__)

_STOP_MARGIN_S: Final = 5.0
#: How many nodes one start tries when a node's installation can't be used.
_NODES_TRIED_MAX: Final = 3
_USELESS: Final = ("instance-version", "node-unusable")


class RayFleet:
    """A fleet of actors (see `fleet/base.py` for the contract)."""

    def __init__(
        self,
        address: str,
        authority: Authority,
        *,
        node_wait_s: float,
        cache_dir: str = "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`address`: as `ray.init` takes it. `node_wait_s`: how long a start waits for room.
        `cache_dir`: on each node; "" = the default of the node's user.

        Connects, which blocks. Raises NotNowError `ray-unreachable`.
        """
        self.on_exit: Callable[[str, InstanceExit], None] = lambda instance_id, how: None
        self._held: dict[str, HeldActor] = {}
        self._closing = False
        self._cluster = Cluster(address)
        self._placing = Placing(self._cluster, self._held, node_wait_s=node_wait_s)
        self._starting = Starting(self._cluster, authority, cache_dir=cache_dir, wall=wall)

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        if self._closing:
            raise NotNowError("fleet-closing", "the server is stopping: no instance is started")
        if spec.instance_id in self._held:
            raise InternalError("instance-exists", f"instance {spec.instance_id} runs already")
        held = self._held[spec.instance_id] = HeldActor(spec, bundle_of(spec))
        try:
            held.log = open_log(spec.log_path)
            address, pid = await self._on_some_node(held)
        except BaseException:
            await shielded(self._forget(held))
            raise
        held.watcher = asyncio.create_task(self._watch(held), name=f"watch {spec.instance_id}")
        return InstanceHandle(instance_id=spec.instance_id, address=address, pid=pid)

    async def stop(self, instance_id: str, *, grace_s: float) -> None:
        held = self._held.get(instance_id)
        if held is None:
            return
        held.stopping = True
        with suppress(*CALL_FAILED):  # fails if its node is lost
            if held.actor is not None:
                limit_s = grace_s + _STOP_MARGIN_S
                await self._cluster.answer(held.actor.stop, grace_s, seconds=limit_s)
        if held.watcher is not None:  # the watcher reads its last words
            await asyncio.wait([held.watcher], timeout=LAST_WORD_S_MAX)
        await shielded(self._forget(held))

    def keep_warm(self, count: int, modules: Collection[str]) -> None:
        """Does nothing: nodes come and go, so no process is kept ready on them."""

    def spares(self) -> Sequence[SpareObserved]:
        return ()

    async def shares_disk(self) -> bool:
        """True where all nodes are this machine."""
        try:
            hosts = await self._cluster.hosts()
        except CALL_FAILED:
            return True
        return all(name == socket.gethostname() and _is_ours(at) for name, at in hosts)

    async def close(self, *, grace_s: float = 10.0) -> None:
        self._closing = True
        await asyncio.gather(*(self.stop(one, grace_s=grace_s) for one in list(self._held)))
        with suppress(*CALL_FAILED):
            await self._placing.want_nothing()
        await self._cluster.close()

    async def _on_some_node(self, held: HeldActor) -> tuple[str, int]:
        """The instance's address and its process id there. A node that can't run it keeps its
        bundle until another node has one: otherwise Ray would choose the same node again."""
        useless: list[tuple[Any, Any]] = []
        first: NotNowError | None = None
        try:
            for _ in range(_NODES_TRIED_MAX):
                try:
                    await self._placing.place(held, wait=first is None)
                    return await self._starting.begin(held)
                except NotNowError as error:
                    first = first or error
                    if error.code not in _USELESS:
                        break
                    _log.warning("instance %s: %s", held.spec.instance_id, error.message)
                    useless.append((held.actor, held.group))
                    held.actor = held.group = None
            assert first is not None
            raise first
        finally:
            await shielded(asyncio.gather(*(self._cluster.remove(*one) for one in useless)))

    async def _watch(self, held: HeldActor) -> None:
        how = await until_its_end(self._cluster, held)
        if not held.stopping:
            held.watcher = None
            await shielded(self._forget(held))
            self.on_exit(held.spec.instance_id, how)

    async def _forget(self, held: HeldActor) -> None:
        """Removes all traces of the instance, here and on its node. Others wait for its end, so it
        must not be interrupted: call it `shielded`."""
        if self._held.get(held.spec.instance_id) is not held:
            await held.ended.wait()
            return
        del self._held[held.spec.instance_id]
        if held.watcher is not None:
            held.watcher.cancel()
        try:
            with suppress(*CALL_FAILED):
                if held.actor is not None:
                    await self._cluster.answer(held.actor.forget, seconds=LAST_WORD_S_MAX)
            with suppress(*CALL_FAILED):
                await self._cluster.remove(held.actor, held.group)
        finally:
            if held.log is not None:
                held.log.close()
            held.ended.set()
        with suppress(*CALL_FAILED):
            await self._placing.ask_for_nodes()


def _is_ours(address: str) -> bool:
    """Whether the address is one of this machine: machines made from one image have the same
    name."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True

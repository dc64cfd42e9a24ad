"""Room for an instance on a node of the cluster.

Each instance has a placement group of one bundle, made of its type. Where there is no room, the
cluster's autoscaler is asked for what is running and what is wanted, as its interface has it, until
it is placed or nobody has wanted it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from penstock.errors import NotNowError
from penstock.fleet.base import InstanceSpec
from penstock.fleet.ray.cluster import Cluster
from penstock.fleet.ray.held import HeldActor

#: One wait for a bundle; then it is looked whether anybody still wants it.
_PLACE_S: Final = 2.0
#: A wish that nobody repeats is no wish: the slowest clouds bring a node within this time.
_WISH_S_MAX: Final = 900.0


def bundle_of(spec: InstanceSpec) -> dict[str, float]:
    """What an instance reserves of its node, in Ray's names. All accelerators of one instance are
    in one bundle, hence on one node: an engine with tensor parallelism uses them all."""
    asked = spec.instance_type.resources
    cores = min(asked.cores, float(spec.cores_max)) if spec.cores_max else asked.cores
    bundle = {"CPU": cores, "memory": float(asked.memory_bytes), "GPU": float(asked.accelerators)}
    return {name: amount for name, amount in bundle.items() if amount}


class Placing:
    """Of one fleet."""

    def __init__(
        self, cluster: Cluster, held: Mapping[str, HeldActor], *, node_wait_s: float
    ) -> None:
        """`held`: the fleet's instances by id. `node_wait_s`: how long a start waits for room."""
        self._cluster = cluster
        self._held = held
        self._node_wait_s = node_wait_s
        #: slot -> what was wanted for it last, and until when that counts
        self._wishes: dict[str, tuple[dict[str, float], float]] = {}
        self._asked: list[dict[str, float]] = []  #: of the autoscaler

    async def place(self, held: HeldActor, *, wait: bool) -> None:
        """Gives it a group that has its place. `wait`: for a node that has room.

        Raises NotNowError `no-node-with-room`.
        """
        loop = asyncio.get_running_loop()
        slot, until = _slot(held.spec), loop.time() + (self._node_wait_s if wait else _PLACE_S)
        held.group = await self._cluster.make_group(held.bundle)
        while not await self._cluster.is_placed(held.group, _PLACE_S):
            self._wishes[slot] = (held.bundle, loop.time() + _WISH_S_MAX)
            await self.ask_for_nodes()
            if loop.time() >= until:
                raise NotNowError(
                    "no-node-with-room",
                    f"no node of the Ray cluster has room for {_in_words(held.bundle)}",
                    hint="Add nodes, or let Ray's autoscaler bring some: it was asked.",
                )
        if self._wishes.pop(slot, None) is not None:
            await self.ask_for_nodes()

    async def ask_for_nodes(self) -> None:
        """All that runs and all that is wanted: the autoscaler wants the whole, not what is new."""
        now = asyncio.get_running_loop().time()
        self._wishes = {slot: wish for slot, wish in self._wishes.items() if now < wish[1]}
        wished = [bundle for bundle, _ in self._wishes.values()]
        running = [one.bundle for one in self._held.values() if one.actor is not None]
        bundles = [*running, *wished] if wished else []
        if bundles != self._asked:
            self._asked = bundles
            await self._cluster.ask_for_nodes(bundles)

    async def want_nothing(self) -> None:
        """Takes back what the autoscaler was asked for."""
        self._wishes.clear()
        await self.ask_for_nodes()


def _slot(spec: InstanceSpec) -> str:
    """The place that an instance is for: its next attempt has another number there."""
    return spec.instance_id.rpartition("-")[0]


def _in_words(bundle: dict[str, float]) -> str:
    units = {"CPU": "cores", "memory": "bytes of memory", "GPU": "accelerators"}
    return ", ".join(f"{amount:g} {units[name]}" for name, amount in bundle.items())

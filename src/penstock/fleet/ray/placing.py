"""Finds room for an instance on a node of the cluster.

Each instance has a placement group of one bundle, made from its type. Where there is no room, the
cluster's autoscaler is asked for all that runs and all that is wanted, until the instance is placed
or nobody has asked for it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from penstock.errors import NotNowError
from penstock.fleet.base import InstanceSpec
from penstock.fleet.ray.cluster import Cluster, HeldActor

#: How long one wait for a bundle lasts; then it is checked whether the instance is still wanted.
_PLACE_S: Final = 2.0
#: A request expires unless it is repeated; the slowest clouds bring a node within this time.
_WISH_S_MAX: Final = 900.0


def bundle_of(spec: InstanceSpec) -> dict[str, float]:
    """What an instance reserves on its node, under Ray's names. All its accelerators are in one
    bundle, hence on one node: an engine with tensor parallelism uses them all."""
    asked = spec.instance_type.resources
    cores = min(asked.cores, float(spec.cores_max)) if spec.cores_max else asked.cores
    bundle = {"CPU": cores, "memory": float(asked.memory_bytes), "GPU": float(asked.accelerators)}
    return {name: amount for name, amount in bundle.items() if amount}


class Placing:
    """Places the instances of one fleet."""

    def __init__(
        self, cluster: Cluster, held: Mapping[str, HeldActor], *, node_wait_s: float
    ) -> None:
        """`held`: the fleet's instances by id. `node_wait_s`: how long a start waits for room."""
        self._cluster = cluster
        self._held = held
        self._node_wait_s = node_wait_s
        #: Slot -> the bundle last requested for it, and the time when that request expires.
        self._wishes: dict[str, tuple[dict[str, float], float]] = {}
        self._asked: list[dict[str, float]] = []  #: bundles last requested from the autoscaler

    async def place(self, held: HeldActor, *, wait: bool) -> None:
        """Gives the instance a placement group that has a place. `wait`: for a node with room.

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
        """Requests nodes for all that runs and all that is wanted: the autoscaler needs the
        total."""
        now = asyncio.get_running_loop().time()
        self._wishes = {slot: wish for slot, wish in self._wishes.items() if now < wish[1]}
        wished = [bundle for bundle, _ in self._wishes.values()]
        running = [one.bundle for one in self._held.values() if one.actor is not None]
        bundles = [*running, *wished] if wished else []
        if bundles != self._asked:
            self._asked = bundles
            await self._cluster.ask_for_nodes(bundles)

    async def want_nothing(self) -> None:
        """Withdraws the request to the autoscaler."""
        self._wishes.clear()
        await self.ask_for_nodes()


def _slot(spec: InstanceSpec) -> str:
    """The place that an instance is for: the next attempt at this place has another number."""
    return spec.instance_id.rpartition("-")[0]


def _in_words(bundle: dict[str, float]) -> str:
    units = {"CPU": "cores", "memory": "bytes of memory", "GPU": "accelerators"}
    return ", ".join(f"{amount:g} {units[name]}" for name, amount in bundle.items())

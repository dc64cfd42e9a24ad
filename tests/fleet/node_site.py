"""A node without a cluster: `InstanceNode` as a fleet elsewhere drives it, over values alone."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.control.instances.instance_client import InstanceClient
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType
from penstock.fleet.identity import contexts
from penstock.fleet.identity.authority import Authority
from penstock.fleet.node import InstanceNode

ID = "shop-all-1-0-7"


class NodeSite:
    """One authority and one node; what passes between them is JSON, as between machines."""

    def __init__(self, folder: Path, instance_id: str = ID) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.instance_id = instance_id
        self.authority = Authority.open(folder, now=time.time())
        self.identity = self.authority.server_identity(now=time.time())
        self.node = InstanceNode(instance_id, "127.0.0.1")
        self.log = b""
        self.log_at = 0

    def tls(self) -> ssl.SSLContext:
        return contexts.dialling(self.identity)

    async def start(self, **settings: Any) -> dict[str, Any]:
        told = await self.node.describe()
        name = contexts.of_instance(self.instance_id)
        kind = InstanceType(
            name="ml.local.small", resources=ComputeResources(cores=1.0, memory_bytes=2**30)
        )
        wanted = {
            "certificate": self.authority.sign(told["request"], name, now=time.time()),
            "authority": self.authority.certificate,
            "cache_dir": str(self.folder / "node-cache"),
            "instance_type": asdict(kind),
            "shadow": False,
            "guest": False,
            "cores_max": 0,
            "settings": {"work_dir": "/nowhere/on/this/machine", **settings},
        }
        return await self.node.start(json.loads(json.dumps(wanted)))

    async def watch(self, wait_s: float = 1.0) -> dict[str, Any]:
        seen = await self.node.watch(self.log_at, wait_s)
        self.log += seen["log"]
        self.log_at = seen["log_at"]
        return seen

    async def wait_ended(self, seconds: float = 30) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            seen = await self.watch()
            if seen["ended"] is not None:
                return dict(seen["ended"])
        raise AssertionError("the instance has not ended")


@contextlib.asynccontextmanager
async def node_site(folder: Path) -> AsyncIterator[NodeSite]:
    site = NodeSite(folder)
    try:
        yield site
    finally:
        await site.node.forget()


async def client_of(site: NodeSite, address: str) -> InstanceClient:
    return await InstanceClient.connect(
        site.instance_id,
        address,
        on_event=lambda event: None,
        on_close=lambda: None,
        tls=site.tls,
    )

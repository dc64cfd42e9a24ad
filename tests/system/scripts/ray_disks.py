"""Whether a fleet's nodes see this machine's disk, by what Ray's records of its nodes say.

    python ray_disks.py ADDRESS STATE_DIR

Prints an object of JSON: first of the cluster as it is, then of records like its own that say that
a node is on another machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import ray

from penstock.fleet.identity.authority import Authority
from penstock.fleet.ray.fleet import RayFleet

#: For documentation alone (RFC 5737): no machine has it.
ELSEWHERE = "192.0.2.7"


async def main() -> None:
    authority = Authority.open(Path(sys.argv[2]), now=time.time())
    fleet = RayFleet(sys.argv[1], authority, node_wait_s=1.0)
    here = ray.nodes()[0]

    async def with_a_node(**members: Any) -> bool:
        ray.nodes = lambda: [here, here | members]
        return await fleet.shares_disk()

    told = {
        "as it is": await fleet.shares_disk(),
        "another host": await with_a_node(
            NodeManagerHostname="elsewhere", NodeManagerAddress=ELSEWHERE
        ),
        "another host that is gone": await with_a_node(
            NodeManagerHostname="elsewhere", NodeManagerAddress=ELSEWHERE, Alive=False
        ),
        "another name": await with_a_node(NodeManagerHostname="elsewhere"),
        "another host of the same name": await with_a_node(NodeManagerAddress=ELSEWHERE),
        "one by IPv6": await with_a_node(NodeManagerAddress="::1"),
    }
    await fleet.close()
    print(json.dumps(told))


asyncio.run(main())

"""A Ray cluster of several nodes on this machine, made by Ray's own means for tests.

    python ray_cluster.py HEAD_CPUS [NODE_CPUS ...]     (PYTHONPATH: src, and the root)

Prints one line of JSON with the cluster's address once all nodes are there; then answers each line
of standard input: `kill N` kills the raylet of node N (0 is the head's) as a crash would, `add
CPUS` adds a node. The end of input ends the cluster.
"""

from __future__ import annotations

import inspect
import json
import signal
import sys
from typing import Any

import ray._private.services
import ray._private.utils
from ray._private import ray_constants
from ray._raylet import (
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    persist_port,
)
from ray.cluster_utils import Cluster
from tools.free_port import free_port

#: Of a node, as it says: nobody takes it. Enough for types of AWS's names.
MEMORY_BYTES = 64 * 2**30
NOT_OFFERED = -1
AGENTS_PORTS = (DASHBOARD_AGENT_LISTEN_PORT_NAME, METRICS_AGENT_PORT_NAME, METRICS_EXPORT_PORT_NAME)


def without_dashboards() -> None:
    """A raylet waits 15 s for the dashboard's agent to say where it listens, then gives up; on a
    busy machine the agent is still importing. So there is none, and what it would say is said."""
    missing = ImportError("this cluster has no dashboard")
    ray._private.utils.get_dashboard_dependency_error = lambda: missing
    start = ray._private.services.start_raylet
    parameters = inspect.signature(start)

    def start_raylet(*args: Any, **options: Any) -> Any:
        given = parameters.bind(*args, **options).arguments
        for name in AGENTS_PORTS:
            persist_port(given["session_dir"], given["node_id"], name, NOT_OFFERED)
        return start(*args, **options)

    ray._private.services.start_raylet = start_raylet


def node(cluster: Cluster, cpus: str, **more: Any) -> Any:
    return cluster.add_node(
        num_cpus=float(cpus),
        memory=MEMORY_BYTES,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        runtime_env_agent_port=free_port(),
        **more,
    )


def raylet_of(one: Any) -> Any:
    [info] = one.all_processes[ray_constants.PROCESS_TYPE_RAYLET]
    return info.process


def kill(one: Any) -> None:
    """And waits for it: what ran on the node looks whether the raylet is a process, and a zombie
    would be one."""
    raylet = raylet_of(one)
    raylet.send_signal(signal.SIGKILL)
    raylet.wait()


def main() -> None:
    without_dashboards()
    cluster = Cluster()
    client_port = free_port()
    head, *others = sys.argv[1:]
    nodes = [node(cluster, head, ray_client_server_port=client_port)]
    nodes += [node(cluster, cpus) for cpus in others]
    cluster.wait_for_nodes(timeout=120)
    told: dict[str, Any] = {
        "address": cluster.address,
        "client": f"ray://127.0.0.1:{client_port}",
        "raylets": [raylet_of(one).pid for one in nodes],
    }
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "kill":
            kill(nodes[int(argument)])
        elif word == "add":
            nodes.append(node(cluster, argument))
        print(json.dumps({"done": word}), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()

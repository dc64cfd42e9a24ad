"""A Ray cluster on this machine and a server whose instances run on its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.servers import Server

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "kit" / "ray_cluster.py"


class RayCluster:
    """Nodes by their number; 0 is the head's."""

    def __init__(self, folder: Path, *cpus: str) -> None:
        self.log_path = folder / "ray-cluster.log"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            # The head forks a process for each client by its own; gRPC's threads crash in it else.
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(python_of("ray")), str(SCRIPT), *cpus],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        told = self._answer()
        self.address: str = told["address"]
        self.client: str = told["client"]  #: for who is no node
        self.raylets: list[int] = told["raylets"]

    def kill(self, number: int) -> None:
        """Its raylet is gone at once, as with a node that loses its power."""
        self._ask(f"kill {number}")

    def add(self, cpus: int) -> None:
        self._ask(f"add {cpus}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def _ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log_path.read_text()[-3000:]
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def cluster_of(folder: Path, *cpus: str) -> Iterator[RayCluster]:
    cluster = RayCluster(folder, *cpus)
    try:
        yield cluster
    finally:
        cluster.close()


def server_on(cluster: RayCluster, state_dir: Path, *flags: str) -> Server:
    """`penstock up` on the cluster, under the interpreter that has Ray."""
    fleet = ("--fleet", f"ray:{cluster.address}")
    return Server(state_dir, *fleet, *flags, python=str(python_of("ray")))


def actors_of(server: Server, endpoint: str) -> dict[int, int]:
    """copy -> Ray's process that has started its instance."""
    return {copy["copy"]: _parent(copy["pid"]) for copy in server.copies(endpoint)}


def raylets_of(server: Server, endpoint: str) -> dict[int, int]:
    """copy -> the raylet of the node that it is on."""
    return {copy: _parent(actor) for copy, actor in actors_of(server, endpoint).items()}


def _parent(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def ready_copies(server: Server, endpoint: str, count: int, *, seconds: float = 120) -> Any:
    return wait_until(
        lambda: sum(copy["state"] == "ready" for copy in server.copies(endpoint)) >= count,
        f"{count} ready copies",
        seconds,
    )

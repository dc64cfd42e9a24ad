"""What stands before the regions: our orchestrator, or HAProxy at its best.

HAProxy does weighted round robin with a health check each 250 ms, keeps connections to the regions
open, sends a request again elsewhere where a connection fails or breaks (`retry-on`, for which it
holds bodies back), ends the sessions of a server that is marked down, and brings one back slowly.
Clients' connections may idle for as long as they like: one that was closed as it was used again
would be its fault. It is tried with and without a bound on each server's connections (its own
queue, then), and with a short and a long patience for an answer, since only an answer that is late
tells it of a request that a silent region holds.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from tools.free_port import free_port

from bench.processes import Running, running
from bench.report import ROOT


class Target(Protocol):
    """A region, as one of the places before it reaches it."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Front:
    """One way to share requests among regions."""

    name: str
    kind: str  #: ours | haproxy
    slots: int = 0  #: HAProxy: connections to a server at once; 0 = any number
    patience_s: float = 60.0  #: HAProxy: for an answer
    balance: str = "roundrobin"
    mode: str = "automatic"  #: ours
    home: str = "eu"
    costs: Mapping[str, float] = field(default_factory=dict)  #: ours: of a slot per hour, by region
    queue_s: float = 10.0  #: how long a request waits here for room
    #: ours: endpoints with a spec of their own, as regions.yaml has it
    endpoints: Mapping[str, Any] = field(default_factory=dict)


def haproxies(slots: int) -> tuple[Front, ...]:
    """The settings that it is tried with."""
    return tuple(
        Front(f"haproxy {bound or 'unbounded'} {patience_s:g}s", "haproxy", bound, patience_s)
        for bound in (0, slots)
        for patience_s in (2.0, 60.0)
    )


def haproxy_version() -> str:
    """Empty where it is missing."""
    if shutil.which("haproxy") is None:
        return ""
    run = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=False)
    return run.stdout.partition("\n")[0]


@contextlib.contextmanager
def started(front: Front, regions: Mapping[str, Target]) -> Iterator[str]:
    """Yields the base URL once it uses every region."""
    with started_process(front, regions) as (url, _):
        yield url


@contextlib.contextmanager
def started_process(front: Front, regions: Mapping[str, Target]) -> Iterator[tuple[str, Running]]:
    """The same; yields its process too."""
    start = _ours if front.kind == "ours" else _haproxy
    with start(front, regions) as both:
        yield both


@contextlib.contextmanager
def _ours(front: Front, regions: Mapping[str, Target]) -> Iterator[tuple[str, Running]]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "regions.yaml")
        said: dict[str, Any] = {
            "mode": front.mode,
            "hold_s_max": front.queue_s,
            "regions": [
                {"name": one.name, "url": one.url}
                | ({"cost_per_hour": front.costs[one.name]} if front.costs else {})
                for one in regions.values()
            ],
        }
        if front.endpoints:
            said["endpoints"] = dict(front.endpoints)
        file.write_text(yaml.safe_dump(said | ({"home": front.home} if front.home else {})))
        argv = [
            *(sys.executable, "-m", "penstock", "orchestrator", "--regions", str(file)),
            *("--port", str(port), "--state-dir", folder, "--log-level", "warning"),
        ]
        with running(argv, env={"PYTHONPATH": str(ROOT / "src")}) as server:
            _wait(lambda: "orchestrator ready: " in server.log.read_text(), "the orchestrator")
            yield f"http://127.0.0.1:{port}", server


@contextlib.contextmanager
def _haproxy(front: Front, regions: Mapping[str, Target]) -> Iterator[tuple[str, Running]]:
    port = free_port()
    bound = f" maxconn {front.slots}" if front.slots else ""
    servers = "\n".join(
        f"    server {one.name} {one.url.removeprefix('http://')} check inter 250ms fall 3 rise 2"
        f" weight 100 slowstart 5s on-marked-down shutdown-sessions{bound}"
        for one in regions.values()
    )
    patience_ms, queue_ms = int(front.patience_s * 1e3), int(front.queue_s * 1e3)
    config = f"""
global
    maxconn 4096
    tune.bufsize 65536
defaults
    mode http
    option http-keep-alive
    option http-buffer-request
    option http-no-delay
    option redispatch 1
    http-reuse always
    retries 5
    retry-on all-retryable-errors
    timeout connect 750ms
    timeout client 600s
    timeout http-request 600s
    timeout http-keep-alive 600s
    timeout queue {queue_ms}ms
    timeout server {patience_ms}ms
    timeout check 250ms
frontend front
    bind 127.0.0.1:{port}
    default_backend regions
backend regions
    balance {front.balance}
    option httpchk GET /ping
{servers}
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "haproxy.cfg")
        file.write_text(config)
        with running(["haproxy", "-db", "-f", str(file)]) as server:
            yield f"http://127.0.0.1:{port}", server


def _wait(condition: object, what: str, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} was not ready")
        time.sleep(0.05)

"""The server in the image of `container_images.py`: SageMaker's contract, with what goes wrong.

`image_server.py serve`: variables say how it starts, a request's body says what it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = Path("/opt/ml/model")
STARTED = time.monotonic()
GO_ON = threading.Event()


def way_out(address: str) -> str:
    try:
        socket.create_connection((address, 80), 3).close()
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
    return "open"


def may_write(path: str) -> str:
    try:
        Path(path).write_text("x")
    except OSError as error:
        return str(error.errno)
    return "written"


def capabilities() -> dict[str, str]:
    fields = (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: value.strip() for name, _, value in fields}


def limits() -> dict[str, str]:
    """Of its control group, of either version."""
    groups, found = Path("/sys/fs/cgroup"), {}
    for name, places in {
        "processes": ("pids/pids.max", "pids.max"),
        "memory": ("memory/memory.limit_in_bytes", "memory.max"),
        "cpu": ("cpu/cpu.cfs_quota_us", "cpu.max"),
    }.items():
        found[name] = next(
            (groups / each).read_text().split()[0] for each in places if (groups / each).exists()
        )
    return found


def tried(what: str) -> str:
    """A call that takes a right which the container should not have."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "unshare": lambda: libc.unshare(0x40000000),
        "device": lambda: libc.mknod(b"/tmp/disk", 0o60600, os.makedev(254, 0)),
    }
    return errno.errorcode[ctypes.get_errno()] if calls[what]() else "done"


def filled(folder: str) -> int:
    """The MiB that a folder takes, up to 4 GiB."""
    with contextlib.suppress(OSError), open(f"{folder}/filling", "wb", buffering=0) as file:
        for _ in range(4096):
            file.write(bytes(2**20))
    return Path(folder, "filling").stat().st_size >> 20


def hold(mib: str) -> int:
    """Memory that four processes share since they were forked, and as much of files in memory."""
    HELD.append(bytearray(b"x") * (int(mib) << 20))
    Path("/dev/shm/held").write_bytes(b"x" * (int(mib) << 20))
    for _ in range(4):
        if os.fork() == 0:
            while True:
                time.sleep(3600)
    return len(HELD[-1])


def burn(seconds: str) -> float:
    """Processor time of a process that has ended when this returns."""
    child = os.fork()
    if child == 0:
        while time.process_time() < float(seconds):
            pass
        os._exit(0)
    os.waitpid(child, 0)
    return os.times().children_user


HELD: list[bytearray] = []
DOES: dict[str, Callable[[str], Any]] = {
    "facts": lambda _: {
        "argv": sys.argv[1:],
        "user": os.getuid(),
        "files": {each.name: each.read_text() for each in MODEL.glob("*")},
        "environment": dict(os.environ),
        "status": capabilities(),
        "mounts": Path("/proc/self/mounts").read_text().splitlines(),
        "limits": limits(),
        "devices": sorted(os.listdir("/dev")),
        "interfaces": sorted(os.listdir("/sys/class/net")),
    },
    "out": way_out,
    "try": tried,
    "fill": filled,
    "hold": hold,
    "burn": burn,
    "write": may_write,
    "take": lambda mib: len(bytearray(b"x") * (int(mib) << 20)),
    "die": lambda status: os._exit(int(status)),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "print": lambda count: sys.stdout.write("spam " * 20 * int(count)),
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "go": lambda _: GO_ON.set(),
    "pid": lambda _: Path("/proc/self/stat").read_text().split()[0],
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        slow_s = float(os.environ.get("PING_AFTER_S", "0"))
        late = time.monotonic() < STARTED + slow_s
        status = 503 if late else int(os.environ.get("PING", "200"))
        self.say(status if self.path == "/ping" else 404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = body.decode() if body.startswith(b"!") else ""
        if self.path != "/invocations":
            self.say(404, b"")
        elif body.startswith(b"["):
            self.say(200, body)
        elif asked.startswith("!stream"):
            self.stream(asked.partition(" ")[2])
        elif asked:
            what, _, detail = asked[1:].partition(" ")
            self.say(200, json.dumps(DOES[what](detail)).encode())
        else:
            seen = {name.lower(): value for name, value in self.headers.items()}
            self.say(200, json.dumps({"body": body.decode(), "headers": seen}).encode())

    def stream(self, end: str) -> None:
        """One piece, and another one once a request has said `go`; `end`: "die" comes before it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n")
        GO_ON.wait()
        GO_ON.clear()
        if end == "die":
            os._exit(5)
        self.wfile.write(b"3\r\ntwo\r\n0\r\n\r\n")

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if "ANSWERS_ONCE" in os.environ:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


class ImageServer(ThreadingHTTPServer):
    request_queue_size = 128


def own_address() -> str:
    """Of the container: the way to the outside shows it."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def main() -> None:
    # The first process of a container has no default action for signals.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("the server begins", flush=True)
    if "END_WITH" in os.environ:
        print("there is no such weights file", flush=True)
        sys.exit(int(os.environ["END_WITH"]))
    if "WRITES_FIRST" in os.environ:
        Path(os.environ["WRITES_FIRST"]).write_text("mine")
    if os.environ.get("SAGEMAKER_MULTI_MODEL") == "true":
        models = str(Path(__file__).with_name("multi_model_server.py"))
        os.execv(sys.executable, [sys.executable, models, "8080", "0.0.0.0"])
    at = os.environ.get("LISTENS_ON", "0.0.0.0")
    ImageServer((own_address() if at == "own" else at, 8080), Handler).serve_forever()


if __name__ == "__main__":
    main()

"""What a model's code can reach of the platform: its own files, and nothing of its neighbours.

A hostile model tries; what it got is compared. It is told the paths and numbers of the real thing,
so that nothing rests on their not being known.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance

from penstock.runtimes.confinement.confined import landlock_version
from penstock.wire import frames

HOSTILE = '''
import glob, os, signal, socket, subprocess, sys, tempfile

def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 16).decode("utf-8", "replace")

def write(path):
    with open(path, "ab") as file:
        file.write(b"# changed")
    return "written"

def name_thread(name):
    with open("/proc/thread-self/comm", "wb") as file:
        file.write(name.encode())
    return read("/proc/thread-self/comm")

def talk(path):
    """What the other side of a socket says to a control call, or that it says nothing."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(10)
        door.connect(path)
        call = b'{"op": "status"}'
        door.sendall(len(call).to_bytes(4, "little") + b"\\x03\\0\\0\\0" + bytes(8) + call)
        said = door.recv(1 << 16)
        return repr(said) if said else None

TRIES = {
    "read": read,
    "write": write,
    "list": lambda path: os.listdir(path),
    "remove": lambda path: os.remove(path) or "removed",
    "link": lambda paths: os.link(paths[0], paths[1]) or "linked",
    "rename": lambda paths: os.rename(paths[0], paths[1]) or "renamed",
    "name thread": name_thread,
    "talk": talk,
    "signal": lambda pid: os.kill(pid, 0) or "could be signalled",
    "run": lambda argv: subprocess.run(argv, capture_output=True, text=True, check=True).stdout,
    "environment": lambda _: dict(os.environ),
    "scratch": lambda _: write(os.path.join(tempfile.mkdtemp(), "x")),
    "home": lambda _: write(os.path.expanduser("~/x")),
    "descriptors": lambda _: [read_link(number) for number in os.listdir("/proc/self/fd")],
    "import": lambda name: __import__(name).__name__,
}

def read_link(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return "closed"  # the one that listed them

def model_fn(model_dir):
    return model_dir

def predict_fn(data, model_dir):
    try:
        return {"got": TRIES[data["try"]](data.get("with"))}
    except Exception as error:
        return {"refused": type(error).__name__ + ": " + str(error)}
'''


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's folder, with what must stay its own."""
    folder = tmp_path_factory.mktemp("state")
    for name in ("lock", "keys.key", "penstock.db"):
        (folder / name).write_text("private")
    return folder


@pytest.fixture(scope="module")
def running(state: Path) -> Iterator[InstanceProcess]:
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIAPRIVATE",
        "AWS_SECRET_ACCESS_KEY": "private",
        "AWS_SESSION_TOKEN": "private",
        "DATABASE_URL": "postgresql://private",
        "PENSTOCK_DATABASE": "postgresql://private",
        "PGPASSWORD": "private",
        "HF_TOKEN": "private",
        "VLLM_API_KEY": "private",
        "HTTPS_PROXY": "http://user:private@127.0.0.1:9",
        "OPERATORS_OWN": "private",
        "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL"),
        "ATEN_CPU_CAPABILITY": os.environ.get("ATEN_CPU_CAPABILITY", "default"),
    }
    with instance(state, environment=environment) as one:
        yield one


@pytest.fixture(scope="module")
def client(running: InstanceProcess, tmp_path_factory: pytest.TempPathFactory) -> FrameClient:
    client = running.client()
    model = model_files.code(
        tmp_path_factory.mktemp("m") / "m", HOSTILE, environment={"ITS_OWN": "given"}
    )
    client.serve(1, model)
    other = model_files.code(tmp_path_factory.mktemp("o") / "o", "def predict_fn(d, m): return d\n"
                             "def model_fn(d): return 'a neighbour'\n")  # fmt: skip
    assert client.load(2, other)["ok"]
    return client


def attempt(client: FrameClient, what: str, given: Any = None) -> dict[str, Any]:
    body = json.dumps({"try": what, "with": given}).encode()
    told: dict[str, Any] = client.invoke(1, body, content_type="application/json").json
    return told


needs_landlock = pytest.mark.skipif(
    not landlock_version(), reason="this kernel has no Landlock: files are not hidden from models"
)


def test_the_environment_is_an_allow_list(client: FrameClient) -> None:
    seen = attempt(client, "environment")["got"]
    assert "private" not in json.dumps(seen)
    assert "AKIAPRIVATE" not in json.dumps(seen)
    assert not [name for name in seen if name.startswith(("PENSTOCK", "AWS_"))]
    assert seen["ITS_OWN"] == "given"
    assert {"PATH", "SM_MODEL_DIR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"} <= seen.keys()
    # What batches use again is kept, or each of them has its pages made anew.
    assert seen["MALLOC_TRIM_THRESHOLD_"] == str(32 << 20)


def test_of_the_instances_descriptors_a_model_has_its_output_and_its_progress(
    client: FrameClient, running: InstanceProcess
) -> None:
    def links(of: int) -> set[str]:
        found = set()
        for each in Path(f"/proc/{of}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(each))
        return found

    seen = set(attempt(client, "descriptors")["got"])
    shared = seen & links(running.process.pid) - {"/dev/null", "/dev/urandom"}
    progress = {name for name in shared if name.startswith("/memfd:penstock-progress")}
    (output,) = shared - progress
    assert output.startswith("pipe:")
    assert output not in links(os.getpid())


def test_what_a_model_needs_it_has(client: FrameClient) -> None:
    assert attempt(client, "scratch") == {"got": "written"}
    assert attempt(client, "home") == {"got": "written"}
    assert attempt(client, "run", ["/bin/sh", "-c", "echo well"]) == {"got": "well\n"}
    for name in ("numpy", "json", "ctypes", "ssl", "multiprocessing.synchronize"):
        assert attempt(client, "import", name).get("got"), name
    model_dir = attempt(client, "environment")["got"]["SM_MODEL_DIR"]
    assert "HOSTILE" not in attempt(client, "read", f"{model_dir}/model.yaml")["got"]
    for name in ("/proc/cpuinfo", "/proc/self/status", "/etc/hosts"):
        assert "got" in attempt(client, "read", name)
    # CUDA names its threads, and does not start where it can't.
    assert attempt(client, "name thread", "worker") == {"got": "worker\n"}


@needs_landlock
def test_the_platforms_own_files_are_out_of_reach(
    client: FrameClient, running: InstanceProcess, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_text("private")
    entries = [path for path in (state / "cache" / "artifacts").iterdir() if path.is_dir()]
    own = Path(attempt(client, "environment")["got"]["SM_MODEL_DIR"]).parent
    (neighbour,) = (path for path in entries if path.name[0] != "." and path != own)
    me = os.getpid()
    tries: list[tuple[str, Any]] = [
        ("read", f"{state}/keys.key"),
        ("read", f"{state}/penstock.db"),
        ("list", f"{state}"),
        ("list", f"{Path(running.path).parent}"),
        ("list", f"{state}/cache/artifacts"),
        ("read", f"{neighbour}/files/code/inference.py"),
        ("write", f"{neighbour}/files/code/inference.py"),
        ("remove", f"{neighbour}/files/code/inference.py"),
        ("write", f"{neighbour}/entry.json"),
        ("write", f"{own}/files/code/inference.py"),
        ("write", f"{own}/files/added.py"),
        ("write", f"{state}/cache/added"),
        ("read", f"{tmp_path}/elsewhere"),
        ("write", f"{tmp_path}/added"),
        ("link", [f"{state}/keys.key", f"{own}/files/keys"]),
        ("rename", [f"{state}/keys.key", f"{own}/files/keys"]),
        ("run", ["/bin/cat", f"{state}/keys.key"]),
        ("read", f"/proc/{me}/environ"),
        ("read", f"/proc/{running.process.pid}/environ"),
        ("read", f"/proc/{running.process.pid}/root{state}/keys.key"),
        ("read", f"/proc/{me}/cwd/pyproject.toml"),
    ]
    got = {f"{what} {given}": attempt(client, what, given) for what, given in tries}
    assert {name: told for name, told in got.items() if "got" in told} == {}
    assert (state / "keys.key").read_text() == "private"


@needs_landlock
def test_processes_of_others_can_not_be_signalled(
    client: FrameClient, running: InstanceProcess
) -> None:
    if landlock_version() < 6:
        pytest.skip("this kernel's Landlock is older than version 6: signals are not confined")
    for pid in (os.getpid(), running.process.pid, 1):
        assert "refused" in attempt(client, "signal", pid)


def test_an_instance_talks_to_the_process_that_started_it_and_to_no_other(
    client: FrameClient, running: InstanceProcess
) -> None:
    """Whoever knows the path: a model's process, or one that this test starts."""
    assert attempt(client, "talk", running.path).get("got") is None
    child = os.fork()
    if not child:
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(running.path)
            door.settimeout(10)
            try:
                door.sendall(frames.encode(frames.CONTROL, 1, b'{"op": "ping"}'))
                said = door.recv(100)
            except OSError:
                said = b""
        os._exit(1 if said else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.control(op="ping")["ok"]


def test_a_trusted_artifact_is_not_confined(state: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("private")
    artifact = {"trusted_artifacts": [f"file://{tmp_path}"]}
    with instance(tmp_path / "instance", artifact=artifact) as one:
        client = one.client()
        assert client.load(1, model_files.code(tmp_path / "m", HOSTILE))["ok"]
        assert attempt(client, "read", f"{tmp_path}/elsewhere") == {"got": "private"}


PROGRAM = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.said(b"")
    def do_POST(self):
        path = self.rfile.read(int(self.headers["content-length"])).decode()
        try:
            self.said(open(path, "rb").read(100))
        except OSError as error:
            self.said(b"refused: " + str(error).encode())
    def said(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""  # noqa: E501


@needs_landlock
def test_a_foreign_server_sees_the_machine_but_not_the_platform(
    client: FrameClient, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("the machine's")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "serve.py").write_text(PROGRAM)
    model_files.describe(
        folder, runtime="process", task="payload", command=["python3", "{model_dir}/serve.py"]
    )
    client.serve(3, folder)

    def read(path: Path) -> bytes:
        answer: FrameAnswer = client.invoke(3, str(path).encode())
        return answer.body

    assert read(tmp_path / "data") == b"the machine's"
    assert read(state / "keys.key").startswith(b"refused")
    assert read(state / "penstock.db").startswith(b"refused")

"""A guest's instance with models on it: the kernel gives none of its threads what others want."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until
from tests.kit.processes import policies_below

from penstock import guests

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE"), reason="the kernel has no policy for guests"
)

#: Answers with the policy of a thread that the model's code has started.
THREADED = """
import os, threading
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    found = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
    thread.start()
    thread.join()
    return found
"""


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[InstanceProcess]:
    command = guests.command((sys.executable, "-m", "penstock.instance"))
    with instance(tmp_path, command=command) as running:
        yield running


def test_every_thread_takes_only_what_others_leave(guest: InstanceProcess, tmp_path: Path) -> None:
    """Loop, loads, lanes, the libraries' own threads, workers, and what workers start."""
    client = guest.client()
    assert client.load(1, model_files.affine(tmp_path / "affine"))["ok"]
    assert client.load(2, model_files.classifier(tmp_path / "texts"))["ok"]
    assert client.load(3, model_files.code(tmp_path / "code", THREADED, rows_max=1))["ok"]
    assert client.invoke(1, b"[[1, 0, 0, 2]]").json == {"predictions": [[9.0, 10.5, 12.0]]}
    assert client.invoke(2, b'{"inputs": "very good film"}').json[0]["label"] == "positive"
    assert client.invoke(3, b"{}").json == [os.SCHED_IDLE]
    found = policies_below(guest.process.pid)
    assert len({pid for pid, _ in found}) >= 5, found
    assert {one for one in found.items() if one[1] != os.SCHED_IDLE} == set()


def test_a_guest_claims_no_core_for_itself(guest: InstanceProcess, tmp_path: Path) -> None:
    """A core that nobody wants now may be another one in a moment."""
    folder = model_files.affine(tmp_path / "m")
    with (folder / "model.yaml").open("a") as file:
        file.write("\npinned: true\nlanes: 1\nthreads_per_lane: 1\n")
    assert guest.client().load(1, folder)["ok"]
    cores = os.sched_getaffinity(0)
    found = [
        os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{guest.process.pid}/task")
    ]
    assert [each for each in found if each != cores] == []


def server_that_answers(folder: Path, with_: str) -> Path:
    """A foreign server's folder; it answers with the value of an expression of Python."""
    program = (
        "import http.server, os, threading\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "    def do_POST(self):\n"
        f"        body = str({with_}).encode()\n"
        "        self.send_response(200)\n"
        "        self.send_header('Content-Length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "port = int(os.environ['SAGEMAKER_BIND_TO_PORT'])\n"
        "http.server.ThreadingHTTPServer(('127.0.0.1', port), H).serve_forever()\n"
    )
    folder.mkdir()
    (folder / "serve.py").write_text(program)
    model_files.describe(folder, runtime="process", command=[sys.executable, "serve.py"])
    return folder


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="the kernel makes no group of a session"
)
def test_a_foreign_server_of_an_instance_with_less_weight_has_no_more(tmp_path: Path) -> None:
    """It leads a session of its own, and the kernel's weights are of sessions."""
    folder = server_that_answers(tmp_path / "m", "open('/proc/self/autogroup').read()")
    command = ("nice", "-n", "10", sys.executable, "-m", "penstock.instance")
    with instance(tmp_path / "i", command=command) as running:
        client = running.client()
        client.serve(1, folder)
        answer = client.invoke(1, b"x", content_type="text/plain")
    assert answer.body.split()[-2:] == [b"nice", b"10"]


def test_a_foreign_servers_processes_are_guests_too(guest: InstanceProcess, tmp_path: Path) -> None:
    folder = server_that_answers(tmp_path / "m", "os.sched_getscheduler(0)")
    client = guest.client()
    client.serve(1, folder)
    answer = client.invoke(1, b"x", content_type="text/plain")
    assert answer.body == str(os.SCHED_IDLE).encode()
    wait_until(lambda: set(policies_below(guest.process.pid).values()) == {os.SCHED_IDLE}, "idle")

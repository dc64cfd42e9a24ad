"""Requests that end the process that computes them, among innocent ones, beside another endpoint.

Each poison gets an error of its own; each innocent its answer, though its batch may have died; an
endpoint beside them never notices.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

POISONED = """
import ctypes, os, signal, subprocess, threading, time

def spree():
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    for _ in range(20):
        subprocess.Popen(["sleep", "600"])
    os._exit(1)

def hang():
    while True:
        pass

def recursive(n=0):
    return recursive(n + 1)

POISON = {
    "exit": lambda: os._exit(0),
    "status": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "segmentation fault": lambda: ctypes.string_at(0),
    "threads and processes": spree,
    "endless loop": hang,
    "all the memory": lambda: bytearray(1 << 50),
    "deep recursion": recursive,
    "closes what it is asked by": lambda: os.closerange(3, 1024),
    "words that are no text": lambda: (_ for _ in ()).throw(ValueError("\\udc80")),
}

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    if isinstance(data, dict):
        POISON[data["poison"]]()
    time.sleep(0.002)
    return data
"""

MODEL = """
schema: 1
runtime: python
task: payload
file: code/inference.py
lanes: 2
batching: {rows_max: 8}
environment: {SAGEMAKER_MODEL_SERVER_TIMEOUT: "2"}
"""

#: What each is told, by the code of the error in the model's name.
FATAL = (
    "exit", "status", "kill", "abort", "segmentation fault", "threads and processes",
    "closes what it is asked by",
)  # fmt: skip
HARMLESS = {
    "endless loop": "did not answer within 2 s",
    "all the memory": "MemoryError",
    "deep recursion": "RecursionError",
    "words that are no text": "ValueError",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("isolation")
    server = Server(folder / "state").start()
    model = python_model(folder / "poisoned", POISONED, model_yaml=MODEL)
    server.deploy("poisoned", model, count=2)
    server.deploy("control", python_model(folder / "control", BUSY_ECHO))
    yield server
    server.stop()


def workers(server: Server) -> list[int]:
    return [pid for copy in server.copies("poisoned") for pid in copy["worker_pids"]]


def all_well(server: Server) -> bool:
    states = [copy["state"] for copy in server.copies("poisoned")]
    return states == ["ready", "ready"] and len(workers(server)) == 4


def poison(server: Server, kind: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"poison": kind}).encode()
    status, told = server.post("/endpoints/poisoned/invocations", body)
    return status, json.loads(told)


def control(server: Server, seconds_of_calls: int) -> list[float]:
    """Times of calls of the endpoint beside, each of which is answered."""
    times = []
    for number in range(seconds_of_calls):
        began = time.monotonic()
        assert server.post("/endpoints/control/invocations", b"[%d]" % number)[0] == 200
        times.append(time.monotonic() - began)
    return times


@pytest.mark.parametrize("kind", FATAL)
def test_poison_ends_two_workers_and_harms_no_innocent(site: Server, kind: str) -> None:
    wait_until(lambda: all_well(site), "all workers well", 60)
    before = set(workers(site))
    quiet = control(site, 50)
    with (
        Load(site.port, "/endpoints/poisoned/invocations", workers=12) as innocents,
        Load(site.port, "/endpoints/control/invocations", workers=2) as beside,
    ):
        wait_until(lambda: innocents.answered > 100, "load", 30)
        status, told = poison(site, kind)
        loud = control(site, 50)
        answered = innocents.answered
        wait_until(lambda: innocents.answered > answered + 100, "load afterwards", 60)
        wait_until(lambda: all_well(site), "all workers well", 60)
    assert status == 424, told
    assert "while it had this request" in json.dumps(told)
    assert len(before - set(workers(site))) == 2
    for load in (innocents, beside):
        assert load.statuses == {200: load.answered}, load.errors
        assert (load.broken, load.wrong) == (0, [])
    print(f"the endpoint beside: median {1000 * statistics.median(quiet):.1f} ms, meanwhile "
          f"{1000 * statistics.median(loud):.1f} ms")  # fmt: skip


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_a_model_survives_or_is_ended_for_is_this_requests_error(
    site: Server, kind: str
) -> None:
    wait_until(lambda: all_well(site), "all workers well", 60)
    with Load(site.port, "/endpoints/poisoned/invocations", workers=4) as innocents:
        wait_until(lambda: innocents.answered > 50, "load", 30)
        status, told = poison(site, kind)
        answered = innocents.answered
        wait_until(lambda: innocents.answered > answered + 50, "load afterwards", 60)
    assert status == 424
    assert HARMLESS[kind] in json.dumps(told)
    assert innocents.statuses == {200: innocents.answered}, innocents.errors
    assert (innocents.broken, innocents.wrong) == (0, [])


def test_many_poisons_at_once_each_get_their_error(site: Server, tmp_path: Path) -> None:
    """They share batches with innocents and with each other."""
    wait_until(lambda: all_well(site), "all workers well", 60)
    bodies = [b'{"poison": "exit"}' if at % 8 == 3 else b"[%d]" % at for at in range(24)]
    answers: dict[int, tuple[int, bytes]] = {}

    def ask(at: int) -> None:
        for _ in range(100):  # while no copy is well, new requests are refused at once
            status, said = site.post("/endpoints/poisoned/invocations", bodies[at])
            if status != 503:
                break
            time.sleep(0.1)
        answers[at] = status, said

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(answers) == len(bodies)
    for at, (status, said) in answers.items():
        if at % 8 == 3:
            assert status == 424, said
        else:
            assert (status, json.loads(said)) == (200, [at])

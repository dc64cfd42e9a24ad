"""The leader is killed, or stopped and let go on, fifty times while changes are asked for.

Every history of an endpoint's creations, updates, deletions and reads must be one that a single
server could have given: then no operation was lost, and none was done twice. `LEADER_SEED` repeats
a run, `LEADER_FAULTS` says how many.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.control.linearizable import UNKNOWN, Done, is_linearizable

PROGRAM = Path(__file__).with_name("leader_process.py")
FAULTS = int(os.environ.get("LEADER_FAULTS", "50"))
CLIENTS = 4
DEADLINE_S = 60.0


class Replica:
    """One server's process."""

    def __init__(self, url: str, folder: Path, number: int) -> None:
        self.path = str(folder / f"{number}.sock")
        self.stopped = False
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, str(folder / str(number)), self.path],
            stderr=(folder / f"{number}.log").open("wb"),
        )

    def call(self, call: str, name: str) -> tuple[str, int]:
        """Its answer; raises OSError where it can't be asked at all."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.path)
            try:
                asked.sendall(json.dumps([call, name]).encode() + b"\n")
                line = asked.makefile().readline()
            except OSError:
                line = ""
        if not line:
            return UNKNOWN, 0
        outcome, generation = json.loads(line)
        return outcome, generation


class LeaderSite:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url, self.folder = url, folder
        self.rng = random.Random(seed)
        self.started = 0
        self.replicas = [self.start() for _ in range(3)]
        self.history: dict[str, list[Done]] = defaultdict(list)
        self.asked = 0
        self.done = threading.Event()
        self.lock = threading.Lock()

    def start(self) -> Replica:
        self.started += 1
        return Replica(self.url, self.folder, self.started)

    def client(self, seed: int) -> None:
        """Asks for one thing after the other, each of whoever leads."""
        rng = random.Random(seed)
        number = 0
        while not self.done.is_set():
            number += 1
            # Few at a time, so that clients meet; then others, so that histories stay short.
            name = f"e{rng.randrange(3)}-{number // 12}"
            call = rng.choice(("create", "create", "update", "update", "delete", "describe"))
            # Calls of one that is stopped are those that it had already, mostly.
            awake = [one for one in self.replicas if not one.stopped]
            self.ask(rng.choice(awake if rng.random() < 0.99 else self.replicas), call, name)

    def ask(self, replica: Replica, call: str, name: str) -> bool:
        """Writes down what came of it; False if that was nothing."""
        began = time.monotonic()
        try:
            outcome, generation = replica.call(call, name)
        except OSError:
            outcome = "refused"
        if outcome == "refused":
            time.sleep(0.005)
            return False
        done = Done(call, began, time.monotonic(), outcome, generation)
        with self.lock:
            self.history[name].append(done)
        return outcome != UNKNOWN

    def wait_leader(self) -> Replica:
        """Until somebody who is not stopped has carried out a change."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for replica in self.replicas:
                self.asked += 1
                if not replica.stopped and self.ask(replica, "create", f"asked-{self.asked}"):
                    return replica
        raise AssertionError("nobody leads")

    def fault(self) -> str:
        leader = self.wait_leader()
        time.sleep(self.rng.uniform(0.0, 0.4))  # where the fault falls; right wherever it does
        if self.rng.random() < 0.5:
            leader.process.kill()
            leader.process.wait()
            self.replicas[self.replicas.index(leader)] = self.start()
            self.wait_leader()
            return "killed"
        leader.stopped = True
        leader.process.send_signal(signal.SIGSTOP)
        try:
            self.wait_leader()
        finally:
            leader.process.send_signal(signal.SIGCONT)
            leader.stopped = False
        return "stopped"


@pytest.mark.timeout(600)
def test_no_operation_is_lost_and_none_is_done_twice(postgres_url: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("LEADER_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"LEADER_SEED={seed}")
    site = LeaderSite(postgres_url, tmp_path, seed)
    clients = [
        threading.Thread(target=site.client, args=(seed * 100 + number,))
        for number in range(CLIENTS)
    ]
    try:
        for client in clients:
            client.start()
        faults = Counter(site.fault() for _ in range(FAULTS))
        site.wait_leader()
    finally:
        site.done.set()
        for replica in site.replicas:
            replica.process.kill()
            replica.process.wait()
        for client in clients:
            client.join()
    outcomes = Counter(done.outcome for story in site.history.values() for done in story)
    print(f"{dict(faults)}; {len(site.history)} endpoints, {dict(outcomes)}")
    for name, story in site.history.items():
        assert is_linearizable(story), (name, sorted(story, key=lambda done: done.began))
    assert outcomes["ok"] > FAULTS

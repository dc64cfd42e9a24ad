"""Ten times more load than an endpoint can carry: it answers what it can, and refuses at once."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.open_loop import open_loop
from tests.kit.gate import Gate
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: Sleeping stands for a busy accelerator: the two cores stay free for the servers under test.
#: Each call tells when it began and when it ended.
SLOW = """
import socket
import time

def model_fn(model_dir):
    told = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    told.connect(("127.0.0.1", {port}))
    return told

def transform_fn(model, body, content_type, accept):
    begun = time.monotonic()
    time.sleep(0.050)
    model.send(f"{begun} {time.monotonic()}".encode())
    return body, content_type
"""
CAPACITY_RPS = 1 / 0.050
BATCHING = """
schema: 1
runtime: python
batching: {rows_max: 1, queue_rows_max: 8}
"""
#: Requests that such a copy has at once: in the model's hands, and behind it.
ROOM = 1 + 8


@pytest.fixture
def told() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.setblocking(False)
        yield made


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate() as made:
        yield made


def test_at_ten_times_capacity_what_fits_is_answered_and_the_rest_refused_at_once(
    empty_server: Server, gate: Gate, tmp_path: Path
) -> None:
    """Ten times what a copy can hold, then ten for each place that gets free.

    Refusals come while the model stands still, so nothing that it does is waited for. Nine of ten
    come within 50 ms, the project's promise, or as soon as any answer comes on this machine.
    """
    empty_server.deploy("slow", python_model(tmp_path / "slow", gate.model, model_yaml=BATCHING))

    def ask(number: int) -> tuple[int, bytes]:
        return empty_server.post("/endpoints/slow/invocations", b"[%d]" % number)

    with ThreadPoolExecutor(10 * ROOM) as callers:
        gate.shut()
        asked = {number: callers.submit(ask, number) for number in range(10 * ROOM)}
        taken = all_but_the_refused(asked, ROOM)
        for more in range(100, 180, 10):
            wait_until(lambda: gate.waiting, "one in the model's hands", 30)
            gate.let_one()
            wait_until(lambda: gate.waiting, "the next one in its hands", 30)
            asked = {number: callers.submit(ask, number) for number in range(more, more + 10)}
            taken |= all_but_the_refused(asked, 1)
        assert sum(each.done() for each in taken.values()) == 8
        refused_s, alive_s = [], []
        for number in range(200, 300):
            begun = time.perf_counter()
            assert ask(number)[0] == 503
            refused_s.append(time.perf_counter() - begun)
            assert empty_server.ask("/v2/health/live")[0] == 200
            alive_s.append(time.perf_counter() - begun - refused_s[-1])
        assert sorted(refused_s)[89] < 0.050 + 3 * sorted(alive_s)[89]
        gate.open()
        answers = {number: each.result(60) for number, each in taken.items()}
    assert answers == {number: (200, b"[%d]" % number) for number in answers}


def all_but_the_refused(
    asked: dict[int, Future[tuple[int, bytes]]], room: int
) -> dict[int, Future[tuple[int, bytes]]]:
    """Those that are held, once all others are refused."""
    wait_until(
        lambda: sum(each.done() for each in asked.values()) >= len(asked) - room,
        f"answers to all but {room}",
        60,
    )
    held = {number: each for number, each in asked.items() if not each.done()}
    assert len(held) == room
    refused = [each.result()[0] for number, each in asked.items() if number not in held]
    assert set(refused) == {503}
    return held


def test_at_ten_times_capacity_goodput_holds(
    empty_server: Server, told: socket.socket, tmp_path: Path
) -> None:
    """At least 90 % of the maximum, the project's promise; every request is answered or refused.
    The maximum is what as many callers get as there is room for. Where other programs take the
    processor for a while, one flood may have less, but no flood collapses.

    Goodput is the share of its time that the model works on requests that are answered, by the
    model's own clock: how fast this machine is, and what else it does, is not in it.
    """
    code = SLOW.replace("{port}", str(told.getsockname()[1]))
    empty_server.deploy("slow", python_model(tmp_path / "slow", code, model_yaml=BATCHING))
    path = "/endpoints/slow/invocations"
    with Load(empty_server.port, path, workers=ROOM) as load:
        wait_until(lambda: load.answered > 50 + ROOM, "answers to callers", 60)
    assert load.statuses == {200: load.answered}
    most = calls_told(told)
    assert len(most) == load.answered
    shares = []
    for seed in range(1, 4):
        flood = open_loop(
            empty_server.url + path, ["[1.0]"],
            rate=10 * CAPACITY_RPS, seconds=3, connections=64, seed=seed,
        )  # fmt: skip
        print(f"most {busy_share(most):.3f} of its time, flood {flood}")
        assert flood.failed == 0
        assert flood.answered + flood.refused == flood.sent
        assert flood.refused > flood.answered
        calls = calls_told(told)
        assert len(calls) == flood.answered
        # Those behind the last moment of the flood are answered after it.
        shares.append(busy_share(calls[:-ROOM]) / busy_share(most))
    assert max(shares) >= 0.9, shares
    assert min(shares) >= 0.5, shares


def calls_told(told: socket.socket) -> list[tuple[float, float]]:
    """When each of the model's calls since the last time began and ended (s, monotonic)."""
    calls = []
    with contextlib.suppress(BlockingIOError):
        while True:
            begun, ended = told.recv(100).split()
            calls.append((float(begun), float(ended)))
    return calls


def busy_share(calls: list[tuple[float, float]]) -> float:
    """Of the time from the first call's begin to the last one's end, that in which one ran."""
    return sum(ended - begun for begun, ended in calls) / (calls[-1][1] - calls[0][0])

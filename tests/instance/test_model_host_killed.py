"""A process that dies while it loads a target model says nothing of the model: it is loaded again,
and whoever waits for it goes on waiting. The third death in a row is the model's."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_model_host import adding, packed
from test_model_host_calls import Gated
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, instance
from tests.kit.polling import wait_until

from penstock.runtimes.workers.memory import tree_pids
from penstock.wire import frames

#: Says that it loads, and is loaded once the gate is open.
WAITS = """
import os, time
def model_fn(model_dir):
    print("loads now", flush=True)
    while not os.path.exists(os.environ["GATES"] + "/load"):
        time.sleep(0.01)
    return 1
def predict_fn(data, model):
    return data["x"]
"""

#: Is loaded at once, and then warms up until the gate is open.
WARMS_UP = """
import os, time
def model_fn(model_dir):
    return 1
def predict_fn(data, model):
    if data["x"] is None:
        print("loads now", flush=True)
        while not os.path.exists(os.environ["GATES"] + "/load"):
            time.sleep(0.01)
    return data["x"]
"""

SERVER = Path(__file__).parents[1] / "kit" / "multi_model_server.py"

Make = Callable[..., Gated]


@pytest.fixture
def hosts(tmp_path: Path) -> Make:
    """Makes the host of a test, with variables for its models."""
    prefix, gates = tmp_path / "models", tmp_path / "gates"
    prefix.mkdir()
    gates.mkdir()
    folder = model_files.code(tmp_path / "slow", WAITS, rows_max=1)
    packed(folder, prefix / "slow.tar.gz")
    adding(tmp_path, prefix / "healthy.tar.gz", 1)

    @contextmanager
    def running(**environment: str) -> Iterator[Gated]:
        with instance(tmp_path / "run", memory_bytes=4 << 30) as process:
            made = Gated(process, prefix)
            assert made.load(environment={"GATES": str(gates)} | environment).get("ok")
            yield made
            made.open_gate("load")
            made.client.close()

    return running


def patient(host: Gated, model: str, x: int = 1) -> int:
    """A request with more time than a busy machine takes for a few loads."""
    host.client.socket.settimeout(100.0)
    return host.send(model, x, deadline_ms=100_000)


def kill_at_load(host: Gated, number: int) -> None:
    """The process that loads the slow model, once it has begun for the `number`th time."""
    wait_until(
        lambda: host.running.log.read_text().count("loads now") >= number, f"load {number} begins"
    )
    tree = tree_pids(host.running.process.pid)
    os.kill(next(pid for pid in tree if _holds_models(pid)), signal.SIGKILL)


def _holds_models(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"guard.py" not in b" ".join(words) and any(
        word.startswith(b"penstock.runtimes.python") or word == os.fsencode(SERVER)
        for word in words
    )


SHARED = pytest.mark.parametrize("shared", ["true", "false"], ids=["shared-worker", "own-worker"])


@SHARED
def test_whoever_waits_is_answered_by_the_load_after_the_deaths(hosts: Make, shared: str) -> None:
    with hosts(PENSTOCK_SHARED_WORKER=shared) as host:
        waiting = [patient(host, "slow.tar.gz", x) for x in range(10)]
        kill_at_load(host, 1)
        kill_at_load(host, 2)
        host.open_gate("load")
        assert [FrameAnswer(host.client.answer(ident)).json for ident in waiting] == list(range(10))


@SHARED
def test_the_third_death_in_a_row_is_the_models_and_names_it(hosts: Make, shared: str) -> None:
    with hosts(PENSTOCK_SHARED_WORKER=shared) as host:
        host.ask("healthy.tar.gz")
        host.models(unload="healthy.tar.gz", wait_s=30.0)
        waiting = patient(host, "slow.tar.gz")
        for number in (1, 2, 3):
            kill_at_load(host, number)
        error = FrameAnswer(host.client.answer(waiting)).error
        assert (error["code"], error["status"]) == ("target-model-quarantined", 424), error
        assert "slow.tar.gz" in error["message"]
        assert "healthy.tar.gz" not in error["message"]
        assert "SIGKILL" in error["message"]
        assert host.ask("healthy.tar.gz", 1).json["sum"] == 2


def test_an_explicit_load_is_answered_when_it_has_come_about(hosts: Make) -> None:
    with hosts() as host:
        asked = host.begin(load="slow.tar.gz", wait_s=30.0)
        kill_at_load(host, 1)
        host.open_gate("load")
        told = host.told(asked)
        assert told.get("ok"), told


def test_a_neighbour_in_the_worker_that_is_killed_is_not_refused(hosts: Make) -> None:
    with hosts() as host:
        assert host.ask("healthy.tar.gz", 1).kind == frames.REPLY
        waiting = patient(host, "slow.tar.gz", 5)
        kill_at_load(host, 1)

        def answers() -> bool:
            answer = host.ask("healthy.tar.gz", 1)
            assert answer.kind in (frames.REPLY, frames.RETURNED), answer.error
            return answer.kind == frames.REPLY  # what is given back the gateway sends again

        wait_until(answers, "the neighbour is back")
        host.open_gate("load")
        assert FrameAnswer(host.client.answer(waiting)).json == 5


def test_a_death_in_warm_up_is_one_while_loading(hosts: Make, tmp_path: Path) -> None:
    folder = model_files.code(
        tmp_path / "warms", WARMS_UP, rows_max=1, warmup=[{"body": '{"x": null}'}]
    )
    with hosts() as host:
        packed(folder, host.prefix / "warms.tar.gz")
        waiting = patient(host, "warms.tar.gz", 5)
        kill_at_load(host, 1)
        kill_at_load(host, 2)
        host.open_gate("load")
        assert FrameAnswer(host.client.answer(waiting)).json == 5


@contextmanager
def foreign(tmp_path: Path, *slow: str) -> Iterator[Gated]:
    """A server of `healthy`, and of these, which are loaded once the gate is open."""
    prefix, gates = tmp_path / "models", tmp_path / "gates"
    gates.mkdir()
    for name in ("healthy", *slow):
        (prefix / name).mkdir(parents=True)
        weights = "good" if name == "healthy" else f"!gate {gates}/load"
        (prefix / name / "weights").write_text(weights)
    commands = {"of-ours": [sys.executable, str(SERVER), "{port}"]}
    with instance(
        tmp_path / "run", memory_bytes=4 << 30, artifact={"image_commands": commands}
    ) as process:
        host = Gated(process, prefix)
        source = {"uri": f"{prefix.as_uri()}/", "image": "of-ours"}
        assert host.load(source=source).get("ok")
        yield host
        host.client.close()


def test_a_foreign_server_that_dies_while_it_loads_a_model_loads_it_again(tmp_path: Path) -> None:
    with foreign(tmp_path, "slow") as host:
        assert host.ask("healthy").json["weights"] == "good"
        waiting = patient(host, "slow")
        kill_at_load(host, 1)
        kill_at_load(host, 2)
        host.open_gate("load")
        assert FrameAnswer(host.client.answer(waiting)).json["target"] == "slow"
        (tmp_path / "gates" / "load").unlink()
        host.models(unload="slow", wait_s=30.0)
        waiting = patient(host, "slow")
        for number in (4, 5, 6):  # the third load was answered
            kill_at_load(host, number)
        error = FrameAnswer(host.client.answer(waiting)).error
        assert error["code"] == "target-model-quarantined", error
        assert "e:slow" in error["message"]
        wait_until(lambda: host.ask("healthy").kind == frames.REPLY, "the server is back")


def test_a_foreign_server_that_died_too_often_is_started_anew_for_whoever_waits(
    tmp_path: Path,
) -> None:
    with foreign(tmp_path, "first", "second") as host:
        patient(host, "first")
        for number in (1, 2, 3):
            kill_at_load(host, number)  # and it is left alone
        waiting = patient(host, "second")
        kill_at_load(host, 4)
        kill_at_load(host, 5)  # and the server is not started again by itself
        host.open_gate("load")
        assert FrameAnswer(host.client.answer(waiting)).json["target"] == "second"

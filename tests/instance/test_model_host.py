"""A host of target models, as a real instance: each model is loaded when it is called, once for all
who wait, and ended on its own; nobody's request is lost by it."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.wire import frames

HOST = 7

ADDS = """
import os
def model_fn(model_dir):
    return {number}
def predict_fn(data, model):
    return {{"sum": data["x"] + model, "pid": os.getpid()}}
"""

ADDS_WEIGHTS = """
import os
def model_fn(model_dir):
    with open(os.path.join(model_dir, "number")) as file:
        return int(file.read()) + {number}
def predict_fn(data, model):
    return data["x"] + model
"""

SLOW_TO_LOAD = """
import os, time
def model_fn(model_dir):
    time.sleep(0.5)
    return 1
def predict_fn(data, model):
    return {"x": data["x"], "pid": os.getpid()}
"""

BROKEN = """
def model_fn(model_dir):
    raise ValueError("no!")
def predict_fn(data, model):
    return data
"""


def packed(folder: Path, archive: Path) -> Path:
    """The folder as model.tar.gz, put there as a whole."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, file.relative_to(folder), recursive=False)
    archive.parent.mkdir(parents=True, exist_ok=True)
    made = archive.with_name(f".{archive.name}.part")
    made.write_bytes(held.getvalue())
    made.replace(archive)
    return archive


def adding(scratch: Path, archive: Path, number: int) -> Path:
    folder = model_files.code(scratch / archive.name, ADDS.format(number=number), rows_max=1)
    return packed(folder, archive)


def slow_to_load(scratch: Path, archive: Path) -> Path:
    folder = model_files.code(scratch / archive.name, SLOW_TO_LOAD, rows_max=1)
    return packed(folder, archive)


class ModelHostClient:
    """An instance that hosts the models below `prefix`."""

    def __init__(self, running: InstanceProcess, prefix: Path) -> None:
        self.running = running
        self.prefix = prefix
        self.client = running.client()

    def load(self, **more: Any) -> dict[str, Any]:
        settings = {"multi_model": {"keeps_models": True}} | more
        return self.client.load(HOST, f"{self.prefix.as_uri()}/", **settings)

    def ask(self, model: str, x: int = 1) -> FrameAnswer:
        return FrameAnswer(self.client.answer(self.send(model, x)))

    def send(self, model: str, x: int = 1, **more: Any) -> int:
        body = json.dumps({"x": x}).encode()
        return self.client.send(
            HOST, body, content_type="application/json", target_model=model, **more
        )

    def models(self, **call: Any) -> dict[str, Any]:
        return self.client.control(op="models", copy=HOST, **call)

    def status(self) -> dict[str, Any]:
        [status] = self.client.control(op="status")["copies"]
        return status

    def explained(self, model: str) -> dict[str, Any]:
        return self.client.control(op="explain", copy=HOST, model=model)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ModelHostClient]:
    prefix = tmp_path / "models"
    prefix.mkdir()
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        made = ModelHostClient(running, prefix)
        loaded = made.load()
        assert loaded.get("ok"), loaded
        yield made
        made.client.close()


def test_a_model_is_loaded_by_its_first_call_and_answers_as_if_it_were_alone(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "ten.tar.gz", 10)
    model_files.affine(host.prefix / "team" / "affine")
    assert host.status()["models_loaded"] == 0

    assert host.ask("ten.tar.gz", 5).json["sum"] == 15
    tensors = host.client.invoke(
        HOST, b"[[1, 0, 0, 2]]", content_type="application/json", target_model="team/affine"
    )
    assert tensors.json == {"predictions": [[9.0, 10.5, 12.0]]}
    assert host.status()["models_loaded"] == 2
    told = [host.client.event("models-changed") for _ in range(3)]
    assert [one["loaded"] for one in told] == [[], ["ten.tar.gz"], ["team/affine"]]


def test_all_who_call_a_model_that_is_on_its_way_wait_for_one_load(
    host: ModelHostClient, tmp_path: Path
) -> None:
    slow_to_load(tmp_path, host.prefix / "slow.tar.gz")
    idents = [host.send("slow.tar.gz", x) for x in range(20)]
    answers = [FrameAnswer(host.client.answer(ident)).json for ident in idents]
    assert [answer["x"] for answer in answers] == list(range(20))
    assert len({answer["pid"] for answer in answers}) == 1
    assert host.explained("slow.tar.gz")["misses"] == 20


def test_a_model_that_is_not_there_is_refused_and_found_once_it_is(
    host: ModelHostClient, tmp_path: Path
) -> None:
    missing = host.ask("late.tar.gz")
    assert missing.error["code"] == "target-model-not-found"
    adding(tmp_path, host.prefix / "late.tar.gz", 3)
    assert host.ask("late.tar.gz", 4).json["sum"] == 7


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "a//b", "a/"])
def test_a_name_that_leads_out_of_the_prefix_is_refused_and_nothing_is_looked_for(
    host: ModelHostClient, name: str
) -> None:
    assert host.ask(name).error["code"] == "target-model-invalid"


def test_a_request_without_a_model_is_refused(host: ModelHostClient) -> None:
    answer = host.client.invoke(HOST, b"{}", content_type="application/json")
    assert answer.error["code"] == "target-model-required"


def test_an_artifact_that_is_replaced_answers_with_its_new_content(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path / "old", host.prefix / "m.tar.gz", 1)
    assert host.ask("m.tar.gz", 0).json["sum"] == 1
    adding(tmp_path / "new", host.prefix / "m.tar.gz", 2)

    def answers_anew() -> bool:
        return host.ask("m.tar.gz", 0).json["sum"] == 2

    wait_until(answers_anew, "the new content answers", seconds=30)
    assert host.status()["models_loaded"] == 1


@pytest.mark.parametrize("replaced", ["weights", "code"])
def test_weights_and_code_that_lie_apart_are_each_noticed_when_they_are_replaced(
    tmp_path: Path, replaced: str
) -> None:
    """As the SageMaker SDK's MultiDataModel sends it: its models share one archive of code."""
    prefix, codes = tmp_path / "models", tmp_path / "codes"

    def put(what: str, number: int) -> None:
        made = tmp_path / what
        made.mkdir(exist_ok=True)
        if what == "weights":
            (made / "number").write_text(str(number))
            packed(made, prefix / "m.tar.gz")
        else:
            (made / "serve.py").write_text(ADDS_WEIGHTS.format(number=number))
            packed(made, codes / "code.tar.gz")

    put("weights", 1)
    put("code", 10)
    environment = {
        "SAGEMAKER_SUBMIT_DIRECTORY": "s3://codes/code.tar.gz", "SAGEMAKER_PROGRAM": "serve.py",
    }  # fmt: skip
    settings = {"s3_local": {"codes": str(codes)}}
    with instance(tmp_path / "run", memory_bytes=4 << 30, artifact=settings) as running:
        host = ModelHostClient(running, prefix)
        assert host.load(environment=environment).get("ok")
        assert host.ask("m.tar.gz", 0).json == 11
        put(replaced, 5)
        new = 15 if replaced == "weights" else 6
        wait_until(lambda: host.ask("m.tar.gz", 0).json == new, "the new content", seconds=30)
        host.client.close()


def test_a_model_that_can_not_be_loaded_fails_alone_and_is_told_why(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "good.tar.gz", 1)
    broken = model_files.code(tmp_path / "broken", BROKEN)
    packed(broken, host.prefix / "broken.tar.gz")
    answer = host.ask("broken.tar.gz")
    assert "no!" in answer.error["message"]
    assert host.ask("good.tar.gz", 1).json["sum"] == 2
    assert "no!" in json.dumps(host.explained("broken.tar.gz"))


def test_a_model_is_unloaded_on_demand_and_comes_back_with_its_next_call(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    first = host.ask("m.tar.gz", 0).json
    assert host.models(unload="m.tar.gz").get("ok")
    wait_until(lambda: host.status()["models_loaded"] == 0, "the model is unloaded")
    wait_until(lambda: not _lives(first["pid"]), "its worker has ended")
    again = host.ask("m.tar.gz", 0).json
    assert again["sum"] == 1
    assert again["pid"] != first["pid"]


def test_without_a_cache_a_model_is_ended_when_it_has_answered(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    assert host.client.control(op="unload", copy=HOST)["found"]
    assert host.load(multi_model={"keeps_models": False}).get("ok")
    first = host.ask("m.tar.gz", 0).json
    wait_until(lambda: host.status()["models_loaded"] == 0, "the model is unloaded")
    assert host.ask("m.tar.gz", 0).json["pid"] != first["pid"]


def test_a_wish_loads_a_model_that_nobody_has_called(host: ModelHostClient, tmp_path: Path) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    assert host.models(load="m.tar.gz").get("ok")
    wait_until(lambda: host.status()["models_loaded"] == 1, "the model is loaded")
    assert host.explained("m.tar.gz")["misses"] == 0


def test_what_waits_for_a_load_may_be_cancelled(host: ModelHostClient, tmp_path: Path) -> None:
    slow_to_load(tmp_path, host.prefix / "slow.tar.gz")
    cancelled, kept = host.send("slow.tar.gz", 1), host.send("slow.tar.gz", 2)
    host.client.socket.sendall(frames.encode(frames.CANCEL, cancelled))
    assert FrameAnswer(host.client.answer(kept)).json["x"] == 2
    assert cancelled not in host.client.answers
    assert host.status()["unanswered"] == 0


def test_what_waits_for_a_load_is_given_back_when_the_host_goes(
    host: ModelHostClient, tmp_path: Path
) -> None:
    slow_to_load(tmp_path, host.prefix / "slow.tar.gz")
    waiting = host.send("slow.tar.gz", 1)
    wait_until(lambda: host.status()["unanswered"] == 1, "it waits")
    assert host.client.control(op="unload", copy=HOST)["found"]
    answer = FrameAnswer(host.client.answer(waiting))
    assert (answer.kind, answer.reason) == (frames.RETURNED, "draining")


def test_models_of_a_worker_that_is_killed_come_back_in_another(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "a.tar.gz", 1)
    adding(tmp_path, host.prefix / "b.tar.gz", 2)
    killed = host.ask("a.tar.gz", 0).json["pid"]
    assert host.ask("b.tar.gz", 0).json["pid"] == killed, "they share it"
    os.kill(killed, signal.SIGKILL)

    def comes_back(model: str) -> bool:
        answer = host.ask(model, 0)
        return answer.kind == frames.REPLY and answer.json["pid"] != killed

    wait_until(lambda: comes_back("a.tar.gz"), "the model is back", seconds=30)
    wait_until(lambda: comes_back("b.tar.gz"), "its neighbour is back", seconds=30)


def test_whoever_connects_later_is_told_what_is_loaded(
    host: ModelHostClient, tmp_path: Path
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    host.ask("m.tar.gz")
    late = host.running.client()
    told = late.event("models-changed")
    assert (told["copy"], told["loaded"], told["gone"]) == (HOST, ["m.tar.gz"], [])
    assert told["free_bytes"] > 0
    late.close()


def test_a_prefix_that_is_not_there_fails_the_host(tmp_path: Path) -> None:
    with instance(tmp_path / "run") as running:
        host = ModelHostClient(running, tmp_path / "nowhere")
        call = {"op": "prepare", "copy": HOST, "endpoint": "e", "variant": "v"}
        source = {"uri": f"{host.prefix.as_uri()}/"}
        answer = host.client.control(**call, source=source, multi_model={"keeps_models": True})
        assert "nowhere" in answer["error"]["message"]
        host.client.close()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_models_are_gone_with_the_host(host: ModelHostClient, tmp_path: Path) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    pid = host.ask("m.tar.gz").json["pid"]
    assert host.client.control(op="unload", copy=HOST)["found"]
    wait_until(lambda: not _lives(pid), "its worker has ended")
    shutil.rmtree(host.prefix)

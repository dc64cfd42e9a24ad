"""A Triton repository whose models are target models of one host, and call one another."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_model_host import HOST, ModelHostClient
from tests.kit.instances import FrameAnswer, InstanceProcess, instance
from tests.kit.polling import wait_until
from tests.kit.triton_repositories import ANSWER, archived, large, repository

from penstock.wire import frames


class RepositoryClient(ModelHostClient):
    def infer(self, model: str, x: Any = ((1.0, 0.0, 0.0, 2.0),), what: str = "") -> FrameAnswer:
        array = np.array(x, np.float32)
        tensors = [
            {"name": "x", "datatype": "FP32", "shape": list(array.shape),
             "data": array.reshape(-1).tolist()}
        ]  # fmt: skip
        if what:
            told = {"name": "what", "datatype": "BYTES", "shape": [1, 1], "data": [what]}
            tensors.append(told)
        body = json.dumps({"inputs": tensors}).encode()
        return FrameAnswer(self.client.answer(self.send_body(model, body)))

    def send_body(self, model: str, body: bytes) -> int:
        return self.client.send(HOST, body, content_type="application/json", target_model=model)

    def asked(self, what: str, x: Any = ((1.0, 0.0, 0.0, 2.0),)) -> tuple[list[float], str]:
        """(y, said) of the model that asks others."""
        outputs = {
            each["name"]: each["data"] for each in self.infer("asker", x, what).json["outputs"]
        }
        return outputs["y"], outputs["said"][0]

    def states(self) -> dict[str, str]:
        rows = self.models(list={"after": "", "limit": 100})["models"]
        return {row["model"]: row["state"] for row in rows}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("run"), memory_bytes=4 << 30) as process:
        yield process


@pytest.fixture(scope="module")
def host(
    running: InstanceProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RepositoryClient]:
    prefix = repository(tmp_path_factory.mktemp("prefix"))
    made = RepositoryClient(running, prefix)
    loaded = made.load()
    assert loaded.get("ok"), loaded
    yield made
    made.client.close()


def unloaded(host: RepositoryClient, *models: str) -> None:
    for model in models:
        host.models(unload=model, wait_s=30)
        assert host.states().get(model) != "loaded"


def test_an_ensemble_loads_the_models_of_its_steps(host: RepositoryClient) -> None:
    unloaded(host, "affine", "chain")
    assert host.infer("chain").json["outputs"][0]["data"] == ANSWER
    assert host.states()["affine"] == "loaded"
    unloaded(host, "affine")
    assert host.infer("chain").json["outputs"][0]["data"] == ANSWER


@pytest.mark.parametrize("called", ["affine", "chain"])
def test_a_call_loads_the_model_that_it_needs(host: RepositoryClient, called: str) -> None:
    unloaded(host, "affine", "chain")
    assert host.asked(f"call {called}")[0] == ANSWER


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("call nobody", "Model 'nobody' is not ready: the repository has no such model"),
        ("call asker", "a call that would wait for itself: asker -> asker"),
        ("call back", "a call that would wait for itself: asker -> back -> asker"),
        ("call counter", "the model 'counter' is decoupled"),
        ("call wrong", "model wrong: config.pbtxt"),
        ("call round", "round/config.pbtxt: the ensembles round are steps of one another"),
        ("call short", "short/config.pbtxt, step 0 (nobody): the repository has no model 'nobody'"),
    ],
)
def test_what_goes_wrong_is_the_callers_answer_with_the_models_own_names(
    host: RepositoryClient, what: str, words: str
) -> None:
    error = host.infer("asker", what=what).error
    assert words in error["message"], error
    for place in ("/cache/", "artifacts", str(host.prefix)):
        assert place not in error["message"], error
    assert host.asked("call affine")[0] == ANSWER


def test_a_model_reads_the_responses_of_any_model_one_by_one(host: RepositoryClient) -> None:
    counted = host.asked("stream counter", [[100, 0, 0, 0]])[1].split()
    assert list(map(float, counted)) == [*map(float, range(100)), 0.0]  # the last one is empty
    assert float(host.asked("stream affine")[1]) == pytest.approx(sum(ANSWER))
    assert "no such model" in host.asked("stream nobody")[1]


@pytest.mark.parametrize("called", ["counter", "relay"])
def test_a_stream_whose_process_dies_ends_with_an_error(
    host: RepositoryClient, called: str
) -> None:
    said = host.asked(f"stream {called}", [[10, 3, 0, 0]])[1]
    assert said.startswith("0.0 1.0 2.0 error: "), said
    counted = host.asked(f"stream {called}", [[2, 0, 0, 0]])[1].split()
    assert list(map(float, counted)) == [0.0, 1.0, 0.0]


def test_a_decoupled_model_calls_others_after_execute(host: RepositoryClient) -> None:
    said = host.asked("stream relay", [[50, 0, 0, 0]])[1].split()
    assert list(map(float, said)) == [*map(float, range(50)), 0.0]


def test_a_stream_that_is_read_no_further_ends_its_model(host: RepositoryClient) -> None:
    """The model waits for its reader, and looks whether anybody wants more."""
    before = sent(host)
    assert float(host.asked("first counter", [[1_000_000, 0, 0, 0]])[1]) == 0.0
    assert host.asked("stream counter", [[2, 0, 0, 0]])[1] == "0.0 1.0 0"
    assert sent(host) - before < 10_000


def sent(host: RepositoryClient) -> float:
    return sum(each["value"] for each in metrics(host, "sent_total"))


def metrics(host: RepositoryClient, name: str) -> list[dict[str, Any]]:
    return [each for each in host.status()["code_metrics"] if each["name"] == name]


def test_a_model_loads_and_unloads_others_of_its_repository(host: RepositoryClient) -> None:
    unloaded(host, "affine")
    assert host.asked("ready affine")[1] == "False"
    assert host.asked("load affine")[1] == ""
    assert (host.asked("ready affine")[1], host.states()["affine"]) == ("True", "loaded")
    assert host.asked("unload affine")[1] == ""
    wait_until(lambda: host.asked("ready affine")[1] == "False", "it is unloaded")
    assert "no such model" in host.asked("load nobody")[1]
    assert "a configuration or files are not taken" in host.asked("config affine")[1]
    assert host.asked("ready nobody")[1] == "False"


def test_what_initialize_wants_is_loaded_after_it(host: RepositoryClient) -> None:
    unloaded(host, "affine", "wants")
    assert host.infer("wants").json["outputs"][0]["data"] == [1.0, 0.0, 0.0]
    wait_until(lambda: host.states()["affine"] == "loaded", "what it wants is loaded")


def test_the_death_of_a_called_process_is_an_error_and_both_go_on(host: RepositoryClient) -> None:
    assert host.asked("call mortal")[0] == [1.0, 0.0, 0.0]
    error = host.infer("asker", [[-1, 0, 0, 0]], "call mortal").error
    assert "the model 'mortal'" in error["message"]
    assert host.asked("call mortal")[0] == [1.0, 0.0, 0.0]


def test_a_call_outlives_the_kill_of_every_process(host: RepositoryClient) -> None:
    assert host.asked("call mortal")[0] == [1.0, 0.0, 0.0]
    for worker in host.status()["workers"]:
        os.kill(worker["pid"], signal.SIGKILL)

    def answers() -> bool:
        answer = host.infer("asker", what="call mortal")
        return answer.kind == frames.REPLY and answer.json["outputs"][0]["data"] == [1.0, 0.0, 0.0]

    wait_until(answers, "caller and called are there again")


def test_models_that_share_a_process_have_metrics_of_their_own(host: RepositoryClient) -> None:
    host.infer("mortal")

    def told() -> bool:
        return any(each["target_model"] == "mortal" for each in metrics(host, "answered_total"))

    wait_until(told, "the metric is told")


def test_an_archive_calls_what_lies_beside_it(running: InstanceProcess, tmp_path: Path) -> None:
    """As AWS's multi-model endpoints have them: `TargetModel` is the archive's name."""
    archived(repository(tmp_path / "made"), tmp_path / "prefix" / "team")
    client = RepositoryClient(running, tmp_path / "prefix")
    number = 8
    loaded = client.client.load(
        number, f"{client.prefix.as_uri()}/", multi_model={"keeps_models": True}
    )
    assert loaded.get("ok"), loaded
    array = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 2]}
    what = {"name": "what", "datatype": "BYTES", "shape": [1, 1], "data": ["call chain"]}
    answer = client.client.invoke(
        number, json.dumps({"inputs": [array, what]}).encode(), content_type="application/json",
        target_model="team/asker.tar.gz",
    )  # fmt: skip
    assert answer.json["outputs"][0]["data"] == ANSWER
    client.client.close()


def test_a_call_that_needs_its_callers_memory_is_refused_at_once(tmp_path: Path) -> None:
    """Each takes 240 MiB, and more: one fits into the budget of 432 MiB, and two never do."""
    large(tmp_path / "models")
    with instance(tmp_path / "run", memory_bytes=600 << 20) as running:
        client = RepositoryClient(running, tmp_path / "models")
        assert client.load().get("ok")
        assert client.infer("called").json["outputs"][0]["data"] == [1.0, 0.0, 0.0]
        for _ in range(2):
            error = client.infer("caller").error
            assert error["original_status"] == 503, error
            assert "what waits for calls keeps its memory: caller" in error["message"]
        assert client.infer("called").json["outputs"][0]["data"] == [1.0, 0.0, 0.0]
        client.client.close()

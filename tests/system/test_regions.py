"""Two regions behind an orchestrator: what clients see when one of them is gone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.regions import Orchestrated, regions_up
from tests.kit.servers import EXAMPLES, Server, penstock

pytestmark = pytest.mark.system

ECHO = EXAMPLES / "echo" / "python"
PATH = "/endpoints/echo/invocations"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestrated]:
    folder = tmp_path_factory.mktemp("regions")
    with regions_up(folder, "eu", "us") as servers:
        for server in servers.values():
            server.deploy("echo", ECHO)
        served = Orchestrated(folder, servers).start()
        try:
            yield served
        finally:
            assert served.stop() == 0, served.log()


@pytest.fixture
def orchestrated(site: Orchestrated) -> Orchestrated:
    """Before two regions that serve, whatever became of them in another test."""
    for server in site.regions.values():
        assert server.process is not None
        if server.process.poll() is not None:
            server.start()
        server.go_on()
        wait_until(
            lambda one=server: [copy["state"] for copy in one.copies("echo")] == ["ready"],
            "a copy in each region",
            90,
        )
    site.wait_serving("echo", "eu", "us")
    return site


@pytest.fixture
def regions(orchestrated: Orchestrated) -> dict[str, Server]:
    return orchestrated.regions


def test_a_region_that_is_killed_under_load_costs_no_request(
    orchestrated: Orchestrated, regions: dict[str, Server]
) -> None:
    """kill -9: connections are reset, new ones refused. What was there is answered elsewhere."""
    with Load(orchestrated.port, PATH, workers=8) as load:
        wait_until(lambda: load.answered > 200, "load", 60)
        regions["eu"].kill()
        at = load.answered
        wait_until(lambda: load.answered > at + 400, "load on what is left", 60)
    assert (load.broken, load.wrong, set(load.statuses)) == (0, [], {200}), load.errors
    orchestrated.wait_serving("echo", "us")


def test_a_region_that_falls_silent_is_left_by_what_waits_for_it(
    orchestrated: Orchestrated, regions: dict[str, Server]
) -> None:
    """SIGSTOP: nothing is refused and nothing is answered. It is used again once it speaks."""
    with Load(orchestrated.port, PATH, workers=8) as load:
        wait_until(lambda: load.answered > 200, "load", 60)
        regions["us"].pause()
        at = load.answered
        wait_until(lambda: load.answered > at + 400, "load on what is left", 60)
    assert (load.broken, load.wrong, set(load.statuses)) == (0, [], {200}), load.errors
    orchestrated.wait_serving("echo", "eu")
    regions["us"].go_on()
    orchestrated.wait_serving("echo", "eu", "us")


def test_a_request_that_left_a_lost_region_is_explained_with_what_its_region_did(
    orchestrated: Orchestrated, regions: dict[str, Server]
) -> None:
    """And people see and set shares from the command line."""

    def told(*words: str) -> Any:
        return json.loads(penstock(*words, "--json", server=orchestrated).stdout)

    shares = told("traffic", "set", "eu=1", "us=0", "--endpoint", "echo")["regions"]
    assert [one["ratio"] for one in shares] == [1.0, 0.0]
    _, _, headers = orchestrated.ask(PATH, b"[1.0]")
    assert headers["x-penstock-region"] == "eu"
    request_id = headers["x-amzn-RequestId"]
    story = wait_until(lambda: told("explain", request_id), "the request is explained", 30)
    assert [one["region"] for one in story["attempts"]] == ["eu"]
    assert story["in_region"]["endpoint"] == "echo"
    assert story["in_region"]["route"]["reason"] == "only-copy"
    shown = told("traffic", "show", "echo")
    assert {one["region"] for one in shown["regions"]} == {"eu", "us"}
    assert shown["traffic"][0]["mode"] == "manual"
    assert told("traffic", "auto", "--endpoint", "echo")["mode"] == "automatic"


def test_a_stream_whose_region_is_killed_goes_on_from_another_as_one_answer(
    tmp_path: Path,
) -> None:
    """Each token comes once; the client sees one id and one end."""
    tokens = 150
    artifact = tmp_path / "paced"
    artifact.mkdir()
    pace = {"step_s": 0.02, "sequence_s": 0.0, "prefill_token_s": 0.0}
    described = {"schema": 1, "runtime": "paced", "engine": {"sequences_max": 4, "pace": pace}}
    (artifact / "model.yaml").write_text(yaml.safe_dump(described))
    body = {"model": "chat", "prompt": "Say something.", "max_tokens": tokens, "stream": True}
    body |= {"ignore_eos": True, "stream_options": {"include_usage": True}}
    with regions_up(tmp_path, "eu", "us") as servers:
        for server in servers.values():
            server.deploy("chat", artifact)
        served = Orchestrated(tmp_path, servers, mode="manual").start()
        try:
            served.wait_serving("chat", "eu", "us")
            request = urllib.request.Request(
                f"{served.url}/v1/completions",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=90) as answer:
                lines = [answer.readline() for _ in range(20)]
                servers[answer.headers["x-penstock-region"]].kill()
                lines += answer.readlines()
        finally:
            served.stop()
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    assert lines[-2:] == [b"data: [DONE]\n", b"\n"]
    assert len({one["id"] for one in events}) == 1
    choices = [choice for one in events for choice in one["choices"]]
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["length"]
    assert len("".join(one["text"] for one in choices)) == 4 * tokens
    assert events[-1]["usage"]["completion_tokens"] == tokens


def test_an_orchestrator_without_a_region_says_so_and_is_ready_once_one_is_there(
    tmp_path: Path,
) -> None:
    region = Server(tmp_path / "eu" / "state")
    region.state_dir.parent.mkdir(parents=True)
    served = Orchestrated(tmp_path, {"eu": region})
    try:
        served.start(word="none of the regions eu can be reached")
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.get("/ping")
        assert refused.value.code == 503
        assert "orchestrator ready" not in served.log()
        region.start()
        wait_until(lambda: "orchestrator ready" in served.log(), "the word ready", 60)
        with urllib.request.urlopen(f"{served.url}/ping", timeout=10) as answer:
            assert answer.status == 200
    finally:
        served.stop()
        if region.process is not None:
            region.kill()


def test_a_region_of_several_gateways_tells_what_all_of_them_have_in_flight(tmp_path: Path) -> None:
    """Its control process answers no requests: what it tells are the counts of the others."""
    artifact = python_model(
        tmp_path / "slow",
        """
        import time
        def predict_fn(data, model):
            time.sleep(0.2)
            return data
        def model_fn(folder):
            return None
        """,
    )
    with regions_up(tmp_path, "eu", flags=("--gateways", "2")) as servers:
        servers["eu"].deploy("slow", artifact)
        served = Orchestrated(tmp_path, servers).start()
        try:
            served.wait_serving("slow", "eu")
            rooms = set()

            def room_told() -> bool:
                (told,) = served.traffic("slow")["regions"]
                rooms.add(told["room_told"])
                return len(rooms) > 1 and load.answered > 10

            with Load(served.port, "/endpoints/slow/invocations", workers=4) as load:
                wait_until(room_told, "another room is told under load", 60)
            assert (load.broken, load.wrong, set(load.statuses)) == (0, [], {200}), load.errors
        finally:
            assert served.stop() == 0, served.log()

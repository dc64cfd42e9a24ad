"""Models that are container images: real containers by Podman, called with boto3."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError
from tests.kit.container_images import (
    ENGINE,
    containers,
    containers_of,
    engine,
    engine_says,
    image,
)
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.servers import Server, penstock, up

from penstock import guests

pytestmark = pytest.mark.system

READ_ONLY = "30"  #: EROFS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    engine()
    folder = tmp_path_factory.mktemp("containers")
    bucket = folder / "bucket"
    bucket.mkdir()
    toml = folder / "penstock.toml"
    toml.write_text(f'[control.s3_local]\nours = "{bucket}"\n')
    with up(folder, "--config", str(toml)) as server:
        yield server


def weights(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def create(server: Server, name: str, *, members: Any = None, **container: Any) -> None:
    """Model and endpoint of the image alone, unless the container has more."""
    server.client("sagemaker").create_model(
        ModelName=name, PrimaryContainer={"Image": image()} | container, **(members or {})
    )
    server.endpoint(name)


def does(server: Server, endpoint: str, what: str) -> Any:
    return server.invoke(endpoint, f"!{what}".encode())


def log_of(server: Server, endpoint: str) -> str:
    logs = server.get(f"/admin/endpoints/{endpoint}/logs?lines=1000")["logs"]
    return "\n".join(line for log in logs for line in log["lines"])


def gone(*names: str) -> None:
    wait_until(lambda: not {*names} & containers().keys(), f"no {names}", 60)


def test_the_container_of_a_shadow_variant_computes_with_what_others_leave(server: Server) -> None:
    for name in ("lit", "dark"):
        server.client("sagemaker").create_model(ModelName=name, PrimaryContainer={"Image": image()})
    shadow = {
        "VariantName": "dark", "ModelName": "dark", "InstanceType": "ml.local.small",
        "InitialInstanceCount": 1, "InitialVariantWeight": 1.0,
    }  # fmt: skip
    server.endpoint("lit", members={"ShadowProductionVariants": [shadow]})
    wait_until(lambda: len(server.ready_copies("lit")) == 2, "the shadow's copy", 90)
    names = containers_of("lit")
    weights = [engine_says("inspect", "-f", "{{.HostConfig.CpuShares}}", one) for one in names]
    assert sorted(weights) == ["0", "2" if guests.yield_at_once() else "0"]
    server.delete("lit")
    gone(*names)


def test_an_image_and_its_files_answer(server: Server, tmp_path: Path) -> None:
    folder = weights(tmp_path / "m", weights="of ours", config="{}")
    environment = {"MY_OWN": 'a "b" # c', "SAGEMAKER_REGION": "eu-x", "LINES": "one\ntwo"}
    server.deploy("echo", folder, Image=image(), Environment=environment)
    answer = server.runtime.invoke_endpoint(
        EndpointName="echo", Body=b"hello", ContentType="text/x-mine", Accept="application/json",
        CustomAttributes="mine=1",
    )  # fmt: skip
    told = json.loads(answer["Body"].read())
    assert told["body"] == "hello"
    assert told["headers"]["content-type"] == "text/x-mine"
    assert told["headers"]["x-amzn-sagemaker-custom-attributes"] == "mine=1"
    facts = does(server, "echo", "facts")
    assert facts["argv"] == ["serve"]
    assert facts["files"] == {"weights": "of ours", "config": "{}"}
    assert facts["environment"].items() >= environment.items()
    assert does(server, "echo", "write /opt/ml/model/more") == READ_ONLY
    assert "the server begins" in log_of(server, "echo")
    [name] = containers_of("echo")
    server.delete("echo")
    gone(name)


def test_a_prefix_is_shown_as_it_is_and_no_model_data_is_needed(
    server: Server, tmp_path: Path
) -> None:
    weights(server.state_dir.parent / "bucket" / "prefix", one="1", two="2")
    source = {
        "S3Uri": "s3://ours/prefix/", "S3DataType": "S3Prefix", "CompressionType": "None",
    }  # fmt: skip
    create(server, "prefix", ModelDataSource={"S3DataSource": source})
    assert does(server, "prefix", "facts")["files"] == {"one": "1", "two": "2"}
    server.delete("prefix")
    create(server, "alone")
    assert does(server, "alone", "facts")["files"] == {}
    server.delete("alone")


def test_an_image_that_brings_its_model_is_deployed_by_its_name_alone(server: Server) -> None:
    told = penstock("deploy", "by-name", "--image", image(), server=server)
    assert "endpoint by-name is InService" in told.stderr + told.stdout
    assert answers(server, "by-name")
    assert does(server, "by-name", "facts")["files"] == {}
    penstock("delete", "by-name", "--yes", server=server)


def test_a_container_has_no_right_that_its_owner_did_not_give_it(server: Server) -> None:
    """And without a network there is no way out, but requests come in."""
    create(server, "closed", members={"EnableNetworkIsolation": True})
    facts = does(server, "closed", "facts")
    assert facts["interfaces"] == ["lo"]
    assert int(facts["status"]["CapEff"], 16) == 0
    assert int(facts["status"]["CapBnd"], 16) == 0
    assert facts["status"]["NoNewPrivs"] == "1"
    for address in ("192.0.2.1", "10.88.0.1"):
        assert does(server, "closed", f"out {address}").startswith("OSError 101")
    body = os.urandom(2_000_000).hex()
    assert server.invoke("closed", body.encode())["body"] == body
    server.delete("closed")


def test_an_answer_is_streamed_as_it_is_written(server: Server) -> None:
    create(server, "streams")
    runtime = server.client("sagemaker-runtime")

    def streamed(end: str) -> Iterator[bytes]:
        answer = runtime.invoke_endpoint_with_response_stream(
            EndpointName="streams", Body=f"!stream {end}".encode()
        )
        assert answer["ContentType"] == "text/plain"
        for event in answer["Body"]:
            yield event["PayloadPart"]["Bytes"]

    pieces = streamed("well")
    assert next(pieces) == b"one", "the second is not written yet"
    does(server, "streams", "go")
    assert list(pieces) == [b"two"]
    pieces = streamed("die")
    assert next(pieces) == b"one"
    does(server, "streams", "go")
    with pytest.raises(EventStreamError, match="in the middle of the answer"):
        next(pieces)
    assert wait_until(lambda: answers(server, "streams"), "it is back", 60)
    server.delete("streams")


def test_one_that_takes_too_much_memory_ends_alone_and_comes_back(server: Server) -> None:
    create(server, "greedy")
    before = [each["instance"] for each in server.copies("greedy")]
    with pytest.raises(ClientError, match="ended while it had this request"):
        does(server, "greedy", "take 4000")
    wait_until(lambda: "limit of memory" in log_of(server, "greedy"), "the reason", 30)
    assert wait_until(lambda: answers(server, "greedy"), "it answers again", 60)
    assert [each["instance"] for each in server.copies("greedy")] == before
    assert len(containers_of("greedy")) == 1
    server.delete("greedy")


def answers(server: Server, endpoint: str) -> bool:
    try:
        return bool(server.invoke(endpoint, b"again")["body"] == "again")
    except ClientError:
        return False


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"END_WITH": "3"}, ("ended with status 3", "there is no such weights file")),
        ({"PING": "404"}, ("/ping answered 404", "the server begins")),
    ],
)
def test_one_that_does_not_start_says_why_and_leaves_nothing(
    server: Server, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    client = server.client("sagemaker")
    client.create_model(
        ModelName="bad", PrimaryContainer={"Image": image(), "Environment": environment}
    )
    server.endpoint("bad", wait=False)
    reason = server.settled("bad", seconds=120)["FailureReason"]
    assert all(each in reason for each in words), reason
    server.delete("bad")
    client.delete_model(ModelName="bad")
    wait_until(lambda: not containers_of("bad"), "nothing left", 30)


def test_one_that_is_slow_to_start_is_waited_for(server: Server) -> None:
    create(server, "slow", Environment={"PING_AFTER_S": "4"})
    assert answers(server, "slow")
    server.delete("slow")


def test_killed_containers_come_back(server: Server) -> None:
    create(server, "killed")
    for way in ("engine", "process", "itself"):
        [name] = containers_of("killed")
        if way == "engine":
            engine_says("kill", name)
        elif way == "process":
            os.kill(int(engine_says("inspect", "--format", "{{.State.Pid}}", name)), signal.SIGKILL)
        else:
            with pytest.raises(ClientError):
                does(server, "killed", "die 4")
        gone(name)
        assert wait_until(lambda: answers(server, "killed"), f"it answers after {way}", 60)
    server.delete("killed")


def test_nothing_is_lost_while_containers_are_killed(server: Server) -> None:
    client = server.client("sagemaker")
    client.create_model(ModelName="load", PrimaryContainer={"Image": image()})
    server.endpoint("load", InitialInstanceCount=2)
    with Load(server.port, "/endpoints/load/invocations", workers=4) as load:
        for turn in range(6):
            before = load.answered
            wait_until(lambda least=before + 50: load.answered > least, "answers", 60)
            wait_until(lambda: len(containers_of("load")) == 2, "two containers", 60)
            wait_until(lambda: len(server.ready_copies("load")) == 2, "two copies", 60)
            victim = containers_of("load")[turn % 2]
            engine_says("kill", victim)
            gone(victim)
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    server.delete("load")
    wait_until(lambda: not containers_of("load"), "nothing left", 30)


def test_an_image_with_a_user_of_its_own_reads_its_files(server: Server, tmp_path: Path) -> None:
    server.deploy("user", weights(tmp_path / "m", weights="of ours"), Image=image("1234"))
    facts = does(server, "user", "facts")
    assert (facts["user"], facts["files"]) == (1234, {"weights": "of ours"})
    server.delete("user")


def test_target_models_share_one_container(server: Server, tmp_path: Path) -> None:
    for name in "abc":
        weights(tmp_path / "models" / name, weights=f"of {name}")
    server.model(
        "many", f"{(tmp_path / 'models').as_uri()}/", Image=image("1234"), Mode="MultiModel",
        Environment={"MODELS_MAX": "2"},
    )  # fmt: skip
    server.endpoint("many", InstanceType="ml.local.medium")
    for _ in range(2):
        for name in "abc":
            told = server.invoke("many", b"x", TargetModel=name)
            assert (told["weights"], told["target"]) == (f"of {name}", name)
    assert len(containers_of("many")) == 1
    server.delete("many")


def test_containers_of_a_killed_server_go_and_those_of_others_stay(
    server: Server, tmp_path: Path
) -> None:
    """Also where nothing of the server was left to remove them: the next start does."""
    create(server, "others")
    with up(tmp_path) as doomed:
        create(doomed, "doomed")
        [name] = containers_of("doomed")
        doomed.kill()
        gone(name)
        doomed.start()
        wait_until(lambda: answers(doomed, "doomed"), "it answers again", 90)
        [name] = containers_of("doomed")
        attendant = int(containers("penstock.attendant")[name].partition(":")[0])
        for pid in (attendant, doomed.pid):
            os.kill(pid, signal.SIGKILL)
        doomed.kill()
        doomed.start()
        gone(name)
        assert len(containers_of("others")) == 1
        assert answers(server, "others")
    server.delete("others")


def test_what_a_killed_instance_left_behind_the_next_one_removes(server: Server) -> None:
    """Where its attendant was killed, too, and the server goes on."""
    create(server, "left")
    [name] = containers_of("left")
    attendant = int(containers("penstock.attendant")[name].partition(":")[0])
    status = Path(f"/proc/{attendant}/status").read_text()
    instance = int(status.partition("PPid:")[2].split(maxsplit=1)[0])
    os.kill(instance, signal.SIGSTOP)  # it removes the container of a dead attendant itself
    for pid in (attendant, instance):
        os.kill(pid, signal.SIGKILL)
    gone(name)
    assert wait_until(lambda: answers(server, "left"), "it answers again", 60)
    server.delete("left")


def test_a_server_says_which_engine_it_found(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = "{{.Server.Version}}" if ENGINE == "docker" else "{{.Client.Version}}"
    version = engine_says("version", "--format", form)
    wait_until(lambda: f"containers: {ENGINE} {version}" in server.log(), "the line", 30)
    monkeypatch.setenv("PENSTOCK_CONTAINERS_ENGINE", "off")
    with up(tmp_path) as off:
        wait_until(lambda: "containers: images are not run" in off.log(), "the line", 30)
        client = off.client("sagemaker")
        client.create_model(ModelName="m", PrimaryContainer={"Image": image()})
        off.endpoint("m", wait=False)
        assert "not mapped to a command" in off.settled("m")["FailureReason"]

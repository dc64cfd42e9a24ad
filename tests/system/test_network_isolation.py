"""EnableNetworkIsolation: the model's processes have no network but a loopback of their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: Says which ways out there are. UDP is heard by nobody: that it can be sent is enough.
TRIES = """
import json, os, socket

def tried(way):
    try:
        return way() or "open"
    except OSError as error:
        return type(error).__name__ + " " + str(error.errno)

def tcp(port):
    socket.create_connection(("127.0.0.1", port), 5).close()

def udp(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("192.0.2.1", port))

def abstract(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\\0" + name)

def vsock():
    socket.socket(socket.AF_VSOCK).close()

def raw():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()

def name():
    socket.getaddrinfo("example.com", 80)

def back():
    with open("/proc/%d/ns/net" % os.getppid()) as file:
        import ctypes
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")

def own():
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname(), 5).close()
    return "own"

def model_fn(model_dir): return None

def predict_fn(data, model):
    return {
        "tcp": tried(lambda: tcp(data["port"])), "udp": tried(lambda: udp(data["port"])),
        "abstract": tried(lambda: abstract(data["abstract"])), "vsock": tried(vsock),
        "packets": tried(raw), "back": tried(back), "own": tried(own),
    }
"""
WAYS_OUT = ("tcp", "abstract", "vsock", "packets", "back", "udp")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("network")
    python_model(folder / "tries", TRIES)
    trusted = python_model(folder / "trusted", TRIES)
    toml = folder / "penstock.toml"
    toml.write_text(
        f'[control]\ntrusted_artifacts = ["{trusted.as_uri()}"]\n'
        'image_commands = { foreign = ["python3", "-m", "http.server", "{port}"] }\n'
    )
    server = Server(folder / "state", "--config", str(toml)).start()
    try:
        yield server, folder
    finally:
        server.kill()


def create(
    server: Server, name: str, *, isolated: bool, config: bool = False, **container: Any
) -> dict[str, Any]:
    """An endpoint of its own for a model; as it is described once it is there, or has failed.

    `config`: its configuration asks for isolation.
    """
    server.client("sagemaker").create_model(
        ModelName=name, PrimaryContainer=container, EnableNetworkIsolation=isolated
    )
    server.endpoint(name, wait=False, members={"EnableNetworkIsolation": config})
    return server.settled(name)


def tries(server: Server, endpoint: str, target: str = "") -> dict[str, str]:
    headers = {"X-Amzn-SageMaker-Target-Model": target} if target else {}
    name = f"penstock-test-{server.port}"
    with closing(socket.socket(socket.AF_UNIX)) as heard:
        heard.bind(f"\0{name}")
        heard.listen()  # a connection is made before anybody takes it
        body = json.dumps({"port": server.port, "abstract": name}).encode()
        status, answer = server.post(f"/endpoints/{endpoint}/invocations", body, headers)
    assert status == 200, answer
    told: dict[str, str] = json.loads(answer)
    return told


def closed(told: dict[str, str]) -> bool:
    """No way out, and a loopback of its own."""
    return all(told[way] != "open" for way in WAYS_OUT) and told["own"] == "own"


def test_a_model_that_is_not_isolated_has_the_network(site: tuple[Server, Path]) -> None:
    server, folder = site
    create(server, "open", isolated=False, ModelDataUrl=(folder / "tries").as_uri())
    assert tries(server, "open")["tcp"] == "open"


def test_an_isolated_models_code_reaches_nothing(site: tuple[Server, Path]) -> None:
    server, folder = site
    create(server, "alone", isolated=True, ModelDataUrl=(folder / "tries").as_uri())
    assert server.client("sagemaker").describe_model(ModelName="alone")["EnableNetworkIsolation"]
    told = tries(server, "alone")
    assert closed(told), told


def test_a_configuration_isolates_all_its_models(site: tuple[Server, Path]) -> None:
    server, folder = site
    create(server, "config", isolated=False, config=True, ModelDataUrl=(folder / "tries").as_uri())
    told = tries(server, "config")
    assert closed(told), told


def test_the_operators_trust_is_not_the_owners_word(site: tuple[Server, Path]) -> None:
    """Code of a trusted artifact sees the machine's files; its network is still what was asked."""
    server, folder = site
    create(server, "trusted", isolated=True, ModelDataUrl=(folder / "trusted").as_uri())
    told = tries(server, "trusted")
    assert closed(told), told


def test_target_models_of_an_isolated_container_are_isolated(site: tuple[Server, Path]) -> None:
    server, folder = site
    (folder / "many").mkdir()
    for name in ("a", "b"):
        python_model(folder / "many" / name, TRIES)
    uri = (folder / "many").as_uri()
    create(server, "many", isolated=True, Mode="MultiModel", ModelDataUrl=uri)
    for name in ("a", "b"):
        told = tries(server, "many", name)
        assert closed(told), told


@pytest.mark.parametrize("kind", ["foreign", "http step", "endpoint step"])
def test_what_can_not_be_isolated_is_refused_with_the_reason(
    site: tuple[Server, Path], kind: str
) -> None:
    server, folder = site
    container: dict[str, Any] = {"Image": "foreign"}
    if kind != "foreign":
        ways = {
            "http step": "http: {url: 'http://127.0.0.1:1/'}",
            "endpoint step": "endpoint: {name: open}",
        }
        place = folder / kind.replace(" ", "-")
        place.mkdir()
        text = f"schema: 1\nsteps:\n  - name: out\n    {ways[kind]}\n    inputs: {{a: $request}}\n"
        (place / "pipeline.yaml").write_text(text)
        container = {"ModelDataUrl": place.as_uri()}
    described = create(server, kind.replace(" ", "-"), isolated=True, **container)
    assert described["EndpointStatus"] == "Failed"
    assert "EnableNetworkIsolation" in described["FailureReason"], described["FailureReason"]

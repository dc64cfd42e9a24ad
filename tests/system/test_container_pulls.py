"""Images that are pulled: only those that are allowed, once, for as long as a model names them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.container_images import containers_of, engine, engine_says, image
from tests.kit.image_registry import ImageRegistry, registry
from tests.kit.polling import wait_until
from tests.kit.servers import Server, up

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    engine()
    with registry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def server(images: ImageRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pulls")
    toml = folder / "penstock.toml"
    toml.write_text(f'[containers]\npull = ["{images.host}/team/*"]\n')
    with up(folder, "--config", str(toml)) as server:
        yield server


def is_here(name: str) -> bool:
    return not subprocess.run(["podman", "image", "exists", name], check=False).returncode


def model(server: Server, name: str, image_name: str) -> None:
    server.client("sagemaker").create_model(ModelName=name, PrimaryContainer={"Image": image_name})


def run_by(endpoint: str) -> list[str]:
    """Ids of the images that its containers run."""
    return [
        engine_says("container", "inspect", "--format", "{{.Image}}", name)
        for name in containers_of(endpoint)
    ]


def deployed(server: Server, endpoint: str) -> dict[str, Any]:
    described = server.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    [found] = described["ProductionVariants"][0]["DeployedImages"]
    return dict(found)


def reason(server: Server, name: str, image_name: str) -> str:
    model(server, name, image_name)
    server.endpoint(name, wait=False)
    told = str(server.settled(name, seconds=60)["FailureReason"])
    server.delete(name)
    server.client("sagemaker").delete_model(ModelName=name)
    return told


def test_an_image_is_pulled_once_kept_as_it_is_and_removed_in_the_end(
    server: Server, images: ImageRegistry
) -> None:
    name = f"{images.host}/team/server:1"
    assert not is_here(name)
    model(server, "pulled", name)
    server.endpoint("pulled", InitialInstanceCount=2)
    assert server.invoke("pulled", b"hello")["body"] == "hello"
    resolved = f"{images.host}/team/server@{images.digests['1']}"
    wait_until(lambda: deployed(server, "pulled")["ResolvedImage"] == resolved, "its digest", 30)
    assert deployed(server, "pulled")["SpecifiedImage"] == name
    assert sum(each.endswith("/manifests/1") for each in images.asked) <= 2, "one HEAD, one GET"
    [first] = set(run_by("pulled"))

    engine_says("tag", image(), name)  # the name stands for another image now
    server.set_count("pulled", 3)
    assert run_by("pulled") == [first] * 3
    engine_says("tag", first, name)

    server.stop()
    server.start()
    server.wait_in_service("pulled")
    assert is_here(name)
    server.delete("pulled")
    server.client("sagemaker").delete_model(ModelName="pulled")
    server.stop()
    server.start()
    wait_until(lambda: not is_here(name), "the image is gone", 60)
    assert is_here(image()), "it was here before"


def test_what_is_not_to_be_had_is_the_reason(server: Server, images: ImageRegistry) -> None:
    told = reason(server, "none", f"{images.host}/team/server:2")
    assert "could not be pulled" in told, told
    told = reason(server, "nobody", "127.0.0.1:1/team/server:1")
    assert "containers.pull" in told, told


def test_what_is_not_allowed_is_not_asked_for(server: Server, images: ImageRegistry) -> None:
    before = len(images.asked)
    told = reason(server, "others", f"{images.host}/others/server:1")
    assert "no pattern in containers.pull or containers.registries" in told, told
    told = reason(server, "short", "not-of-any-registry:1")  # other tests have a "server:1" here
    assert "begins with no registry" in told, told
    assert len(images.asked) == before


def test_nothing_is_pulled_without_a_setting(images: ImageRegistry, tmp_path: Path) -> None:
    before = len(images.asked)
    with up(tmp_path) as plain:
        told = reason(plain, "plain", f"{images.host}/team/server:1")
    assert "Nothing is pulled unless the operator allows it (containers.pull," in told, told
    assert len(images.asked) == before

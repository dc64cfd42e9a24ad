"""Registries that want a login, mirrors of others, and what goes wrong with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.kit.container_images import engine
from tests.kit.image_registry import ELSEWHERE, ImageRegistry, registry
from tests.kit.polling import wait_until
from tests.kit.servers import KEYS, Server, penstock, up

from penstock.runtimes.container.engine import remove_image

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PASSWORD = "pa:ss \u00e4 word"
#: A failed pull is a reason within a minute.
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registries")


@pytest.fixture(scope="module")
def private(folder: Path) -> Iterator[ImageRegistry]:
    engine()
    with registry(folder / "registry", login=f"robot:{PASSWORD}") as made:
        yield made


@pytest.fixture(scope="module")
def secret(folder: Path) -> Path:
    return folder / "secret"


@pytest.fixture(scope="module")
def server(folder: Path, private: ImageRegistry, secret: Path) -> Iterator[Server]:
    secret.write_text(f"{PASSWORD}\n")
    toml = folder / "penstock.toml"
    toml.write_text(
        f"[containers.registries.'{private.host}']\nimages = ['team/*', 'hub/*']\n"
        "user = 'robot'\nsecret_file = 'secret'\n"
        f"[containers.registries.'hub.example']\nmirror = '{private.host}/hub'\n"
    )
    with up(folder, "--config", str(toml)) as server:
        yield server
    for name in ("team/server:1", f"team/server:{ELSEWHERE}"):
        remove_image("podman", f"{private.host}/{name}")
    remove_image("podman", "hub.example/library/server:1")


def reason(server: Server, name: str, image_name: str) -> str:
    client = server.client("sagemaker")
    client.create_model(ModelName=name, PrimaryContainer={"Image": image_name})
    server.endpoint(name, wait=False)
    told = str(server.settled(name, seconds=SECONDS_MAX)["FailureReason"])
    server.delete(name)
    client.delete_model(ModelName=name)
    return told


class WatchOfArguments:
    """Looks for a text in the arguments of all processes until it ends."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: list[bytes] = []

    def _look(self) -> None:
        while not self._over.is_set():
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = place.read_bytes()
                except OSError:
                    continue
                if self._text in line:
                    self.seen.append(line)

    def __enter__(self) -> WatchOfArguments:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_the_operators_login_is_used_and_seen_nowhere(
    server: Server, private: ImageRegistry
) -> None:
    name = f"{private.host}/team/server:1"
    client = server.client("sagemaker")
    client.create_model(ModelName="login", PrimaryContainer={"Image": name})
    with WatchOfArguments(PASSWORD) as watch:
        server.endpoint("login")
    assert watch.seen == []
    assert server.invoke("login", b"hello")["body"] == "hello"
    assert f"robot:{PASSWORD}" in private.logins
    left = [each for each in server.state_dir.rglob("login-*") if each.is_dir()]
    assert left == [], "the login is there as long as the pull"
    for file in (each for each in server.state_dir.rglob("*") if each.is_file()):
        assert PASSWORD.encode() not in file.read_bytes(), file
    assert PASSWORD not in server.log()
    with pytest.raises(ClientError, match="a place of the server's own"):
        server.model("thief", (server.state_dir.parent / "secret").as_uri())
    server.delete("login")
    client.delete_model(ModelName="login")


def test_a_mirror_is_asked_in_the_registrys_place(server: Server, private: ImageRegistry) -> None:
    name = "hub.example/library/server:1"
    client = server.client("sagemaker")
    client.create_model(ModelName="mirrored", PrimaryContainer={"Image": name})
    server.endpoint("mirrored")
    assert server.invoke("mirrored", b"hello")["body"] == "hello"
    assert "/v2/hub/library/server/manifests/1" in private.asked
    variant = client.describe_endpoint(EndpointName="mirrored")["ProductionVariants"][0]
    [found] = variant["DeployedImages"]
    digest = private.digests["1"]
    assert found["ResolvedImage"] == f"hub.example/library/server@{digest}"
    by_digest = f"hub.example/library/server@{digest}"
    client.create_model(ModelName="digest", PrimaryContainer={"Image": by_digest})
    server.endpoint("digest")
    variant = client.describe_endpoint(EndpointName="digest")["ProductionVariants"][0]
    assert [each["ResolvedImage"] for each in variant["DeployedImages"]] == [by_digest]
    for endpoint in ("mirrored", "digest"):
        server.delete(endpoint)
        client.delete_model(ModelName=endpoint)


def test_a_wrong_password_and_a_file_that_is_none_are_the_reason(
    server: Server, private: ImageRegistry, secret: Path
) -> None:
    name = f"{private.host}/team/closed:1"  # that of another test may be here still
    before = secret.read_text()
    try:
        secret.write_text("wrong\n")
        told = reason(server, "wrong", name)
        assert "could not be pulled" in told, told
        assert "authentication required" in told or "unauthorized" in told.lower(), told
        secret.write_text("\n")
        assert "is empty" in reason(server, "empty", name)
        secret.unlink()
        told = reason(server, "unreadable", name)
        assert f"the secret_file of {private.host} in containers.registries" in told, told
        assert "No such file or directory" in told
    finally:
        secret.write_text(before)


def test_what_is_not_as_it_should_be_is_the_reason(server: Server, private: ImageRegistry) -> None:
    told = reason(server, "elsewhere", f"{private.host}/team/server:{ELSEWHERE}")
    assert "made for linux/s390x, and this machine is" in told, told
    private.lies = True
    try:
        told = reason(server, "lied", f"{private.host}/team/server@sha256:{'0' * 64}")
    finally:
        private.lies = False
    assert "could not be pulled" in told, told
    assert "digest" in told, told


def test_with_auth_what_no_setting_lists_is_denied_by_its_name(
    private: ImageRegistry, tmp_path: Path
) -> None:
    toml = tmp_path / "penstock.toml"
    toml.write_text(f"[containers.registries.'{private.host}']\nimages = ['team/*']\n")
    with up(tmp_path, "--config", str(toml), "--auth") as server:
        made = penstock("keys", "create", "--state-dir", str(server.state_dir), "--json")
        key = json.loads(made.stdout)
        known = {"aws_access_key_id": key["key_id"], "aws_secret_access_key": key["secret"]}
        client = boto3.client("sagemaker", endpoint_url=server.url, **(KEYS | known))
        wait_until(lambda: listed(client), "the key is known", 15)
        for name, image_name, words in (
            (
                "unlisted",
                "quay.example/team/server:1",
                "Nothing is pulled from quay.example: neither",
            ),
            ("not-allowed", f"{private.host}/others/server:1", "no pattern in containers.pull or"),
        ):
            client.create_model(ModelName=name, PrimaryContainer={"Image": image_name})
            variant = {
                "VariantName": "all", "ModelName": name, "InstanceType": "ml.local.small",
                "InitialInstanceCount": 1,
            }  # fmt: skip
            client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
            client.create_endpoint(EndpointName=name, EndpointConfigName=name)
            failed = wait_until(partial(reason_of, client, name), "its reason", SECONDS_MAX)
            assert words in failed, failed


def listed(client: Any) -> bool:
    try:
        client.list_models()
    except ClientError:
        return False
    return True


def reason_of(client: Any, endpoint: str) -> str:
    return str(client.describe_endpoint(EndpointName=endpoint).get("FailureReason", ""))

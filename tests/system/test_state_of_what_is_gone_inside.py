"""What comes and goes within endpoints that stay, and beside them, leaves nothing that grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.adapter_files import pairs, write_adapter
from tests.kit.asynchronous import AsyncSite
from tests.kit.census import MARK, CensusServer
from tests.kit.components import ComponentSite
from tests.kit.multi_model import create_multi_model, put
from tests.kit.polling import wait_until
from tests.kit.processes import memory_bytes
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server
from tests.kit.transform import GOOD, TransformSite
from tests.system.test_state_of_what_is_gone import call

pytestmark = pytest.mark.system


def removed(server: Server, path: str) -> None:
    assert server.ask(path, method="DELETE")[0] == 200


def generations(server: CensusServer, folder: Path) -> None:
    """One endpoint, updated again and again; the last configuration has another name."""
    artifact = python_model(folder, ECHO)
    server.deploy("updated", artifact)
    client = server.client("sagemaker")
    for number in range(3):
        name = f"{MARK}-generation-{number}"
        server.prepare(name, artifact)
        client.update_endpoint(EndpointName="updated", EndpointConfigName=name)
        server.wait_in_service("updated")
        call(server, "updated", 2)
    client.update_endpoint(EndpointName="updated", EndpointConfigName="updated")
    server.wait_in_service("updated")
    for number in range(3):
        client.delete_endpoint_config(EndpointConfigName=f"{MARK}-generation-{number}")
        client.delete_model(ModelName=f"{MARK}-generation-{number}")


def components(server: CensusServer, folder: Path) -> None:
    site = ComponentSite(server, folder)
    site.endpoint()
    site.model(f"{MARK}-model")
    for number in range(3):
        name = f"{MARK}-component-{number}"
        site.component(name, f"{MARK}-model")
        site.settled(name, copies=1)
        site.ask(name)
        site.delete(name)
    site.client.delete_model(ModelName=f"{MARK}-model")


def requests_for_later(server: CensusServer, folder: Path) -> None:
    """Asynchronous requests of an endpoint that stays, one of which fails."""
    site = AsyncSite(server, folder)
    site.model()
    site.endpoint("later")
    assert site.ask("later", {"number": 3}, f"{MARK}-object")
    assert site.ask("later", {"number": "no"}, f"{MARK}-wrong")
    wait_until(lambda: site.answers() and site.failures(), seconds=60, what="both outcomes")


def jobs(server: CensusServer, folder: Path) -> None:
    """One that ends, one that is stopped, and schedules."""
    site = TransformSite(server, folder)
    affine = model_files.affine(folder / "affine")
    site.model(f"{MARK}-affine", affine)
    source = site.put("good", [GOOD])
    site.begin(f"{MARK}-ends", f"{MARK}-affine", source)
    assert site.ended(f"{MARK}-ends")["TransformJobStatus"] == "Completed"
    site.begin(f"{MARK}-stopped", f"{MARK}-affine", source)
    server.client("sagemaker").stop_transform_job(TransformJobName=f"{MARK}-stopped")
    site.ended(f"{MARK}-stopped")
    for number in range(3):
        request = site.request(f"{MARK}-nightly", f"{MARK}-affine", source)
        del request["TransformJobName"]
        schedule = json.dumps({"expression": "rate(6 hours)", "job": request}).encode()
        status, answer = server.post(f"/admin/schedules/{MARK}-nightly-{number}", schedule)
        assert status == 200, answer
        removed(server, f"/admin/schedules/{MARK}-nightly-{number}")
    server.client("sagemaker").delete_model(ModelName=f"{MARK}-affine")


def target_models(server: CensusServer, folder: Path) -> None:
    """Of an endpoint that stays: added, asked, unloaded and removed from the store."""
    put(folder, "stays", 1)
    create_multi_model(server, "many", folder)
    for number in range(3):
        name = f"{MARK}-target-{number}"
        put(folder, name, number)
        asked(server, name)
        status, body = server.post(f"/v2/repository/models/many:{name}/unload", b"")
        assert status == 200, body
        (folder / name).unlink()


def asked(server: Server, model: str) -> dict[str, Any]:
    answer = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName="many", TargetModel=model, Body=b'{"x": 1}', ContentType="application/json"
    )
    return dict(json.loads(answer["Body"].read()))


KINDS = (generations, components, requests_for_later, jobs, target_models)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_server_holds_nothing_of_what_came_and_went(kind: Any, tmp_path: Path) -> None:
    server = CensusServer(tmp_path / "state")
    server.start()
    try:
        kind(server, tmp_path / "files")
        server.forgets()
    finally:
        server.stop()


@pytest.mark.timeout(300)
def test_a_server_holds_nothing_of_adapters_that_are_gone(tmp_path: Path) -> None:
    from tests.system.test_adapters import AdapterSite  # skips where its extra is not installed

    server = CensusServer(tmp_path / "state")
    server.start()
    try:
        site = AdapterSite(server, tmp_path / "files")
        write_adapter(tmp_path / "files" / f"{MARK}-artifact", pairs(1))
        for number in range(3):
            name = f"{MARK}-adapter-{number}"
            site.adapter(name, f"{MARK}-artifact")
            site.tokens(name)
            site.client.delete_inference_component(InferenceComponentName=name)
            site.gone(name)
        server.forgets()
    finally:
        server.stop()


def test_a_server_holds_nothing_of_keys_that_are_gone(tmp_path: Path) -> None:
    server = CensusServer(tmp_path / "state", "--auth")
    server.start()
    try:
        for kind in ((), ("--bearer",)):
            words = ("create", "--json", "--label", MARK, "--endpoint", f"{MARK}-shop", *kind)
            key = json.loads(keys(server, *words))["key_id"]
            wait_until(server.census, seconds=30, what="a key that it knows")
            keys(server, "delete", key)
            server.forgets()
    finally:
        server.stop()


def keys(server: Server, *words: str) -> str:
    argv = [sys.executable, "-m", "penstock", "keys", *words, "--state-dir", str(server.state_dir)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.timeout(300)
def test_an_instance_that_loaded_and_unloaded_many_models_stays_as_large(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(folder, "stays", 1)
    server = Server(tmp_path / "state").start()
    try:
        create_multi_model(server, "many", folder)
        pid, sizes = asked(server, "stays")["pid"], []
        for number in range(100):
            put(folder, f"model-{number}", number)
            assert asked(server, f"model-{number}") == {"sum": number + 1, "pid": pid}
            server.post(f"/v2/repository/models/many:model-{number}/unload", b"")
            (folder / f"model-{number}").unlink()
            sizes.append(memory_bytes(pid))
        assert sizes[-1] - sizes[19] < 3_000_000, [size >> 10 for size in sizes[19::10]]
    finally:
        server.stop()

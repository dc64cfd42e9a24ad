"""Models under the names that they have elsewhere, by unmodified clients against real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from tests.kit import triton_files
from tests.kit.generation_models import write_model
from tests.kit.polling import wait_until
from tests.kit.servers import EXAMPLES, Server, penstock, up
from tests.system.test_clients import client_python, tour

pytestmark = [pytest.mark.system, pytest.mark.integration]

TAG = "penstock:served-name"
ANSWER = [[0.0, 0.5, 1.0]]


def deploy(
    server: Server, name: str, artifact: Path, *options: str, status: int = 0, key: str = ""
) -> str:
    """`penstock deploy`, as users run it; what it says."""
    words = ("deploy", name, str(artifact), "--quiet", *options)
    done = penstock(*words, server=server, status=status, env={"PENSTOCK_KEY": key} if key else {})
    return done.stderr


def triton(server: Server, *names: str) -> dict[str, Any]:
    addresses = f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"
    return tour(client_python("tritonclient"), "served_names_triton.py", *addresses, *names)


def arn_of(server: Server, endpoint: str) -> str:
    described = server.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    return str(described["EndpointArn"])


def answers(server: Server, name: str) -> bool:
    status, _ = server.ask(f"/v2/models/{name}/ready", None)[:2]
    return bool(status == 200)


def test_tritons_names_are_served_listed_answered_kept_and_gone(
    empty_server: Server, tmp_path: Path
) -> None:
    server = empty_server
    repository = triton_files.affine(tmp_path / "repository")
    said = deploy(server, "densenet_onnx", repository, "--served-name", "team/densenet.v2")
    assert "endpoint densenet-onnx is InService" in said
    described = penstock("describe", "densenet-onnx", server=server).stdout
    assert "team/densenet.v2" in described
    names = ("densenet-onnx", "densenet_onnx", "team/densenet.v2")
    for door, seen in triton(server, *names, "densenet_onnx2").items():
        assert seen["index"] == sorted(names), door
        for name in names:
            assert seen[name] == {
                "answer": ANSWER, "answered": name, "metadata": name, "config": name,
                "statistics": [name], "ready": True,
            }, (door, name)  # fmt: skip
        assert "densenet_onnx2" in seen["densenet_onnx2"]["error"], door
    server.kill()
    server.start()
    server.wait_in_service("densenet-onnx")
    wait_until(lambda: answers(server, "densenet_onnx"), "the name after a restart", 60)
    assert "endpoint-name-taken" in deploy(server, "densenet.onnx", repository, status=1)
    sagemaker = server.client("sagemaker")
    sagemaker.delete_endpoint(EndpointName="densenet-onnx")
    wait_until(lambda: not answers(server, "densenet_onnx"), "the name gone", 60)


def test_boto3_gives_and_takes_names_and_a_name_is_one_endpoints(
    empty_server: Server, tmp_path: Path
) -> None:
    server, sagemaker = empty_server, empty_server.client("sagemaker")
    server.prepare("first", triton_files.affine(tmp_path / "repository"))
    sagemaker.create_endpoint(
        EndpointName="first",
        EndpointConfigName="first",
        Tags=[{"Key": TAG, "Value": "a_1 q/q:8b"}],
    )
    server.wait_in_service("first")
    assert triton(server, "a_1", "q/q:8b")["grpc"]["q/q:8b"]["answered"] == "q/q:8b"
    server.prepare("second", EXAMPLES / "echo" / "python")
    for taken in ("a_1", "A_1", "first"):
        with pytest.raises(botocore.exceptions.ClientError, match='endpoint "first"') as raised:
            sagemaker.create_endpoint(
                EndpointName="second",
                EndpointConfigName="second",
                Tags=[{"Key": TAG, "Value": taken}],
            )
        assert raised.value.response["Error"]["Code"] == "ValidationException"
    sagemaker.add_tags(
        ResourceArn=arn_of(server, "first"), Tags=[{"Key": f"{TAG}:2", "Value": "late_1"}]
    )
    wait_until(lambda: answers(server, "late_1"), "an added name", 60)
    sagemaker.delete_tags(ResourceArn=arn_of(server, "first"), TagKeys=[TAG])
    wait_until(lambda: not answers(server, "a_1"), "a name taken away", 60)
    assert answers(server, "late_1")


def test_each_model_of_a_repository_has_its_own_name(empty_server: Server, tmp_path: Path) -> None:
    server, repository = empty_server, tmp_path / "repository"
    for factor, name in enumerate(("affine_one", "affine_two"), 1):
        triton_files.affine(repository / name, factor=factor)
    own = ("--served-name", "@models", "--served-name", "best_1=affine_two")
    deploy(server, "repository", repository, "--multi-model", *own)
    for door, seen in triton(server, "affine_one", "affine_two", "best_1", "affine_3").items():
        assert seen["index"] == ["affine_one", "affine_two", "best_1"], door
        for factor, name in ((1, "affine_one"), (2, "affine_two"), (2, "best_1")):
            assert seen[name]["answered"] == seen[name]["metadata"] == name, (door, name)
            assert seen[name]["answer"] == [[factor * value for value in ANSWER[0]]], (door, name)
        assert "error" in seen["affine_3"], door


def test_openais_client_asks_a_language_model_by_its_own_name(
    server: Server, tmp_path: Path
) -> None:
    pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
    folder = write_model(tmp_path / "model")
    deploy(server, "Qwen/Qwen3-0.6B", folder, "--served-name", "qwen3:0.6b")
    names = ("Qwen-Qwen3-0-6B", "Qwen/Qwen3-0.6B", "qwen3:0.6b")
    try:
        seen = tour(client_python("openai"), "served_names_openai.py", server.url, *names, "qwen3")
    finally:
        server.client("sagemaker").delete_endpoint(EndpointName=names[0])
    assert set(names) <= set(seen["models"])
    for name in names:
        assert seen[name] == {"answered": [name], "same": True, "card": name}
    assert seen["qwen3"]["error"] == [404, "model_not_found"]


def test_every_gateway_knows_the_names_and_a_key_is_for_the_endpoint(tmp_path: Path) -> None:
    def key(*flags: str) -> str:
        state = ("--state-dir", str(tmp_path / "state"))
        made = penstock("keys", "create", *state, "--json", "--bearer", *flags)
        return str(json.loads(made.stdout)["secret"])

    with up(tmp_path, "--gateways", "2", "--auth") as server:

        def status(token: str) -> int:
            """Each time on a connection of its own, which the kernel gives to one of the two."""
            given = {"Authorization": f"Bearer {token}"}
            return server.ask("/v2/models/affine_1/ready", headers=given)[0]

        admin = key()
        wait_until(lambda: status(admin) == 404, "the key opens", 60)
        deploy(server, "affine_1", triton_files.affine(tmp_path / "repository"), key=admin)
        wait_until(lambda: [status(admin) for _ in range(20)] == [200] * 20, "the name", 60)
        right, wrong = key("--endpoint", "affine-1"), key("--endpoint", "another")
        wait_until(lambda: status(right) == 200, "the endpoint's key opens", 60)
        wait_until(lambda: status(wrong) == 403, "another key is known", 60)
        assert {status(right) for _ in range(20)} == {200}
        assert {status(wrong) for _ in range(20)} == {403}

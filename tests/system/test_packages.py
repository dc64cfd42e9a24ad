"""What `penstock package` makes is served by a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.package_files import CODE, echo_packages, write
from tests.kit.polling import wait_until
from tests.kit.servers import Server, penstock

pytestmark = pytest.mark.system

SPECS = {
    "python/package.yaml": """\
        schema: 1
        package: echo
        version: "1"
        code: {from: code, to: code}
        templates: [{from: name.txt, to: name.txt}]
        """,
    "python/code/1.0/inference.py": CODE,
    "python/name.txt": "${package} ${version} ${code_version}",
    "triton/package.yaml": """\
        schema: 1
        package: affine-${rows}
        version: "1"
        files:
          - {from: model.onnx, to: affine/1/}
        templates:
          - {from: config.pbtxt, to: affine/config.pbtxt, values: {backend: onnxruntime}}
        for_each: [{rows: "8"}]
        """,
    "triton/config.pbtxt": """\
        backend: "${backend}"
        max_batch_size: ${rows}
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
        output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } ]
        """,
    "apply.yaml": """\
        schema: 1
        stack: e2e
        packages: [python/package.yaml, triton/package.yaml]
        location: served
        endpoints:
          - {name: packed-python, package: echo}
          - {name: packed-triton, package: affine-8}
        """,
}

MANY = """\
    schema: 1
    stack: e2e
    packages: [package.yaml]
    location: served
    endpoints:
      - name: packed-many
        mode: MultiModel
        models:
          - {kind: echo}
          - {package: echo-best, as: vip/best.tar.gz}
    """


def printed(server: Server, folder: Path, *words: str, status: int = 0) -> str:
    return penstock(*words, server=server, status=status, cwd=folder).stdout


@pytest.fixture
def cleared(server: Server) -> Iterator[Server]:
    """The shared server, without the endpoints of this test behind it."""
    before = {each["EndpointName"] for each in endpoints(server)}
    yield server
    for each in endpoints(server):
        if each["EndpointName"] not in before:
            server.client("sagemaker").delete_endpoint(EndpointName=each["EndpointName"])


def endpoints(server: Server) -> list[dict[str, str]]:
    return list(server.client("sagemaker").list_endpoints(MaxResults=100)["Endpoints"])


def answer(server: Server, endpoint: str, body: bytes) -> object:
    status, got = server.post(f"/endpoints/{endpoint}/invocations", body)
    assert status == 200, got
    return json.loads(got)


def test_what_is_packaged_is_served_updated_and_rolled_back(
    cleared: Server, tmp_path: Path
) -> None:
    server = cleared
    write(tmp_path, dict(SPECS))
    model_files.affine(tmp_path / "triton")
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    assert answer(server, "packed-python", b"[1]") == {"model": "echo 1 1.0", "data": [1]}
    row = b"[[1.0, 0.0, 0.0, 2.0]]"
    assert answer(server, "packed-triton", row) == {"predictions": [[9.0, 10.5, 12.0]]}
    assert json.loads(printed(server, tmp_path, "apply", "apply.yaml", "--json"))["steps"] == []

    write(tmp_path, {"python/code/1.1/inference.py": CODE})
    package = tmp_path / "python" / "package.yaml"
    package.write_text(package.read_text().replace('version: "1"', 'version: "2"'))
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    assert answer(server, "packed-python", b"[1]") == {"model": "echo 2 1.1", "data": [1]}

    printed(server, tmp_path, "apply", "apply.yaml", "--version", "echo=1", "--yes")
    assert answer(server, "packed-python", b"[1]") == {"model": "echo 1 1.0", "data": [1]}

    (tmp_path / "apply.yaml").write_text("schema: 1\nstack: e2e\n")
    printed(server, tmp_path, "apply", "apply.yaml", "--prune", "--yes")
    left = {each["EndpointName"] for each in endpoints(server)}
    assert not left & {"packed-python", "packed-triton"}
    models = server.client("sagemaker").list_models(MaxResults=100, NameContains="packed")
    assert models["Models"] == []
    assert archives(tmp_path) == []


def archives(folder: Path) -> list[str]:
    """What lies where endpoints of the stack have theirs."""
    return sorted(path.name for path in (folder / "served").rglob("*.tar.gz"))


def test_pruning_leaves_an_archive_that_somebody_else_serves(
    cleared: Server, tmp_path: Path
) -> None:
    server, client = cleared, cleared.client("sagemaker")
    write(tmp_path, {"apply.yaml": MANY})
    echo_packages(tmp_path, ["acme", "best"])
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    (kept,) = (tmp_path / "served").rglob("echo-acme.tar.gz")
    server.model("theirs", kept)
    (tmp_path / "apply.yaml").write_text("schema: 1\nstack: e2e\n")
    printed(server, tmp_path, "apply", "apply.yaml", "--prune", "--yes")
    assert archives(tmp_path) == ["echo-acme.tar.gz"]
    client.delete_model(ModelName="theirs")


def test_a_target_model_comes_is_replaced_and_rolled_back_to_by_uploads_alone(
    cleared: Server, tmp_path: Path
) -> None:
    """Behind an endpoint of many models, which is made once and never updated."""
    server = cleared
    write(tmp_path, {"apply.yaml": MANY})
    echo_packages(tmp_path, ["acme", "best"])
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    made = server.client("sagemaker").describe_endpoint(EndpointName="packed-many")
    assert target(server, "echo-acme.tar.gz") == "acme 1"
    assert target(server, "vip/best.tar.gz") == "best 1"

    echo_packages(tmp_path, ["acme", "best", "late"])
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    assert target(server, "echo-late.tar.gz") == "late 1"

    echo_packages(tmp_path, ["acme"], version="2")
    printed(server, tmp_path, "apply", "apply.yaml", "--yes")
    comes(server, "echo-acme.tar.gz", "acme 2")
    printed(server, tmp_path, "apply", "apply.yaml", "--version", "echo-acme=1", "--yes")
    comes(server, "echo-acme.tar.gz", "acme 1")

    now = server.client("sagemaker").describe_endpoint(EndpointName="packed-many")
    assert now["LastModifiedTime"] == made["LastModifiedTime"]


def target(server: Server, name: str) -> str:
    return str(server.invoke("packed-many", [1], TargetModel=name)["model"])


def comes(server: Server, name: str, model: str) -> None:
    """A host looks at the content anew every few seconds."""
    wait_until(lambda: target(server, name) == model, f"{name} is {model}", 60)

"""A Triton ensemble behind a real gateway: its doors, and what a dying step costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit import triton_files
from tests.kit.polling import wait_until
from tests.kit.servers import Server

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ensembles")
    started = Server(folder / "state").start()
    started.deploy("embed", triton_files.embeddings(folder / "repository"))
    yield started
    started.stop()


def body(text: str) -> bytes:
    data = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}
    return json.dumps({"inputs": [data]}).encode()


def test_its_metadata_is_that_of_one_model(server: Server) -> None:
    told = server.get("/v2/models/embed")
    assert told["platform"] == "ensemble"
    assert [each["name"] for each in told["inputs"]] == ["TEXT"]
    assert [each["name"] for each in told["outputs"]] == ["SMALL", "LARGE"]
    status, answer = server.post("/v2/models/embed/infer", body("ab"))
    assert status == 200, answer
    assert json.loads(answer)["model_name"] == "embed"


def asked(server: Server, text: str) -> tuple[int, bytes]:
    """One that comes while the step is being started again is not accepted, and asks again."""

    def answered() -> tuple[int, bytes] | None:
        status, answer = server.post("/v2/models/embed/infer", body(text))
        return None if status == 503 else (status, answer)

    found: tuple[int, bytes] = wait_until(answered, f"an answer to {text!r}", 60)
    return found


def test_only_the_request_that_ends_a_steps_process_fails(server: Server) -> None:
    """The others are computed again, whichever step and batch they were in."""
    texts = ["ab", "cd", "!", *"efghijkl"]
    with ThreadPoolExecutor(len(texts)) as threads:
        answers = list(threads.map(lambda text: asked(server, text), texts))
    for text, (status, answer) in zip(texts, answers, strict=True):
        if text == "!":
            assert status == 500, answer
            assert b"the model's process ended while it had this request" in answer
        else:
            assert status == 200, (text, answer)


def test_a_repository_that_does_not_fit_is_told_with_file_and_step(
    server: Server, tmp_path: Path
) -> None:
    root = triton_files.embeddings(tmp_path / "repository")
    config = root / "embed" / "config.pbtxt"
    config.write_text(config.read_text().replace('value: "SMALL"', 'value: "LARGE"'))
    server.deploy("broken", root, wait=False)
    with pytest.raises(AssertionError) as failed:
        server.wait_in_service("broken")
    assert "embed/config.pbtxt, step 2 (large): the tensor 'LARGE'" in str(failed.value)

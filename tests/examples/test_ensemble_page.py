"""docs/howto/ensembles.md: its commands run as they stand, and its files are the example's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.servers import EXAMPLES, ROOT, Server

pytestmark = pytest.mark.system

PAGE = (ROOT / "docs" / "howto" / "ensembles.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("ensembles") / "state").start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def said(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each block of commands printed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "examples").symlink_to(EXAMPLES)
    tools = Path(sys.executable).parent
    environment = os.environ | {
        "PENSTOCK_URL": server.url,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    printed = []
    for block in blocks("bash"):
        done = subprocess.run(
            ["bash", "-e", "-c", block], cwd=folder, env=environment, text=True, timeout=300,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        printed.append(done.stdout)
    return printed


def last(printed: str) -> Any:
    return json.loads(printed.strip().splitlines()[-1])


def test_an_ensemble_a_caller_and_a_pipeline_answer_as_the_page_says(said: list[str]) -> None:
    _, embedded, suggested, chosen = said
    (vector,) = last(embedded)["outputs"]
    assert (vector["name"], vector["shape"]) == ("VECTOR", [2, 4])
    assert sum(number**2 for number in vector["data"][:4]) == pytest.approx(1.0, abs=1e-5)
    assert last(suggested) == json.loads(blocks("json")[0])
    events = {each["event"]: each["data"] for each in last(chosen)["events"]}
    assert len(events["embeddings"][0]) == 16
    assert events["done"]["steps"] == {"prepare": "done", "small": "skipped", "large": "done"}


def test_the_admin_api_tells_how_long_each_step_took(server: Server, said: list[str]) -> None:
    (copy,) = [
        each for each in server.get("/admin/copies")["copies"] if each["endpoint"] == "embed"
    ]
    told = server.get(f"/admin/endpoints/embed/copies/{copy['copy']}")
    steps = told["pipeline"]["steps"]
    assert steps["0 (tokens)"]["calls"] == steps["1 (small)"]["calls"] == 1
    assert steps["0 (tokens)"]["longest_ms"] > 0
    assert told["models"]["small"]["batches"] == 1


def test_the_files_that_the_page_shows_are_the_examples() -> None:
    config = (EXAMPLES / "ensemble" / "repository" / "embed" / "config.pbtxt").read_text()
    assert blocks("pbtxt") == [config]
    pipeline = (EXAMPLES / "ensemble" / "pipeline" / "pipeline.yaml").read_text()
    assert all(block in pipeline for block in blocks("yaml"))

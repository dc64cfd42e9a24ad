"""The example's ensemble answers, and docs/howto/ensembles.md shows its files."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.pages import blocks
from tests.kit.servers import EXAMPLES, ROOT, Server, up

EXAMPLE = EXAMPLES / "ensemble"
PAGE = ROOT / "docs" / "howto" / "ensembles.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ensemble")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["make.py", str(folder / "build")])
        runpy.run_path(str(EXAMPLE / "make.py"), run_name="__main__")
    with up(folder) as started:
        started.deploy("embed", folder / "build" / "repository")
        yield started


def embedded(server: Server) -> Any:
    texts = {"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["Where is it?", "Hi"]}
    (vector,) = server.invoke("embed", {"inputs": [texts]})["outputs"]
    return vector


@pytest.mark.system
def test_an_ensemble_answers_and_tells_how_long_each_step_took(server: Server) -> None:
    vector = embedded(server)
    assert (vector["name"], vector["shape"]) == ("VECTOR", [2, 4])
    assert sum(number**2 for number in vector["data"][:4]) == pytest.approx(1.0, abs=1e-5)
    (copy,) = server.copies("embed")
    told = server.get(f"/admin/endpoints/embed/copies/{copy['copy']}")
    steps = told["pipeline"]["steps"]
    assert steps["0 (tokens)"]["calls"] == steps["1 (small)"]["calls"] == 1
    assert steps["0 (tokens)"]["longest_ms"] > 0
    assert told["models"]["small"]["batches"] == 1


def test_the_files_that_the_page_shows_are_the_examples() -> None:
    shown = {one: [each.text for each in blocks(PAGE) if each.language == one] for one in FILES}
    for language, path in FILES.items():
        text = (EXAMPLE / path).read_text()
        assert shown[language]
        assert all(block in text for block in shown[language])


FILES = {"pbtxt": Path("repository/embed/config.pbtxt"), "yaml": Path("pipeline/pipeline.yaml")}

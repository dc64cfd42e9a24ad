"""An artifact with several builds in a real instance: which one it takes, and that it says so.

The processor is asked to behave as an older one (ONEDNN_MAX_CPU_ISA), as oneDNN obeys it.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import instance

from penstock.artifacts.description.builds import write_builds
from penstock.core.models.instruction_sets import Build
from penstock.runtimes.processor import instruction_set_here


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A build for what this processor has, and one for any; and one for what none has."""
    root = tmp_path / "model"
    root.mkdir()
    builds = [
        Build(folder="any"),
        Build(folder="best", needs=instruction_set_here().name, target="cpu-bf16"),
        Build(folder="other", needs="arm64"),
    ]
    for build in builds:
        model_files.affine(root / build.folder)
    write_builds(root, builds)
    return root


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets are those of x86")
def test_an_instance_takes_the_best_build_that_its_processor_can_run_and_says_why(
    artifact: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = instruction_set_here().name
    told = {}
    for limit in ("", "SSE41"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        with instance(tmp_path_factory.mktemp("here")) as running:
            client = running.client()
            assert client.load(1, artifact).get("ok")
            (copy,) = client.control(op="status")["copies"]
            assert client.control(op="explain", copy=1)["build"] == copy["build"]
            told[limit] = copy["build"]
    assert told[""] == {
        "folder": "best",
        "needs": best,
        "target": "cpu-bf16",
        "reason": "needs-most-of-what-is-here",
        "instruction_set": best,
        "passed_over": ["other"],
    }
    assert told["SSE41"]["folder"] == "any"
    assert told["SSE41"]["passed_over"] == ["best", "other"]


def test_an_artifact_of_one_form_tells_of_no_build(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = model_files.affine(tmp_path / "model")
    with instance(tmp_path_factory.mktemp("here")) as running:
        client = running.client()
        assert client.load(1, root).get("ok")
        (copy,) = client.control(op="status")["copies"]
        assert copy["build"] is None
        assert "build" not in client.control(op="explain", copy=1)

"""What an image stands for on a machine that has a container engine: the order of what decides.

The engine here is a program that knows one image; real ones are in tests/system/test_containers.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.detection.images import image_here
from penstock.artifacts.prepare import prepare
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.errors import CallerError, NotNowError
from penstock.runtimes.container import engine
from penstock.runtimes.container.settings import ContainerSettings

HERE = "team/pytorch-inference:mine"
ABOUT = '{"version":{"Version":"9.9"},"host":{"cgroupControllers":["memory","pids"]}}'
SILENT = "team/slow"
ENGINE = f"""#!/bin/sh
case "$*" in
  *"image inspect"*{SILENT}) exec sleep 60 ;;
  *"image inspect"*{HERE}) echo sha-of-it / ;;
  *"image inspect"*elsewhere) echo sha-of-that linux/s390x ;;
  *"image inspect"*) echo "image not known" >&2; exit 125 ;;
  info*) echo '{ABOUT}' ;;
esac
"""


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerSettings:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(ENGINE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return ContainerSettings(engine="podman", owner="o")


def test_an_image_that_is_here_goes_before_what_its_name_says(
    containers: ContainerSettings,
) -> None:
    found = image_here(HERE, {}, containers)
    assert found.kind == "container"
    assert found.image is not None
    assert found.image.id == "sha-of-it"
    assert image_here("pytorch-inference:2.6", {}, containers).kind == "python"
    assert image_here("team/other", {}, containers).kind == "unknown"


def test_one_that_is_made_for_another_machine_is_refused(containers: ContainerSettings) -> None:
    with pytest.raises(CallerError, match="made for linux/s390x, and this machine is") as refused:
        image_here("team/elsewhere", {}, containers)
    assert refused.value.code == "image-platform"


def test_of_an_engine_that_does_not_answer_nobody_knows_what_it_has(
    containers: ContainerSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its image would be taken for one that is not here, which is final; this is tried again."""
    monkeypatch.setattr(engine, "ANSWER_S_MAX", 0.2)
    with pytest.raises(NotNowError, match=r"did not answer within 0\.2 s") as asked:
        image_here(SILENT, {}, containers)
    assert asked.value.code == "engine-silent"
    monkeypatch.setattr(engine, "_LOOK_S_MAX", 0.2)
    program = tmp_path / "bin" / "podman"
    program.write_text(ENGINE.replace("info*) ", "info*) exec sleep 60; "))
    source = ArtifactSource(uri="", image="docker.io/team/any")
    settings = ArtifactSettings(containers=replace(containers, pull=("docker.io/*",)))
    with pytest.raises(NotNowError, match=r"podman: it did not answer within 0\.2 s"):
        prepare(source, ArtifactCache(tmp_path / "cache"), settings)


def test_a_mapped_command_a_runtime_and_the_setting_go_before_the_engine(
    containers: ContainerSettings,
) -> None:
    assert image_here(HERE, {"mine": ("serve",)}, containers).kind == "process"
    assert image_here("local://python", {}, containers).kind == "local"
    assert image_here("", {}, containers).kind == ""
    assert image_here(HERE, {}, ContainerSettings(engine="off")).kind == "python"


def test_it_needs_no_data_and_weights_are_left_as_they_are(
    containers: ContainerSettings, tmp_path: Path
) -> None:
    settings = ArtifactSettings(containers=containers)
    cache = ArtifactCache(tmp_path / "cache")
    found = prepare(ArtifactSource(image=HERE), cache, settings).description
    assert (found.runtime, found.task, found.image) == ("container", "payload", "sha-of-it")
    assert found.engine_program == str(tmp_path / "bin" / "podman")


def test_the_error_for_one_that_is_not_here_says_what_the_engine_can(
    containers: ContainerSettings, tmp_path: Path
) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    settings = ArtifactSettings(containers=containers)
    with pytest.raises(CallerError) as caught:
        prepare(ArtifactSource(image="team/other"), cache, settings)
    assert caught.value.code == "artifact-missing"
    assert "what `podman images` lists here is run" in caught.value.hint
    named = ArtifactSettings(containers=ContainerSettings(engine="docker"))
    (tmp_path / "bin" / "podman").unlink()
    with pytest.raises(CallerError, match="not mapped") as caught:
        prepare(ArtifactSource(image="team/other"), cache, named)
    assert "docker" in caught.value.hint

"""Images that are pulled for a model: once, where that is allowed; removed when none names them.

The engine here is a program with one registry in its folder; real ones are in
tests/system/test_container_pulls.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.detection.images import image_here
from penstock.artifacts.prepare import prepare
from penstock.artifacts.pull_image import pulled_dir
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.core.machine.images import PulledImage
from penstock.errors import CallerError, NotNowError
from penstock.runtimes.container import images
from penstock.runtimes.container.settings import ContainerSettings

NAME = "reg.io/team/one"
#: `images/` has what is here, a file of its id for each name; `asked` what was pulled.
ENGINE = """#!/bin/sh
cd "$(dirname "$0")"
for last in "$@"; do :; done
key=$(echo "$last" | tr '/:' '__')
case "$1" in
  info) echo '{"version":{"Version":"9.9"},"host":{"cgroupControllers":["memory","pids"]}}' ;;
  image)
    if [ -e "images/$key" ]; then cat "images/$key"
    elif grep -qs "^$last" images/*; then echo "$last /"
    else echo "image not known" >&2; exit 125; fi ;;
  pull)
    echo "$*" >> asked
    echo "Trying to pull $last..."
    case "$last" in
      *slow) sleep 60 ;;
      *none) echo "Error: manifest unknown"; exit 125 ;;
    esac
    sleep 0.2
    echo "id-of-one linux/ reg.io/team/one@sha256:1" > "images/$key" ;;
  rmi) rm "images/$key" ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder."""
    folder = tmp_path / "bin"
    (folder / "images").mkdir(parents=True)
    (folder / "asked").touch()
    (folder / "podman").write_text(ENGINE)
    (folder / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def asked(engine: Path) -> list[str]:
    return (engine / "asked").read_text().splitlines()


Bring = Callable[..., list[str]]


@pytest.fixture
def bring(engine: Path, tmp_path: Path) -> Bring:
    """Prepares a model of an image; returns what was logged."""

    def brought(
        name: str,
        *,
        pull: tuple[str, ...] = ("reg.io/team/*", "127.0.0.1:5000/*"),
        cancelled: threading.Event | None = None,
        image_id: str = "",
    ) -> list[str]:
        lines: list[str] = []
        containers = ContainerSettings(engine="podman", owner="o", pull=pull)
        prepare(
            ArtifactSource(image=name, image_id=image_id),
            ArtifactCache(tmp_path / "cache" / "artifacts"),
            ArtifactSettings(containers=containers),
            cancelled=cancelled,
            log=lines.append,
        )
        return lines

    return brought


def test_one_that_is_not_here_is_pulled_and_noted(
    engine: Path, bring: Bring, tmp_path: Path
) -> None:
    lines = bring(NAME)
    assert asked(engine) == [f"pull {NAME}"]
    assert lines[0] == f"pulling the image {NAME}"
    assert lines[-1] == f"pulled {NAME}: reg.io/team/one@sha256:1"
    folder = pulled_dir(tmp_path / "cache")
    assert images.pulled(folder) == [PulledImage(image=NAME, id="id-of-one")]
    assert bring(NAME) == []
    assert len(asked(engine)) == 1


def test_many_who_need_it_at_once_pull_it_once(engine: Path, bring: Bring) -> None:
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(bring, [NAME] * 6))
    assert asked(engine) == [f"pull {NAME}"]


def test_what_is_not_allowed_is_not_asked_for(engine: Path, bring: Bring) -> None:
    for name, pull, words in (
        (NAME, (), "unless the operator allows it"),
        ("reg.io/others/one", ("reg.io/team/*",), "no pattern in containers.pull"),
        ("team/one", ("reg.io/team/*",), "begins with no registry"),
    ):
        with pytest.raises(CallerError) as refused:
            bring(name, pull=pull)
        assert words in refused.value.hint
    assert asked(engine) == []


def test_a_registry_of_the_loopback_is_asked_without_tls(engine: Path, bring: Bring) -> None:
    bring("127.0.0.1:5000/one")
    assert asked(engine) == ["pull --tls-verify=false 127.0.0.1:5000/one"]


def test_a_pull_that_fails_says_the_engines_last_words(bring: Bring) -> None:
    with pytest.raises(CallerError, match="could not be pulled: Error: manifest unknown"):
        bring("reg.io/team/none")


def test_a_pull_that_nobody_waits_for_any_more_is_ended(engine: Path, bring: Bring) -> None:
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    with pytest.raises(NotNowError) as given_up:
        bring("reg.io/team/slow", cancelled=cancelled)
    assert given_up.value.code == "artifact-cancelled"


def test_a_registry_that_says_nothing_is_given_up(
    bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_SILENCE_S_MAX", 0.5)
    with pytest.raises(CallerError, match=r"reg\.io did not answer within 0\.5 s"):
        bring("reg.io/team/slow")


def test_the_image_that_is_meant_is_run_whatever_has_its_name(engine: Path) -> None:
    containers = ContainerSettings(engine="podman", owner="o")
    (engine / "images" / "reg.io_team_one").write_text("id-new /\n")
    (engine / "images" / "old").write_text("id-old /\n")
    found = image_here(NAME, {}, containers, image_id="id-old")
    assert found.image is not None
    assert found.image.id == "id-old"
    with pytest.raises(CallerError, match="stands for sha256:id-new now") as gone:
        image_here(NAME, {}, containers, image_id="id-gone")
    assert gone.value.code == "image-changed"


def test_one_that_no_model_names_is_removed_unless_it_is_another_by_now(
    engine: Path, bring: Bring, tmp_path: Path
) -> None:
    folder, program = pulled_dir(tmp_path / "cache"), str(engine / "podman")
    for name in (NAME, "reg.io/team/two", "reg.io/team/three"):
        bring(name)
    (engine / "images" / "mine").write_text("id-of-mine /\n")
    (engine / "images" / "reg.io_team_two").write_text("id-of-somebody /\n")
    assert images.remove_unused(program, folder, {"reg.io/team/three"}) == [NAME]
    left = sorted(path.name for path in (engine / "images").iterdir())
    assert left == ["mine", "reg.io_team_three", "reg.io_team_two"]
    assert [one.image for one in images.pulled(folder)] == ["reg.io/team/three"]

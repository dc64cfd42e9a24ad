"""Models' folders shown below one root, for processes that may read that root alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from penstock.runtimes.confinement.walls import Views, fresh_root


def artifact(folder: Path) -> Path:
    (folder / "code").mkdir(parents=True)
    (folder / "weights").write_text("w")
    (folder / "code" / "inference.py").write_text("x = 1")
    (folder / "latest").symlink_to("weights")
    return folder


def test_a_model_is_shown_as_links_and_the_same_for_all_that_have_it(tmp_path: Path) -> None:
    model = artifact(tmp_path / "m")
    views = Views(tmp_path / "root")
    place = views.show(model)
    assert place.is_relative_to(views.root)
    assert (place / "code" / "inference.py").read_text() == "x = 1"
    assert (place / "weights").stat().st_ino == (model / "weights").stat().st_ino
    assert os.readlink(place / "latest") == "weights"
    assert views.show(model) == place
    assert views.show(model, "by-name") == views.root / "by-name" / "model"
    views.close()
    assert not views.root.exists()
    assert (model / "weights").read_text() == "w"


def test_a_shown_model_stays_until_its_artifact_is_gone_and_nobody_has_it(tmp_path: Path) -> None:
    """Linking and unlinking at each load would have the cache compare all bytes each time."""
    model, other = artifact(tmp_path / "m"), artifact(tmp_path / "o")
    views = Views(tmp_path / "root")
    places = [views.show(model), views.show(model)]
    views.hide(places[0])
    shutil.rmtree(model)
    views.hide(views.show(other))
    assert (places[1] / "weights").read_text() == "w"  # one has it still
    views.hide(places[1])
    assert not places[1].exists()
    assert len(list(views.root.iterdir())) == 1


def test_files_of_another_disk_are_copied(tmp_path: Path) -> None:
    shared = Path("/dev/shm")  # another file system than any disk
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.fail("/dev/shm is not a file system of its own here")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        model = artifact(Path(folder) / "m")
        views = Views(tmp_path / "root")
        place = views.show(model)
        assert (place / "weights").read_text() == "w"
        views.hide(place)
        assert not place.exists()  # a copy is nobody else's


def test_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    for name in ("4194305-1", f"{os.getpid()}-1"):  # one more than a process id can be
        (tmp_path / name).mkdir()
    made = fresh_root(tmp_path)
    assert set(tmp_path.iterdir()) == {tmp_path / f"{os.getpid()}-1", made}
    assert made.name.startswith(f"{os.getpid()}-")
    assert made.stat().st_mode & 0o777 == 0o700

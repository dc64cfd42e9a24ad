"""Packages and their uploads behind a disk that fails, and one that forgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.test_files_faults import with_each_fault
from tests.kit.crash_disk import FaultyDisk, crash_states
from tests.kit.package_files import echo_packages

from penstock.core.apply.plan import Content
from penstock.packaging import manifest
from penstock.packaging.archive import digest_in, file_sha256
from penstock.packaging.build import build
from penstock.packaging.package_spec import PackageSpec, read_packages
from penstock.packaging.stores import DirectoryStore

NAME = "acme.tar.gz"


@pytest.fixture
def spec(tmp_path: Path) -> PackageSpec:
    [made] = read_packages(echo_packages(tmp_path / "spec", ["acme"]))
    return made


def whole(folder: Path) -> None:
    """Every package that the manifest names is there with the bytes that it says."""
    for versions in manifest.load(folder).packages.values():
        for package in versions.of.values():
            assert file_sha256(folder / package.file) == package.sha256


def made(folder: Path) -> None:
    whole(folder)
    assert manifest.load(folder).packages.keys() == {"echo-acme"}
    assert len(list(folder.glob("*.gz*"))) == 1, "a draft is left"


def test_a_package_is_whole_or_not_there_behind_any_fault(
    tmp_path: Path, spec: PackageSpec
) -> None:
    with_each_fault(
        tmp_path, lambda folder: build([spec], folder), behind=whole, done=made
    )  # fmt: skip


def test_a_package_is_whole_or_not_there_behind_a_power_cut(
    tmp_path: Path, spec: PackageSpec
) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    with FaultyDisk(folder) as disk:
        build([spec], folder)
        disk.mark("made")
    states = list(crash_states(disk))
    assert len(states) > 5
    for number, state in enumerate(states):
        with state.on(tmp_path / f"cut-{number}") as cut:
            whole(cut)
            if "made" in state.marks:
                made(cut)
            build([spec], cut)
            made(cut)


@pytest.fixture
def archives(tmp_path: Path, spec: PackageSpec) -> tuple[Path, Path]:
    """Version 1, and version 2, which is put in its place."""
    [old] = build([spec], tmp_path / "packages")
    [later] = read_packages(echo_packages(tmp_path / "spec", ["acme"], version="2"))
    [new] = build([later], tmp_path / "packages")
    folder = tmp_path / "packages"
    return folder / old.package.file, folder / new.package.file


def test_an_upload_leaves_the_old_or_the_new_archive_behind_any_fault(
    tmp_path: Path, archives: tuple[Path, Path]
) -> None:
    old, new = archives

    def one_of_them(folder: Path) -> None:
        assert (folder / NAME).read_bytes() in (old.read_bytes(), new.read_bytes())

    def put(folder: Path) -> None:
        assert (folder / NAME).read_bytes() == new.read_bytes()

    with_each_fault(
        tmp_path,
        lambda folder: DirectoryStore(folder).put(NAME, new),
        first=lambda folder: DirectoryStore(folder).put(NAME, old),
        behind=one_of_them,
        done=put,
    )


def test_an_upload_leaves_the_old_or_the_new_archive_behind_a_power_cut(
    tmp_path: Path, archives: tuple[Path, Path]
) -> None:
    old, new = archives
    folder = tmp_path / "models"
    DirectoryStore(folder).put(NAME, old)
    with FaultyDisk(folder) as disk:
        DirectoryStore(folder).put(NAME, new)
    content = Content(digest=digest_in(new.read_bytes()), size=new.stat().st_size)
    seen = set()
    for number, state in enumerate(crash_states(disk)):
        with state.on(tmp_path / f"cut-{number}") as cut:
            left = (cut / NAME).read_bytes()
            assert left in (old.read_bytes(), new.read_bytes()), state.story
            seen.add(left)
            store = DirectoryStore(cut)
            for name in store.left_over():
                store.remove(name)
            store.put(NAME, new)
            assert store.contents(frozenset({NAME}), all_of_ours=False) == {NAME: content}
            assert [path.name for path in cut.iterdir()] == [NAME]
    assert len(seen) == 2

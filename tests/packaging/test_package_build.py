"""A folder of packages and its manifest: versions, the latest, and what a killed run leaves."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.kit.crash_disk import FailingDisk
from tests.kit.package_files import echo_packages, write

from penstock.errors import CallerError, NotNowError
from penstock.packaging import manifest
from penstock.packaging.archive import digest_in, file_sha256
from penstock.packaging.build import build, check_served
from penstock.packaging.package_spec import read_packages


def made(root: Path, out: Path, *, version: str = "1", replace: bool = False) -> list[str]:
    """The states of two packages, made anew."""
    file = echo_packages(root, ["acme", "best"], version=version)
    return [each.state for each in build(read_packages(file), out, replace_=replace)]


def test_a_package_is_an_archive_and_a_line_in_the_manifest(tmp_path: Path) -> None:
    assert made(tmp_path, tmp_path / "out") == ["new", "new"]
    known = manifest.load(tmp_path / "out")
    package = known.find("echo-acme", "latest")
    assert package == known.find("echo-acme", "1")
    path = tmp_path / "out" / package.file
    assert package.file == f"echo-acme-1-{package.digest[:12]}.tar.gz"
    assert (path.stat().st_size, file_sha256(path)) == (package.size, package.sha256)
    assert digest_in(path.read_bytes()) == package.digest
    assert (package.kind, package.code_version) == ("echo", "1.0")
    assert [file.path for file in package.files] == ["code/inference.py", "name.txt"]
    assert check_served(package, tmp_path / "out") == "python"


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    made(tmp_path, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert made(tmp_path, tmp_path / "out") == ["unchanged", "unchanged"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_two_folders_of_the_same_packages_are_equal(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made(tmp_path, tmp_path / name)
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert one == two


def test_the_newest_version_is_the_latest_and_the_others_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(tmp_path, out, version="9")
    made(tmp_path, out, version="10")
    known = manifest.load(out)
    assert known.find("echo-acme", "latest").version == "10"
    assert (out / known.find("echo-acme", "9").file).is_file()
    assert made(tmp_path, out, version="9") == ["unchanged", "unchanged"]
    assert manifest.load(out).find("echo-acme", "latest").version == "10"


def test_a_version_is_made_once(tmp_path: Path) -> None:
    """What was rolled out under a name can be rolled back to."""
    out = tmp_path / "out"
    made(tmp_path, out)
    before = (out / "manifest.json").read_bytes()
    write(tmp_path, {"code/1.1/inference.py": "def model_fn(model_dir): pass"})
    with pytest.raises(CallerError) as caught:
        made(tmp_path, out)
    assert caught.value.code == "package-version-taken"
    assert caught.value.message.endswith("with other contents: code/inference.py differs")
    assert (out / "manifest.json").read_bytes() == before
    assert made(tmp_path, out, replace=True) == ["replaced", "replaced"]
    assert manifest.load(out).find("echo-acme", "1").code_version == "1.1"


def test_an_archive_that_is_gone_or_torn_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(tmp_path, out)
    files = [out / manifest.load(out).find(name, "1").file for name in ("echo-acme", "echo-best")]
    whole = [path.read_bytes() for path in files]
    files[0].unlink()
    files[1].write_bytes(whole[1][:-1])
    assert made(tmp_path, out) == ["replaced", "replaced"]
    assert [path.read_bytes() for path in files] == whole


def test_a_package_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    made(tmp_path, tmp_path / "out")
    known = manifest.load(tmp_path / "out")
    for name, version, told in (("shop", "1", "penstock package"), ("echo-acme", "2", "1.")):
        with pytest.raises(CallerError) as caught:
            known.find(name, version)
        assert caught.value.code == "package-not-found"
        assert told in caught.value.hint


@pytest.mark.parametrize("change", ["schema", "file", "name", "cut", "list"])
def test_a_manifest_that_was_tampered_with_leads_nowhere(tmp_path: Path, change: str) -> None:
    made(tmp_path, tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    tree = json.loads(path.read_text())
    package = tree["packages"]["echo-acme"]["versions"]["1"]
    if change == "schema":
        tree["schema"] = 2
    elif change == "file":
        package["file"] = "../../etc/passwd"
    elif change == "name":
        package["name"] = "shop"
    path.write_text(
        "[]" if change == "list" else json.dumps(tree)[: -9 if change == "cut" else None]
    )
    with pytest.raises(CallerError) as caught:
        manifest.load(tmp_path / "out")
    assert caught.value.code == "manifest-invalid"


def test_a_manifest_whose_disk_fails_is_not_taken_for_a_broken_one(tmp_path: Path) -> None:
    """The hint for that is to remove the folder."""
    with FailingDisk(tmp_path, error=errno.EIO), pytest.raises(NotNowError) as caught:
        manifest.load(tmp_path)
    assert caught.value.code == "manifest-unreadable"
    assert "Remove" not in caught.value.hint


def test_a_run_that_is_killed_leaves_no_half_package(tmp_path: Path) -> None:
    """Killed while it writes the archives, it is run again, and all is as if never killed."""
    file = echo_packages(tmp_path, [f"c{number}" for number in range(40)])
    write(tmp_path, {"code/1.0/weights.bin": os.urandom(500_000)})
    out = tmp_path / "out"
    argv = [sys.executable, "-m", "penstock", "package", str(file), "--out", str(out)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.tar.gz"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL, "it was done before it could be killed"
    assert not (out / "manifest.json").exists()
    states = {each.state for each in build(read_packages(file), out)}
    assert states == {"new"}
    again = tmp_path / "again"
    build(read_packages(file), again)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in again.iterdir()
    }

"""Stores of packages, a folder and a bucket: whole or not at all, and known wherever it lies."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kit.object_server import ObjectServer, object_server
from tests.kit.package_files import echo_packages

from penstock.artifacts.files.paths import is_clutter
from penstock.core.apply.plan import Content
from penstock.errors import PenstockError
from penstock.packaging import s3_store
from penstock.packaging.build import build
from penstock.packaging.manifest import Package
from penstock.packaging.package_spec import read_packages
from penstock.packaging.stores import DRAFT_PREFIX, DirectoryStore, PackageStore, open_store

Packed = tuple[Path, Package]


@pytest.fixture
def packed(tmp_path: Path) -> Packed:
    file = echo_packages(tmp_path / "spec", ["acme"])
    [built] = build(read_packages(file), tmp_path / "build")
    return tmp_path / "build" / built.package.file, built.package


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    """What the AWS tools' variables of this process name as S3."""
    with object_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield server


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PackageStore:
    if request.param == "folder":
        return open_store(f"{(tmp_path / 'mo dels').as_uri()}/")
    request.getfixturevalue("bucket")
    return open_store("s3://models/embed/")


def test_what_was_put_is_known_by_digest_and_size(store: PackageStore, packed: Packed) -> None:
    path, package = packed
    names = frozenset({"acme.tar.gz", "deep/er.tar.gz", "none.tar.gz"})
    assert store.contents(names, all_of_ours=True) == {}
    content = Content(digest=package.digest, size=package.size)
    for name in ("acme.tar.gz", "deep/er.tar.gz", "more.tar.gz"):
        store.put(name, path)
    asked = {"acme.tar.gz": content, "deep/er.tar.gz": content}
    assert store.contents(names, all_of_ours=False) == asked
    assert store.contents(names, all_of_ours=True) == asked | {"more.tar.gz": content}
    assert store.left_over() == []


def test_what_others_put_there_is_none_of_ours(
    store: PackageStore, packed: Packed, tmp_path: Path
) -> None:
    other, empty = tmp_path / "other", tmp_path / "empty"
    other.write_bytes(b"not an archive")
    empty.write_bytes(b"")
    store.put("other.tar.gz", other)
    store.put("empty.tar.gz", empty)
    assert store.contents(frozenset(), all_of_ours=True) == {}
    assert store.contents(frozenset({"other.tar.gz", "empty.tar.gz"}), all_of_ours=False) == {
        "other.tar.gz": Content(digest="", size=14),
        "empty.tar.gz": Content(digest="", size=0),
    }
    store.put("other.tar.gz", packed[0])
    assert store.contents(frozenset(), all_of_ours=True).keys() == {"other.tar.gz"}


def test_what_is_removed_is_gone_and_may_be_removed_again(
    store: PackageStore, packed: Packed
) -> None:
    store.put("acme.tar.gz", packed[0])
    store.remove("acme.tar.gz")
    store.remove("acme.tar.gz")
    assert store.contents(frozenset({"acme.tar.gz"}), all_of_ours=True) == {}


@pytest.mark.parametrize("name", ["../acme.tar.gz", "/acme.tar.gz", "a/../../b"])
def test_no_name_leads_out_of_a_store(
    store: PackageStore, packed: Packed, tmp_path: Path, name: str
) -> None:
    for change in (lambda: store.put(name, packed[0]), lambda: store.remove(name)):
        with pytest.raises(PenstockError) as caught:
            change()
        assert caught.value.code == "artifact-path-unsafe"


def test_a_bucket_has_an_object_by_one_request_or_by_parts(
    bucket: ObjectServer, packed: Packed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = open_store("s3://models/embed/")
    store.put("acme.tar.gz", packed[0])
    puts = [line for line in bucket.requests if not line.startswith("GET")]
    assert puts == ["PUT /models/embed/acme.tar.gz"]
    monkeypatch.setattr(s3_store, "_ONE_PUT_BYTES_MAX", 1_000_000)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(20_000_000))
    store.put("large.tar.gz", large)
    assert bucket.objects["/models/embed/large.tar.gz"] == large.read_bytes()
    assert any("partNumber=2" in line for line in bucket.requests)
    assert bucket.parts == {}


def test_a_bucket_that_refuses_is_told_with_what_to_check(
    bucket: ObjectServer, packed: Packed
) -> None:
    store = open_store("s3://models/embed/")
    bucket.status = 403
    calls: list[Callable[[], object]] = [
        lambda: store.put("acme.tar.gz", packed[0]),
        lambda: store.contents(frozenset({"a"}), all_of_ours=False),
    ]
    for call in calls:
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.code == "artifact-access-denied"
        assert "AWS_PROFILE" in caught.value.hint


def test_a_prefix_is_a_folder_not_the_beginning_of_a_name(
    bucket: ObjectServer, packed: Packed
) -> None:
    bucket.objects["/models/embed-old/acme.tar.gz"] = packed[0].read_bytes()
    assert open_store("s3://models/embed/").contents(frozenset(), all_of_ours=True) == {}


def test_an_upload_that_is_not_finished_is_no_artifact_for_anybody(
    tmp_path: Path, packed: Packed
) -> None:
    """Killed in the middle: what lies there is left out of listings, known, and removed."""
    folder = tmp_path / "models"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # a source that never ends keeps the upload in its middle
    code = (
        "import sys, pathlib; from penstock.packaging.stores import DirectoryStore;"
        "DirectoryStore(pathlib.Path(sys.argv[1])).put('acme.tar.gz', pathlib.Path(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder), str(fifo)])
    with fifo.open("wb") as source:
        source.write(packed[0].read_bytes())
        source.flush()
        deadline = time.monotonic() + 60
        while not (drafts := list(folder.glob("*"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        store = DirectoryStore(folder)
        assert [is_clutter(path.name) for path in drafts] == [True]
        while store.left_over() and time.monotonic() < deadline:  # made, and locked in a moment
            time.sleep(0.01)
        assert store.left_over() == [], "its writer lives"
        assert store.contents(frozenset({"acme.tar.gz"}), all_of_ours=False) == {}
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert store.left_over() == [drafts[0].name]
    store.put("acme.tar.gz", packed[0])
    store.remove(drafts[0].name)
    assert [path.name for path in folder.iterdir()] == ["acme.tar.gz"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "models"
    store = DirectoryStore(folder)
    store.put("acme.tar.gz", packed[0])
    with pytest.raises(PenstockError) as caught:
        store.put("acme.tar.gz", tmp_path)  # which no read gets bytes of
    assert (caught.value.code, bool(caught.value.hint)) == ("location-failed", True)
    assert [path.name for path in folder.iterdir()] == ["acme.tar.gz"]
    assert (folder / "acme.tar.gz").read_bytes() == packed[0].read_bytes()


def test_a_link_in_a_folder_is_replaced_and_never_written_through(
    tmp_path: Path, packed: Packed
) -> None:
    folder, elsewhere = tmp_path / "models", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    victim = elsewhere / "victim"
    victim.write_text("precious")
    (folder / "acme.tar.gz").symlink_to(victim)
    (folder / "deep").symlink_to(elsewhere)
    store = DirectoryStore(folder)
    content = Content(digest="", size=0)
    assert store.contents(frozenset({"acme.tar.gz"}), all_of_ours=False) == {"acme.tar.gz": content}
    store.put("acme.tar.gz", packed[0])
    assert not (folder / "acme.tar.gz").is_symlink()
    for call in (lambda: store.put("deep/x/a", packed[0]), lambda: store.remove("deep/victim")):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.code == "location-link-refused"
    assert [path.name for path in elsewhere.iterdir()] == ["victim"]
    assert victim.read_text() == "precious"


def test_what_lies_there_and_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar.gz")
    (tmp_path / "folder.tar.gz").mkdir()
    names = frozenset({"pipe.tar.gz", "folder.tar.gz"})
    found = DirectoryStore(tmp_path).contents(names, all_of_ours=True)
    assert found == {"pipe.tar.gz": Content(digest="", size=0)}


def test_an_upload_that_another_run_just_makes_is_not_left_over(tmp_path: Path) -> None:
    draft = tmp_path / f"{DRAFT_PREFIX}1"
    with draft.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert DirectoryStore(tmp_path).left_over() == []
    assert DirectoryStore(tmp_path).left_over() == [draft.name]


def test_a_package_in_a_private_folder_is_private(tmp_path: Path, packed: Packed) -> None:
    """Nobody reads it who may not enter the folder, whatever the umask allows."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    archive, _ = packed
    before = os.umask(0o022)
    try:
        DirectoryStore(folder).put("below/a.tar.gz", archive)
    finally:
        os.umask(before)
    made = folder / "below", folder / "below" / "a.tar.gz"
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o600]

"""The prefix of a multi-model endpoint: what a name leads to, what lies there, which there are."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifact_files import IR_XML, error_of, member, onnx_bytes, tar_bytes, tar_gz, write
from tests.kit.object_server import ObjectServer, object_server

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.sources import fetch
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.clock import ManualClock
from penstock.errors import CallerError, NotNowError

SETTINGS = ArtifactSettings()


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with object_server() as server:
        yield server


def later() -> ManualClock:
    """A clock far ahead: what was just written counts as settled, and as old."""
    return ManualClock(wall_s=4_000_000_000.0)


def settled(uri: object, **fields: object) -> ModelPrefix:
    return ModelPrefix(str(uri), SETTINGS, clock=later(), **fields)  # type: ignore[arg-type]


def bucket(server: ObjectServer, uri: str = "s3://bucket/models/") -> ModelPrefix:
    return ModelPrefix(uri, ArtifactSettings(s3_endpoint=server.url), clock=later())


def archive(batch: object = "batch") -> bytes:
    return gzip.compress(tar_bytes([member("model.onnx", onnx_bytes(batch=batch))]), mtime=0)


# --- names and places


@pytest.mark.parametrize(
    ("prefix", "name", "uri"),
    [
        ("/models", "a.tar.gz", "/models/a.tar.gz"),
        ("/models/", "team/a b%.tar.gz", "/models/team/a b%.tar.gz"),
        ("file:///my%20models", "a b#?%.onnx", "file:///my%20models/a%20b%23%3F%25.onnx"),
        ("file:///models/?x#y", "a", "file:///models/a"),
        ("s3://bucket/models", "a#?%41.tar.gz", "s3://bucket/models/a#?%41.tar.gz"),
        ("s3://bucket", "a", "s3://bucket/a"),
    ],
)
def test_a_name_is_put_behind_the_prefix_without_a_look_at_it(
    prefix: str, name: str, uri: str
) -> None:
    source = ModelPrefix(prefix, SETTINGS, {"K": "v"}, image="img", seconds_max=9).resolve(name)
    assert (source.uri, source.environment) == (uri, {"K": "v"})
    assert (source.image, source.seconds_max) == ("img", 9)
    assert ArtifactSource.from_dict(source.to_dict()) == source


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "%2e%2e/a", ""])
def test_every_call_refuses_a_name_that_could_leave_the_prefix(
    models: Path, cache: ArtifactCache, name: str
) -> None:
    prefix = settled(models)
    for call in (prefix.resolve, prefix.stamp, lambda name: prefix.fetch(name, cache)):
        assert error_of(lambda call=call: call(name)).code == "target-model-invalid"


@pytest.mark.parametrize("uri", ["https://host/models/", "http://127.0.0.1/", "models/", "gs://b/"])
def test_a_prefix_is_something_that_can_be_listed(uri: str) -> None:
    assert error_of(lambda: ModelPrefix(uri, SETTINGS)).code == "artifact-scheme-unsupported"


def test_percent_signs_of_a_file_name_are_not_decoded(models: Path, cache: ArtifactCache) -> None:
    """`a%20b` and `a b` are two models, whichever way the prefix was written."""
    tar_gz(models / "a%20b.tar.gz", [member("model.onnx", onnx_bytes(batch=1))])
    tar_gz(models / "a b.tar.gz", [member("model.onnx", onnx_bytes(batch=2))])
    for prefix in (settled(models), settled(f"file://{models}")):
        digests = {prefix.fetch(n, cache).detected.digest for n in ("a%20b.tar.gz", "a b.tar.gz")}
        assert len(digests) == 2


# --- what is fetched


def test_an_archive_a_folder_and_a_model_file_are_target_models(
    models: Path, cache: ArtifactCache
) -> None:
    (models / "team/b").mkdir(parents=True)
    tar_gz(models / "team/b/model.tar.gz", [member("m/model.onnx", onnx_bytes(batch=1))])
    write(models, {"folder/model.onnx": onnx_bytes(batch=2), "one.onnx": onnx_bytes(batch=3)})
    write(models, {"triton/config.pbtxt": "", "triton/1/model.onnx": onnx_bytes()})
    prefix = settled(models)
    files = {
        name: prefix.fetch(name, cache).detected.description.file
        for name in ("team/b/model.tar.gz", "folder", "one.onnx", "triton")
    }
    assert files == {
        "team/b/model.tar.gz": "model.onnx",
        "folder": "model.onnx",
        "one.onnx": "one.onnx",
        "triton": "1/model.onnx",
    }


def test_an_archive_and_a_folder_of_one_stem_are_two_models(
    models: Path, cache: ArtifactCache
) -> None:
    tar_gz(models / "a.tar.gz", [member("model.onnx", onnx_bytes(batch=1))])
    write(models, {"a/model.onnx": onnx_bytes(batch=2), "A/model.onnx": onnx_bytes(batch=3)})
    prefix = settled(models)
    assert [entry.name for entry in prefix.list()] == ["A", "a", "a.tar.gz"]
    digests = {prefix.fetch(name, cache).detected.digest for name in ("A", "a", "a.tar.gz")}
    assert len(digests) == 3


def test_models_of_equal_content_share_one_entry_of_the_cache(
    models: Path, cache: ArtifactCache
) -> None:
    for name in ("a.tar.gz", "b.tar.gz"):
        (models / name).write_bytes(archive())
    prefix = settled(models)
    fetched = [prefix.fetch(name, cache).detected for name in ("a.tar.gz", "b.tar.gz")]
    assert fetched[0].root == fetched[1].root
    assert len(cache.entries()) == 1


def test_a_name_without_a_model_is_not_found(
    models: Path, cache: ArtifactCache, server: ObjectServer
) -> None:
    (models / "empty").mkdir()
    for prefix in (settled(models), bucket(server)):
        for name in ("none.tar.gz", "team/none"):
            assert prefix.stamp(name) is None
            error = error_of(lambda p=prefix, n=name: p.fetch(n, cache))  # type: ignore[misc]
            assert (error.code, error.status) == ("target-model-not-found", 404)
    assert settled(models).stamp("empty") is None


def test_a_folder_of_archives_is_a_part_of_their_names_and_no_model(
    models: Path, cache: ArtifactCache, server: ObjectServer
) -> None:
    """Young or not, and nothing of it is read: it may be all that a tenant has."""
    for path in ("dir/sub/b.tar.gz", "dir/sub/README"):
        write(models, {path: archive()})
        server.objects[f"/bucket/models/{path}"] = archive()
    for prefix in (settled(models), ModelPrefix(str(models), SETTINGS), bucket(server)):
        for name in ("dir", "dir/sub"):
            error = error_of(lambda p=prefix, n=name: p.fetch(n, cache))  # type: ignore[misc]
            assert (error.code, error.status) == ("target-model-not-found", 404), name
            assert prefix.stamp(name) is None
    assert cache.entries() == []


def test_a_folder_that_may_be_a_model_is_one_whatever_lies_in_it(
    models: Path, cache: ArtifactCache
) -> None:
    write(models, {"m/model.yaml": b"", "m/data/more.zip": b"x", "t/one/config.pbtxt": b""})
    for name in ("m", "t"):
        assert error_of(lambda n=name: settled(models).fetch(n, cache)).code != (  # type: ignore[misc]
            "target-model-not-found"
        )


def test_adding_a_model_is_copying_it_there(models: Path, cache: ArtifactCache) -> None:
    prefix = settled(models)
    assert (prefix.stamp("new.tar.gz"), prefix.list()) == (None, [])
    (models / "new.tar.gz").write_bytes(archive())
    fetched = prefix.fetch("new.tar.gz", cache)
    assert fetched.stamp == prefix.stamp("new.tar.gz")
    assert [entry.stamp for entry in prefix.list()] == [fetched.stamp]


# --- what replaces it


@pytest.mark.parametrize("name", ["m.tar.gz", "folder"])
def test_another_content_is_another_stamp_and_leaves_the_old_files_as_they_are(
    models: Path, cache: ArtifactCache, name: str
) -> None:
    def put(batch: int) -> None:
        (models / "m.tar.gz").write_bytes(archive(batch))
        write(models, {"folder/model.onnx": onnx_bytes(batch=batch)})

    prefix = settled(models)
    put(1)
    first = prefix.fetch(name, cache)
    assert prefix.stamp(name) == first.stamp
    put(2)
    second = prefix.fetch(name, cache)
    assert prefix.stamp(name) == second.stamp != first.stamp
    assert second.detected.digest != first.detected.digest
    assert (first.detected.root / "model.onnx").read_bytes() == onnx_bytes(batch=1)


def test_a_file_added_to_a_folder_is_another_stamp(models: Path) -> None:
    write(models, {"m/model.onnx": onnx_bytes()})
    prefix = settled(models)
    first = prefix.stamp("m")
    write(models, {"m/labels.txt": "a"})
    assert prefix.stamp("m") != first


def test_the_stamp_of_a_young_file_is_another_one_once_it_can_no_longer_change_unseen(
    models: Path,
) -> None:
    """Two writes within one tick of the file system's clock have one time."""
    (models / "m.tar.gz").write_bytes(archive())
    young = ModelPrefix(str(models), SETTINGS).stamp("m.tar.gz")
    assert young == f"{settled(models).stamp('m.tar.gz')}-young"


def test_a_replaced_object_is_noticed_by_its_etag_alone(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    prefix = bucket(server)
    server.objects["/bucket/models/m.tar.gz"] = archive(1)
    first = prefix.fetch("m.tar.gz", cache)
    assert prefix.stamp("m.tar.gz") == first.stamp
    server.objects["/bucket/models/m.tar.gz"] = archive(2)
    assert prefix.stamp("m.tar.gz") != first.stamp
    assert prefix.fetch("m.tar.gz", cache).detected.digest != first.detected.digest
    server.objects["/bucket/models/m.tar.gz"] = archive(1)
    assert prefix.stamp("m.tar.gz") == first.stamp


def test_stamps_and_the_index_read_no_content(server: ObjectServer) -> None:
    for at in range(50):
        server.objects[f"/bucket/models/{at:02}.tar.gz"] = archive()
    server.objects["/bucket/models/f/model.onnx"] = onnx_bytes()
    prefix = bucket(server)
    assert len(prefix.list()) == 51
    assert prefix.stamp("07.tar.gz")
    assert prefix.stamp("f")
    asked = [request for request in server.requests if not request.startswith("HEAD ")]
    assert all("list-type=2" in request for request in asked)
    assert len(server.requests) < 6


def test_the_last_version_is_served_while_its_bucket_is_out_of_reach(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    server.objects["/bucket/models/m.tar.gz"] = archive()
    prefix = bucket(server)
    first = prefix.fetch("m.tar.gz", cache)
    server.status = 400
    error = error_of(lambda: prefix.stamp("m.tar.gz"))
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-unreachable", True)
    again = prefix.fetch("m.tar.gz", cache)
    assert (again.detected.digest, again.stamp) == (first.detected.digest, "")


# --- links


def test_a_link_inside_the_prefix_is_followed(models: Path, cache: ArtifactCache) -> None:
    """`latest` may be a link to a version, and turning it is a new version."""
    (models / "v1.tar.gz").write_bytes(archive(1))
    (models / "v2.tar.gz").write_bytes(archive(2))
    (models / "latest.tar.gz").symlink_to("v1.tar.gz")
    prefix = settled(models)
    first = prefix.fetch("latest.tar.gz", cache)
    (models / "next").symlink_to("v2.tar.gz")
    (models / "next").rename(models / "latest.tar.gz")
    assert prefix.stamp("latest.tar.gz") != first.stamp
    second = prefix.fetch("latest.tar.gz", cache)
    assert second.detected.digest == prefix.fetch("v2.tar.gz", cache).detected.digest


def test_a_link_that_leads_out_of_the_prefix_is_refused(
    tmp_path: Path, models: Path, cache: ArtifactCache
) -> None:
    write(tmp_path, {"models-of-others/m/model.onnx": onnx_bytes()})
    (tmp_path / "models-of-others/m.tar.gz").write_bytes(archive())
    outside = tmp_path / "models-of-others"
    (models / "m.tar.gz").symlink_to(outside / "m.tar.gz")
    (models / "m").symlink_to(outside / "m")
    (models / "team").symlink_to(outside)
    (models / "up").symlink_to("../models-of-others")
    write(models, {"half/other.txt": "x"})
    (models / "half/model.onnx").symlink_to(outside / "m/model.onnx")
    prefix = settled(models)
    for name in ("m.tar.gz", "m", "team/m", "team/m.tar.gz", "up/m", "half"):
        for call in (prefix.stamp, lambda name: prefix.fetch(name, cache)):
            error = error_of(lambda c=call, n=name: c(n))  # type: ignore[misc]
            assert error.code == "artifact-link-refused", name
    assert prefix.list() == []


def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_read_through_it(
    tmp_path: Path, models: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"secret/model.onnx": onnx_bytes()})
    write(models, {"m/model.onnx": onnx_bytes()})
    copy = fetch.copy_file

    def copy_late(*arguments: object) -> object:
        if not (models / "m").is_symlink():
            (models / "m").rename(models / "old")
            (models / "m").symlink_to(tmp_path / "secret")
        return copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("penstock.artifacts.prepare.copy_file", copy_late)
    error = error_of(lambda: settled(models).fetch("m", cache))
    assert error.code == "artifact-link-refused"
    assert cache.entries() == []


def test_the_prefix_itself_may_be_a_link(
    tmp_path: Path, models: Path, cache: ArtifactCache
) -> None:
    (models / "m.tar.gz").write_bytes(archive())
    (tmp_path / "current").symlink_to(models)
    prefix = settled(tmp_path / "current")
    assert [entry.name for entry in prefix.list()] == ["m.tar.gz"]
    assert prefix.fetch("m.tar.gz", cache).stamp == prefix.stamp("m.tar.gz")


# --- while it is uploaded


def test_an_object_replaced_while_it_loads_is_one_version_or_the_other(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    """A folder's files are read one after the other: the first of one version is not joined with
    the second of the next. The second try finds the new version."""
    for part, batch in (("model.onnx", 1), ("notes.txt", 1)):
        server.objects[f"/bucket/models/m/{part}"] = onnx_bytes(batch=batch)
    prefix = bucket(server)

    def replace(path: str) -> None:
        if path.endswith("/m/notes.txt"):
            for part in ("model.onnx", "notes.txt"):
                server.objects[f"/bucket/models/m/{part}"] = onnx_bytes(batch=2)

    server.before = replace
    fetched = prefix.fetch("m", cache)
    root = fetched.detected.root
    assert (root / "model.onnx").read_bytes() == (root / "notes.txt").read_bytes()
    assert fetched.stamp == prefix.stamp("m")


def test_files_added_to_a_folder_while_it_is_read_are_not_missed(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    server.objects["/bucket/models/m/model.onnx"] = onnx_bytes()

    def add(path: str) -> None:
        if path.endswith("/m/model.onnx"):
            server.objects["/bucket/models/m/labels.txt"] = b"a"

    server.before = add
    fetched = bucket(server).fetch("m", cache)
    assert (fetched.detected.root / "labels.txt").read_bytes() == b"a"


def test_what_changes_again_and_again_is_not_taken_now(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    server.objects["/bucket/models/m/model.onnx"] = onnx_bytes()
    changes: list[str] = []

    def add(path: str) -> None:
        if path.endswith("/m/model.onnx"):
            changes.append(path)
            server.objects[f"/bucket/models/m/{len(changes)}.txt"] = b"a"

    server.before = add
    error = error_of(lambda: bucket(server).fetch("m", cache))
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-changed", True)
    assert error.retry_after_s == 1.0


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_an_archive_of_which_a_part_is_there_is_waited_for(
    models: Path, cache: ArtifactCache, kept: float
) -> None:
    whole = archive()
    (models / "m.tar.gz").write_bytes(whole[: int(len(whole) * kept)])
    prefix = ModelPrefix(str(models), SETTINGS)
    error = error_of(lambda: prefix.fetch("m.tar.gz", cache))
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-incomplete", True)
    assert error.retry_after_s == 1.0
    (models / "m.tar.gz").write_bytes(whole)
    assert prefix.fetch("m.tar.gz", cache).detected.description.file == "model.onnx"


@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_other_archives_are_waited_for_as_well(
    models: Path, cache: ArtifactCache, suffix: str
) -> None:
    part = tar_bytes([member("model.onnx", onnx_bytes())])[:600]
    if suffix == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("model.onnx", onnx_bytes())
        part = buffer.getvalue()[:-30]
    (models / f"m.{suffix}").write_bytes(part)
    prefix = ModelPrefix(str(models), SETTINGS)
    assert error_of(lambda: prefix.fetch(f"m.{suffix}", cache)).code == "artifact-incomplete"


def test_an_archive_cut_short_is_waited_for_whatever_its_age(
    models: Path, cache: ArtifactCache
) -> None:
    """Uploads pause. The hint says what to do where nobody goes on."""
    (models / "m.tar.gz").write_bytes(archive()[:-20])
    error = error_of(lambda: settled(models).fetch("m.tar.gz", cache))
    assert error.code == "artifact-incomplete"
    assert "Upload it again" in error.hint


def test_a_folder_of_which_a_file_is_missing_is_waited_for_while_it_is_young(
    models: Path, cache: ArtifactCache
) -> None:
    write(models, {"m/model.xml": IR_XML, "n/model.onnx": onnx_bytes()[:40]})
    for name, code in (("m", "artifact-incomplete"), ("n", "model-file-invalid")):
        young = error_of(lambda n=name: ModelPrefix(str(models), SETTINGS).fetch(n, cache))  # type: ignore[misc]
        assert (young.code, isinstance(young, NotNowError)) == ("artifact-incomplete", True)
        old = error_of(lambda n=name: settled(models).fetch(n, cache))  # type: ignore[misc]
        assert (old.code, isinstance(old, CallerError)) == (code, True)


def test_what_no_upload_looks_like_is_refused_at_once(models: Path, cache: ArtifactCache) -> None:
    tar_gz(models / "m.tar.gz", [member("../evil", b"x")])
    error = error_of(lambda: ModelPrefix(str(models), SETTINGS).fetch("m.tar.gz", cache))
    assert error.code == "artifact-path-unsafe"


# --- the index


def test_the_index_has_archives_model_files_and_model_folders_and_nothing_else(
    models: Path, server: ObjectServer
) -> None:
    """A directory and a bucket with the same files have the same index."""
    files = {
        "a.tar.gz": archive(),
        "b.onnx": onnx_bytes(),
        "readme.md": b"x",
        ".upload.tar.gz": archive(),
        "c.tar.gz.part": b"x",
        "d.tar.gz~": b"x",
        ".git/e.tar.gz": archive(),
        "team/f.tar.gz": archive(),
        "team/g/model.onnx": onnx_bytes(),
        "team/g/deep/notes.txt": b"x",
        "team/g/.hidden": b"x",
        "triton/config.pbtxt": b"",
        "triton/1/model.onnx": onnx_bytes(),
        "lone/1/model.onnx": onnx_bytes(),
        "lone/labels.txt": b"",
        "python/12/model.py": b"",
        "years/2024/h.tar.gz": archive(),
        "hf/config.json": b"{}",
        "hf/extra.tar.gz": b"x",
        "code-only/code/inference.py": b"",
        "nothing/notes.txt": b"x",
        "x/y/z/model.yaml": b"",
    }
    write(models, files)
    server.objects = {f"/bucket/models/{name}": content for name, content in files.items()}
    server.objects["/bucket/models/marked"] = b""
    server.objects["/bucket/models/marked/model.onnx"] = onnx_bytes()
    server.objects["/bucket/models/a\\b.tar.gz"] = archive()
    server.objects["/bucket/models-of-others/a.tar.gz"] = archive()
    expected = [
        "a.tar.gz",
        "b.onnx",
        "code-only",
        "hf",
        "lone",
        "python",
        "team/f.tar.gz",
        "team/g",
        "triton",
        "x/y/z",
        "years/2024/h.tar.gz",
    ]
    assert [entry.name for entry in settled(models).list()] == expected
    prefix = bucket(server)
    assert [entry.name for entry in prefix.list()] == sorted([*expected, "marked"])
    for each in (settled(models), prefix):
        for entry in each.list():
            if entry.name != "marked":
                assert entry.stamp == each.stamp(entry.name)
    sizes = {entry.name: entry.size_bytes for entry in prefix.list()}
    assert sizes["a.tar.gz"] == len(archive())
    assert sizes["hf"] == 3


def test_an_object_that_has_the_name_of_a_folder_is_the_one_that_is_meant(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    server.objects["/bucket/models/m.tar.gz"] = archive(1)
    server.objects["/bucket/models/m.tar.gz/model.onnx"] = onnx_bytes(batch=2)
    prefix = bucket(server)
    assert [entry.name for entry in prefix.list()] == ["m.tar.gz"]
    fetched = prefix.fetch("m.tar.gz", cache)
    assert (fetched.detected.root / "model.onnx").read_bytes() == onnx_bytes(batch=1)
    assert prefix.list()[0].stamp == fetched.stamp


def test_an_index_is_read_page_by_page(models: Path, server: ObjectServer) -> None:
    for at in range(7):
        (models / f"{at}.tar.gz").write_bytes(archive())
        server.objects[f"/bucket/models/{at}.tar.gz"] = archive()
    for prefix in (settled(models), bucket(server)):
        names: list[str] = []
        while page := prefix.list(after=names[-1] if names else "", limit=3):
            assert len(page) <= 3
            names += [entry.name for entry in page]
        assert names == [f"{at}.tar.gz" for at in range(7)]


def test_a_link_that_goes_round_does_not_keep_the_index(models: Path) -> None:
    (models / "team").mkdir()
    (models / "team/loop").symlink_to("..")
    (models / "team/a.tar.gz").write_bytes(archive())
    assert [entry.name for entry in settled(models).list()] == ["team/a.tar.gz"]


@pytest.mark.parametrize("folder", ["", "team/"])
def test_one_bad_entry_hides_no_other_model(models: Path, folder: str) -> None:
    """A link to itself, one to nothing, a pipe, a name that is no text, a folder that is locked."""
    place = models / folder
    write(models, {f"{folder}a/model.onnx": onnx_bytes(), f"{folder}sub/x.txt": b""})
    (place / "z.tar.gz").write_bytes(archive())
    (place / "loop").symlink_to("loop")
    (place / "there.tar.gz").symlink_to("back.tar.gz")
    (place / "back.tar.gz").symlink_to("there.tar.gz")
    (place / "dangling.tar.gz").symlink_to("nothing")
    os.mkfifo(place / "pipe.tar.gz")
    Path(os.fsdecode(os.fsencode(place) + b"/\xff.tar.gz")).write_bytes(archive())
    (place / "sub").chmod(0)
    served = [entry.name for entry in settled(models).list() if entry.stamp]
    (place / "sub").chmod(0o700)
    assert served == [f"{folder}a", f"{folder}z.tar.gz"]


def test_an_entry_that_cannot_be_served_as_it_lies_there_has_no_stamp(models: Path) -> None:
    write(models, {"m/model.onnx": onnx_bytes()})
    (models / "m/other").symlink_to("/etc/hostname")
    assert [(entry.name, entry.stamp) for entry in settled(models).list()] == [("m", "")]


def test_a_prefix_that_is_not_there_is_an_error_of_its_owner(models: Path) -> None:
    error = error_of(settled(models / "none").list)
    assert (error.code, isinstance(error, CallerError)) == ("artifact-not-found", True)


def test_a_bucket_mapped_to_a_directory_is_a_directory(
    tmp_path: Path, models: Path, cache: ArtifactCache
) -> None:
    (models / "m.tar.gz").write_bytes(archive())
    (models / "out").symlink_to("/etc")
    settings = ArtifactSettings(s3_local={"bucket": str(tmp_path)})
    prefix = ModelPrefix("s3://bucket/models/", settings, clock=later())
    assert [entry.name for entry in prefix.list()] == ["m.tar.gz"]
    assert prefix.fetch("m.tar.gz", cache).stamp == prefix.stamp("m.tar.gz")
    assert error_of(lambda: prefix.stamp("out/hostname")).code == "artifact-link-refused"

"""From a URI to a described model: every scheme, the cache behind it, and each way it can fail."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_files import IR_XML, budget, error_of, member, onnx_bytes, tar_bytes, tar_gz, write
from tests.kit import certificates
from tests.kit.object_server import ObjectServer, object_server

from penstock.artifacts.cache.cache import ArtifactCache, CacheEntry
from penstock.artifacts.prepare import obtain, prepare
from penstock.artifacts.sources import fetch, http_source
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource, shown_uri
from penstock.clock import ManualClock
from penstock.config import ControlConfig, ServerConfig
from penstock.errors import CallerError, NotNowError


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with object_server() as server:
        yield server


def future() -> ManualClock:
    """A clock an hour ahead: what was just written counts as settled."""
    return ManualClock(wall_s=4_000_000_000.0)


def files_of(entry: CacheEntry) -> dict[str, bytes]:
    return {
        path.relative_to(entry.root).as_posix(): path.read_bytes()
        for path in entry.root.rglob("*")
        if path.is_file()
    }


def failure(source: ArtifactSource, cache: ArtifactCache, settings: ArtifactSettings | None = None):
    error = error_of(lambda: prepare(source, cache, settings))
    assert list((cache.root / ".staging").iterdir()) == []
    return error


# --- local sources


@pytest.mark.parametrize("scheme", ["", "file://", "file://localhost", "FILE://"])
def test_a_directory_is_copied_and_described(
    tmp_path: Path, cache: ArtifactCache, scheme: str
) -> None:
    source = write(tmp_path / "my model", {"model.onnx": onnx_bytes(), "notes/a.txt": b"n"})
    uri = f"{scheme}{source}" if not scheme else f"{scheme}{str(source).replace(' ', '%20')}"
    detected = prepare(ArtifactSource(uri=uri), cache)
    assert detected.description.runtime == "openvino"
    assert detected.description.file == "model.onnx"
    assert detected.root == cache.root / detected.digest / "files"
    assert (detected.root / "notes/a.txt").read_bytes() == b"n"


def test_a_later_change_of_the_source_does_not_change_a_running_model(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    source = write(tmp_path / "m", {"model.onnx": onnx_bytes(batch=1)})
    first = prepare(ArtifactSource(uri=str(source)), cache)
    (source / "model.onnx").write_bytes(onnx_bytes(batch=2))
    second = prepare(ArtifactSource(uri=str(source)), cache)
    assert first.digest != second.digest
    assert (first.root / "model.onnx").read_bytes() == onnx_bytes(batch=1)


def test_equal_content_is_one_entry_wherever_it_comes_from(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    one = write(tmp_path / "one", {"model.onnx": onnx_bytes()})
    two = write(tmp_path / "two", {"model.onnx": onnx_bytes()})
    digests = {prepare(ArtifactSource(uri=str(path)), cache).digest for path in (one, two)}
    # A single model file is an artifact of one file.
    digests.add(prepare(ArtifactSource(uri=str(one / "model.onnx")), cache).digest)
    assert len(digests) == 1


def test_what_is_known_by_its_digest_is_not_looked_for_again(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("model.onnx", onnx_bytes())])
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = ArtifactSource(uri=str(archive), sha256=digest)
    first = obtain(source, cache, ArtifactSettings())
    archive.unlink()
    assert obtain(source, cache, ArtifactSettings()) == first


@pytest.mark.parametrize(("mode", "kept"), [(0o755, 0o555), (0o600, 0o444)])
def test_what_is_kept_is_read_only_and_as_executable_as_it_was(
    tmp_path: Path, mode: int, kept: int
) -> None:
    folder = write(tmp_path / "m", {"model.onnx": onnx_bytes()})
    (folder / "model.onnx").chmod(mode)
    for uri in (folder, folder / "model.onnx"):
        cache = ArtifactCache(tmp_path / f"cache of {uri.name}")  # one would know the other's entry
        entry = obtain(ArtifactSource(uri=str(uri)), cache, ArtifactSettings())
        assert (entry.root / "model.onnx").stat().st_mode & 0o7777 == kept


def test_an_archive_is_known_by_the_digest_of_its_bytes(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("m/model.onnx", onnx_bytes())])
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    detected = prepare(ArtifactSource(uri=f"file://{archive}", sha256=digest), cache)
    assert detected.digest == digest
    assert detected.root == cache.root / digest / "files" / "m"


def test_an_unchanged_source_is_not_read_again(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))
    settings = ArtifactSettings()
    first = obtain(source, cache, settings, clock=future())

    def unexpected(*_: object) -> str:
        raise AssertionError("the source was read again")

    monkeypatch.setattr("penstock.artifacts.prepare.copy_file", unexpected)
    assert obtain(source, cache, settings, clock=future()) == first


def test_a_source_written_a_moment_ago_is_read_again(tmp_path: Path, cache: ArtifactCache) -> None:
    """Its next change could happen within one tick of the file system's clock."""
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))
    prepare(source, cache)
    assert list((cache.root / ".sources").iterdir()) == []


def test_an_entry_that_is_gone_is_fetched_again(tmp_path: Path, cache: ArtifactCache) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))
    first = prepare(source, cache, clock=future())
    assert cache.evict((), 0, idle_s_min=-(10**12)) == [first.digest]
    assert prepare(source, cache, clock=future()) == first
    assert (first.root / "model.onnx").is_file()


def test_links_in_a_directory_must_stay_inside(tmp_path: Path, cache: ArtifactCache) -> None:
    source = write(tmp_path / "m", {"blobs/1": onnx_bytes()})
    (source / "model.onnx").symlink_to("blobs/1")
    detected = prepare(ArtifactSource(uri=str(source)), cache)
    assert not (detected.root / "model.onnx").is_symlink()
    (source / "secret").symlink_to("/etc/hostname")
    assert failure(ArtifactSource(uri=str(source)), cache).code == "artifact-link-refused"


def test_pipes_are_refused_and_not_waited_for(tmp_path: Path, cache: ArtifactCache) -> None:
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m/model.onnx")
    for path in (tmp_path / "m", tmp_path / "m/model.onnx"):
        error = failure(ArtifactSource(uri=str(path)), cache)
        assert error.code == "artifact-type-unsupported"


def test_a_file_that_changes_while_it_is_read_is_not_taken(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "m", {"model.onnx": onnx_bytes()})
    copy = fetch.copy_file

    def copy_late(file, to, budget):
        (source / "model.onnx").write_bytes(b"half")
        return copy(file, to, budget)

    monkeypatch.setattr("penstock.artifacts.prepare.copy_file", copy_late)
    error = failure(ArtifactSource(uri=str(source)), cache)
    assert isinstance(error, NotNowError)
    assert error.code == "artifact-changed"
    assert "model.onnx" in error.message


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("/nowhere/model.tar.gz", "artifact-not-found"),
        ("file:///nowhere", "artifact-not-found"),
        ("file://elsewhere/m", "artifact-uri-invalid"),
        ("file:relative", "artifact-uri-invalid"),
        ("models/m.tar.gz", "artifact-scheme-unsupported"),
        ("gs://bucket/m", "artifact-scheme-unsupported"),
        ("ftp://host/m", "artifact-scheme-unsupported"),
        ("http://example.com/m.tar.gz", "artifact-scheme-unsupported"),
        ("http://127.0.0.1.example.com/m.tar.gz", "artifact-scheme-unsupported"),
        ("https://", "artifact-uri-invalid"),
        ("https://host/folder/", "artifact-uri-invalid"),
        ("https://host:port/m", "artifact-uri-invalid"),
        ("http://[::1/m", "artifact-uri-invalid"),
        ("s3://", "artifact-uri-invalid"),
        ("s3://local/../../etc", "artifact-uri-invalid"),
        ("/a\0b", "artifact-uri-invalid"),
    ],
)
def test_a_uri_that_names_nothing_servable_is_an_error(
    tmp_path: Path, cache: ArtifactCache, uri: str, code: str
) -> None:
    settings = ArtifactSettings(s3_local={"local": str(tmp_path)})
    error = failure(ArtifactSource(uri=uri), cache, settings)
    assert isinstance(error, CallerError)
    assert error.code == code


def test_an_empty_directory_is_an_error(tmp_path: Path, cache: ArtifactCache) -> None:
    (tmp_path / "m").mkdir()
    assert failure(ArtifactSource(uri=str(tmp_path / "m")), cache).code == "artifact-empty"


def test_bounds_on_bytes_files_and_time(tmp_path: Path, cache: ArtifactCache) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {f"{n}.onnx": bytes(100) for n in "ab"})))
    assert failure(source, cache, ArtifactSettings(bytes_max=150)).code == "artifact-too-large"
    assert failure(source, cache, ArtifactSettings(files_max=1)).code == "artifact-too-many-files"
    error = failure(source, cache, ArtifactSettings(seconds_max=0.0))
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-timeout", True)


def test_a_preparation_that_nobody_wants_any_more_stops(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(NotNowError, match="no longer wanted"):
        prepare(source, cache, cancelled=cancelled)


def test_a_full_disk_is_named_before_the_first_byte(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))

    class FullDisk:
        free = 1000

    monkeypatch.setattr("penstock.artifacts.files.budget.shutil.disk_usage", lambda _: FullDisk)
    error = failure(source, cache)
    assert error.code == "artifact-disk-full"
    assert str(cache.root) in error.message


def test_a_disk_that_fills_up_on_the_way_is_named(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ArtifactSource(uri=str(write(tmp_path / "m", {"model.onnx": onnx_bytes()})))
    real_open = os.open

    def full(path, flags, *args, **kwargs):
        if flags & os.O_EXCL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr("penstock.artifacts.sources.fetch.os.open", full)
    error = failure(source, cache)
    assert error.code == "artifact-disk-full"


# --- archives


def test_the_compression_type_decides_what_an_archive_is(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("model.onnx", onnx_bytes())])
    settings = ArtifactSettings()
    plain = obtain(ArtifactSource(uri=str(archive), compressed=False), cache, settings)
    assert files_of(plain) == {"model.tar.gz": archive.read_bytes()}
    unpacked = obtain(ArtifactSource(uri=str(archive), compressed=True), cache, settings)
    assert files_of(unpacked) == {"model.onnx": onnx_bytes()}
    folder = write(tmp_path / "m", {"model.onnx": onnx_bytes()})
    for uri in (folder, folder / "model.onnx"):
        error = failure(ArtifactSource(uri=str(uri), compressed=True), cache)
        assert error.code == "archive-unreadable"


def test_model_files_that_are_zip_archives_inside_stay_files(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    """PyTorch and NumPy write zip archives; only a name that says zip means an artifact."""
    for name in ("weights.npz", "model.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("a.npy", "x")
    settings = ArtifactSettings()
    kept = obtain(ArtifactSource(uri=str(tmp_path / "weights.npz")), cache, settings)
    assert list(files_of(kept)) == ["weights.npz"]
    unpacked = obtain(ArtifactSource(uri=str(tmp_path / "model.zip")), cache, settings)
    assert files_of(unpacked) == {"a.npy": b"x"}


def test_a_digest_that_does_not_match_is_refused(tmp_path: Path, cache: ArtifactCache) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("model.onnx", onnx_bytes())])
    error = failure(ArtifactSource(uri=str(archive), sha256="0" * 64), cache)
    assert error.code == "artifact-digest-mismatch"
    folder = write(tmp_path / "m", {"model.onnx": onnx_bytes()})
    error = failure(ArtifactSource(uri=str(folder), sha256="0" * 64), cache)
    assert error.code == "artifact-digest-mismatch"


def test_a_hostile_archive_leaves_nothing_behind(tmp_path: Path, cache: ArtifactCache) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("../evil", b"x")])
    error = failure(ArtifactSource(uri=str(archive)), cache)
    assert error.code == "artifact-path-unsafe"
    assert str(archive) in error.message
    assert [path.name for path in cache.root.iterdir() if path.name[0] != "."] == []


def test_an_archive_cut_short_is_waited_for_while_it_may_still_be_copied(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    archive = tar_gz(tmp_path / "model.tar.gz", [member("model.onnx", onnx_bytes())])
    archive.write_bytes(archive.read_bytes()[:-20])
    source = ArtifactSource(uri=str(archive))
    young = failure(source, cache)
    assert (young.code, isinstance(young, NotNowError)) == ("artifact-incomplete", True)
    old = error_of(lambda: prepare(source, cache, clock=future()))
    assert (old.code, isinstance(old, CallerError)) == ("archive-truncated", True)


def test_a_wrong_model_of_its_own_is_refused_at_once_however_young(
    tmp_path: Path, cache: ArtifactCache
) -> None:
    """It is deployed once all of it is there, by somebody who waits for the answer."""
    write(tmp_path / "m", {"model.xml": IR_XML})
    error = failure(ArtifactSource(uri=str(tmp_path / "m")), cache)
    assert (error.code, isinstance(error, CallerError)) == ("artifact-incomplete", True)


def test_a_file_that_was_replaced_while_it_was_read_is_read_once_more(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "m", {"model.onnx": onnx_bytes(batch=1)})
    copy = fetch.copy_file
    copied: list[str] = []

    def copy_late(file: Any, to: Any, budget: Any) -> str:
        if not copied:
            (source / "model.onnx").write_bytes(onnx_bytes(batch=2))
        copied.append(file.name)
        return copy(file, to, budget)

    monkeypatch.setattr("penstock.artifacts.prepare.copy_file", copy_late)
    detected = prepare(ArtifactSource(uri=str(source)), cache)
    assert (detected.root / "model.onnx").read_bytes() == onnx_bytes(batch=2)
    assert len(copied) == 2


# --- objects behind a network


def test_an_object_is_fetched_once_by_its_etag(server: ObjectServer, cache: ArtifactCache) -> None:
    server.objects["/models/m v1.tar.gz"] = gzip.compress(
        tar_bytes([member("model.onnx", onnx_bytes())])
    )
    source = ArtifactSource(uri=f"{server.url}/models/m%20v1.tar.gz?X-Amz-Signature=a%2Fb&y=1")
    first = prepare(source, cache)
    assert prepare(source, cache) == first
    # The query and the percent-encoding of a presigned URL reach the server untouched.
    assert set(server.requests) == {"GET /models/m%20v1.tar.gz?X-Amz-Signature=a%2Fb&y=1"}
    server.objects["/models/m v1.tar.gz"] = gzip.compress(
        tar_bytes([member("model.onnx", onnx_bytes(batch=1))])
    )
    assert prepare(source, cache).digest != first.digest
    records = [json.loads(path.read_text()) for path in (cache.root / ".sources").iterdir()]
    assert [record["uri"] for record in records] == [f"{server.url}/models/m%20v1.tar.gz"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "artifact-not-found", CallerError),
        (403, "artifact-access-denied", CallerError),
        (401, "artifact-access-denied", CallerError),
        (400, "artifact-unreachable", NotNowError),
    ],
)
def test_a_server_that_refuses(
    server: ObjectServer, cache: ArtifactCache, status: int, code: str, kind: type
) -> None:
    server.status = status
    error = failure(
        ArtifactSource(uri=f"{server.url.replace('//', '//user:pw@')}/m?sig=secret"), cache
    )
    assert error.code == code
    assert isinstance(error, kind)
    assert "secret" not in f"{error.message}{error.hint}"
    assert "pw" not in error.message


@pytest.mark.parametrize("uri", ["{url}/m.onnx", "s3://bucket/m.onnx"])
def test_what_the_far_end_writes_beside_an_artifact_is_not_passed_on(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    """Else who may name a URL reads, through the error, what only the server can ask for."""
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    server.error_body = b"<Error><Message>internal: the secret</Message></Error>"
    settings = ArtifactSettings(s3_endpoint=server.url)
    for status in (400, 403, 404, 418, 500):
        server.status = status
        error = failure(ArtifactSource(uri=uri.format(url=server.url)), cache, settings)
        assert "the secret" not in f"{error.message}{error.hint}"


def test_a_redirect_is_followed_a_few_times(server: ObjectServer, cache: ArtifactCache) -> None:
    server.objects["/m.onnx"] = onnx_bytes()
    server.redirects = {"/start.onnx": "/1", "/1": f"{server.url}/2", "/2": "/m.onnx"}
    source = ArtifactSource(uri=f"{server.url}/start.onnx")
    assert files_of(prepare(source, cache)) == {"start.onnx": onnx_bytes()}
    server.redirects = {"/loop.onnx": "/loop.onnx"}
    error = failure(ArtifactSource(uri=f"{server.url}/loop.onnx"), cache)
    assert error.code == "artifact-redirect-refused"
    assert server.requests.count("GET /loop.onnx") == 6


def test_the_credentials_of_an_address_stay_with_its_host(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    """What a redirect leads to is told nothing, and neither is the host itself on the way back."""
    with object_server() as other:
        other.redirects = {"/2": f"{server.url}/m.onnx"}
        elsewhere = other.url.replace("//", "//user:pw@")
        server.redirects = {"/start.onnx": "/1", "/1": f"{elsewhere}/2"}
        server.objects["/m.onnx"] = onnx_bytes()
        address = server.url.replace("//", "//user:pw@")
        prepare(ArtifactSource(uri=f"{address}/start.onnx"), cache)
        assert other.authorizations == [""]
        assert server.authorizations == ["Basic dXNlcjpwdw=="] * 2 + [""]


def test_a_redirect_to_another_scheme_is_refused(
    server: ObjectServer, cache: ArtifactCache
) -> None:
    for scheme in ("https", "file", "ftp"):
        server.redirects = {"/m.onnx": f"{scheme}://127.0.0.1/x"}
        error = failure(ArtifactSource(uri=f"{server.url}/m.onnx"), cache)
        assert error.code == "artifact-redirect-refused"


@pytest.mark.parametrize(
    ("first", "then", "admitted"),
    [
        ("93.184.216.34", "93.184.216.35", True),
        ("93.184.216.34", "127.0.0.1", False),
        ("93.184.216.34", "10.0.0.1", False),
        ("93.184.216.34", "192.168.1.1", False),
        ("93.184.216.34", "169.254.169.254", False),
        ("93.184.216.34", "::1", False),
        ("93.184.216.34", "::ffff:10.0.0.1", False),
        ("93.184.216.34", "fd00::1", False),
        ("93.184.216.34", "0.0.0.0", False),
        ("10.0.0.1", "10.0.0.2", True),
        ("10.0.0.1", "93.184.216.34", True),
        ("10.0.0.1", "169.254.169.254", False),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_a_redirect_leads_inside_only_from_inside(
    monkeypatch: pytest.MonkeyPatch, first: str, then: str, admitted: bool
) -> None:
    """The addresses are those of connections, here as a network would give them."""
    places = iter((first, then))

    class RedirectAnswer:
        headers = {"location": "/there"}  # noqa: RUF012

        def __init__(self, status: int) -> None:
            self.status = status

        def close(self) -> None:
            """Nothing is open."""

    def asked(url: str, admits: Any, given: Any, *, credentials: bool) -> RedirectAnswer:
        if not admits(next(places)):
            raise http_source._refused("it", "inside")
        return RedirectAnswer(200 if url.endswith("/there") else 302)

    monkeypatch.setattr(http_source, "_asked", asked)
    if admitted:
        assert http_source._followed("https://first/here", budget()).status == 200
    else:
        with pytest.raises(CallerError):
            http_source._followed("https://first/here", budget())


def test_what_is_asked_is_the_address_of_the_connection_before_a_word_is_sent(
    server: ObjectServer,
) -> None:
    asked: list[str] = []

    def admits(address: str) -> bool:
        return asked.append(address) is not None

    url = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(CallerError) as caught:
        http_source._asked(f"{url}/m.onnx", admits, budget(), credentials=False)
    assert caught.value.code == "artifact-redirect-refused"
    assert (asked, server.requests) == (["127.0.0.1"], [])


def test_an_answer_that_ends_early_is_not_a_model(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    server.objects["/m.onnx"] = onnx_bytes()
    server.cut_at = 20
    error = failure(ArtifactSource(uri=f"{server.url}/m.onnx"), cache)
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-unreachable", True)


def test_an_answer_without_a_size_is_refused(server: ObjectServer, cache: ArtifactCache) -> None:
    server.objects["/m.onnx"] = onnx_bytes()
    server.chunked = True
    assert (
        failure(ArtifactSource(uri=f"{server.url}/m.onnx"), cache).code == "artifact-size-unknown"
    )


def test_a_host_that_does_not_answer(
    cache: ArtifactCache, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    error = failure(ArtifactSource(uri="http://127.0.0.1:1/m.onnx"), cache)
    assert (error.code, isinstance(error, NotNowError)) == ("artifact-unreachable", True)


def test_a_private_certificate_authority(
    tmp_path: Path, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    tls, bundle = certificates.make(tmp_path)
    with object_server(tls) as server:
        server.objects["/m.onnx"] = onnx_bytes(batch=1)
        source = ArtifactSource(uri=f"{server.url}/m.onnx")
        assert failure(source, cache).code == "artifact-certificate-untrusted"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
        assert failure(source, cache).code == "artifact-ca-bundle"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        assert files_of(prepare(source, cache)) == {"m.onnx": onnx_bytes(batch=1)}


def test_a_source_that_cannot_be_reached_is_what_it_last_was(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that comes up again without its object store serves what it served before."""
    monkeypatch.setattr("penstock.artifacts.sources.object_store.RETRIES_MAX", 0)
    server.objects["/m.onnx"] = onnx_bytes()
    source = ArtifactSource(uri=f"{server.url}/m.onnx")
    first = prepare(source, cache)
    server.status = 500
    assert prepare(source, cache).digest == first.digest
    server.status = 404  # it is gone, and that is an answer
    assert failure(source, cache).code == "artifact-not-found"


def test_an_s3_prefix_is_taken_file_by_file(server: ObjectServer, cache: ArtifactCache) -> None:
    server.objects |= {
        "/bucket/team/m/": b"",
        "/bucket/team/m/sub/": b"",
        "/bucket/team/m/sub/a b%20.txt": b"odd name",
        "/bucket/team/m/model.onnx": onnx_bytes(),
        "/bucket/team/m-other/model.onnx": b"not ours",
    }
    settings = ArtifactSettings(s3_endpoint=server.url)
    for uri in ("s3://bucket/team/m/", "s3://bucket/team/m"):
        entry = obtain(ArtifactSource(uri=uri), cache, settings)
        assert files_of(entry) == {"model.onnx": onnx_bytes(), "sub/a b%20.txt": b"odd name"}
    assert set(server.authorizations) == {""}  # no credentials: a public bucket


def test_an_s3_object_is_fetched_with_the_credentials_of_the_environment(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    server.objects["/bucket/m.tar.gz"] = gzip.compress(
        tar_bytes([member("model.xml", IR_XML.encode()), member("model.bin", bytes(16))])
    )
    settings = ArtifactSettings(s3_endpoint=server.url)
    detected = prepare(ArtifactSource(uri="s3://bucket/m.tar.gz"), cache, settings)
    assert detected.description.file == "model.xml"
    assert all("Credential=AKIAEXAMPLE/" in line for line in server.authorizations)
    error = failure(ArtifactSource(uri="s3://bucket/missing"), cache, settings)
    assert error.code == "artifact-not-found"
    assert "s3://bucket/missing" in error.message


def test_an_environment_made_for_the_aws_tools_is_enough(
    server: ObjectServer, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS_ENDPOINT_URL_S3 goes before AWS_ENDPOINT_URL, and control.s3_endpoint before both."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    server.objects["/bucket/model.onnx"] = onnx_bytes()
    source = ArtifactSource(uri="s3://bucket/model.onnx")
    assert prepare(source, cache).description.file == "model.onnx"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    server.objects["/bucket/other.onnx"] = onnx_bytes()  # what is cached would need no answer
    other = ArtifactSource(uri="s3://bucket/other.onnx")
    assert obtain(other, cache, ArtifactSettings(s3_endpoint=server.url)).size


def test_a_hostile_s3_prefix_is_refused(server: ObjectServer, cache: ArtifactCache) -> None:
    server.objects["/bucket/m/a\\b"] = b"x"
    settings = ArtifactSettings(s3_endpoint=server.url)
    error = failure(ArtifactSource(uri="s3://bucket/m/"), cache, settings)
    assert error.code == "artifact-path-unsafe"


def test_a_bucket_may_stand_for_a_local_directory(tmp_path: Path, cache: ArtifactCache) -> None:
    write(tmp_path / "b", {"team/m?v#1/model.onnx": onnx_bytes()})
    settings = ArtifactSettings(s3_local={"bucket": str(tmp_path / "b")})
    detected = prepare(ArtifactSource(uri="s3://bucket/team/m?v#1/"), cache, settings)
    assert detected.description.file == "model.onnx"
    assert (
        failure(ArtifactSource(uri="s3://bucket/x"), cache, settings).code == "artifact-not-found"
    )


# --- sources as values


def test_sources_and_settings_travel_as_json() -> None:
    source = ArtifactSource(
        uri="s3://b/k", compressed=True, sha256="0" * 64, image="i", environment={"A": "1"},
        runtime="python", trusted=True, seconds_max=60.0,
    )  # fmt: skip
    assert ArtifactSource.from_dict(json.loads(json.dumps(source.to_dict()))) == source
    assert ArtifactSource.from_dict({"uri": "/m"}) == ArtifactSource(uri="/m")
    control = ControlConfig(
        s3_endpoint="http://127.0.0.1:9000",
        s3_local={"b": Path("/data")},
        image_commands={"mine": ("serve", "{port}")},
        trusted_artifacts=("s3://b/trusted",),
        key_file=Path("/keys/one"),
    )
    settings = ArtifactSettings.from_config(ServerConfig(state_dir=Path("/state"), control=control))
    assert settings.s3_local == {"b": "/data"}
    assert settings.closed == ("/state", "/keys/one")
    assert ArtifactSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize(
    ("uri", "trusted"),
    [
        ("s3://team/models", True),
        ("s3://team/models/a.tar.gz", True),
        ("s3://team/models-of-others/a.tar.gz", False),
        ("s3://team/models/../others/a", False),
        ("s3://team/models/%2e%2e/others/a", False),
        ("", False),
    ],
)
def test_trust_is_given_to_whole_prefixes(uri: str, trusted: bool) -> None:
    assert ArtifactSettings(trusted_artifacts=("s3://team/models", "")).trusts(uri) is trusted


def test_a_shown_uri_has_no_secrets() -> None:
    assert shown_uri("https://u:p@h:81/a/b?sig=x#y") == "https://h:81/a/b"
    assert shown_uri("https://[::1]:81/a?b") == "https://[::1]:81/a"
    assert shown_uri("https://h:bad/p?sig=x") == "https:..."
    assert shown_uri("s3://b/k?1") == "s3://b/k?1"
    assert shown_uri("/a?b") == "/a?b"


def test_a_mapped_image_needs_no_artifact_and_any_other_does(cache: ArtifactCache) -> None:
    settings = ArtifactSettings(image_commands={"my-server": ("serve", "--port", "{port}")})
    source = ArtifactSource(image="registry/my-server:1")
    detected = prepare(source, cache, settings)
    assert detected.description.runtime == "process"
    assert detected.description.command == ("serve", "--port", "{port}")
    assert list(detected.root.iterdir()) == []
    assert prepare(source, cache, settings) == detected
    assert failure(ArtifactSource(image="other"), cache, settings).code == "artifact-missing"
    assert failure(ArtifactSource(), cache).code == "artifact-missing"


def test_importing_the_package_stays_cheap() -> None:
    """obstore, botocore and every runtime are imported when they are first needed."""
    script = (
        "import sys, penstock.artifacts.prepare; "
        "print([m for m in ('obstore','botocore','onnxruntime','openvino','onnx','numpy') "
        "if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"

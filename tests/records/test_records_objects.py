"""Which objects a prefix or a manifest means, on disks, in buckets and behind URLs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from record_files import SETTINGS, error_of, write
from tests.kit.object_server import ObjectServer

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject, TransformInput
from penstock.records.objects.objects import list_objects, read_manifest

Listed = Callable[[str], tuple[InputObject, ...]]


def listed(uri: str, settings: ArtifactSettings = SETTINGS, **data: str) -> list[str]:
    found = list_objects(TransformInput(uri=uri, **data), settings)  # type: ignore[arg-type]
    assert [one.number for one in found] == list(range(len(found)))
    assert all(one.stamp for one in found)
    return [one.key for one in found]


FILES = {"data/b.csv": b"b", "data/a/x y.csv": b"xy", "data/ü#?.csv": b"", "data2/c": b"c"}
KEYS = ["a/x y.csv", "b.csv", "ü#?.csv"]


def test_a_folder_is_all_files_below_it_in_the_order_of_their_keys(tmp_path: Path) -> None:
    write(tmp_path, FILES | {"data/.DS_Store": b"", "data/__MACOSX/._b": b""})
    for uri in ((tmp_path / "data").as_uri(), f"{(tmp_path / 'data').as_uri()}/"):
        assert listed(uri) == KEYS
    found = list_objects(TransformInput(uri=(tmp_path / "data").as_uri()), SETTINGS)
    assert [one.size for one in found] == [2, 1, 0]
    assert found[0].uri == (tmp_path / "data/a/x y.csv").as_uri()


def test_a_file_is_named_by_its_name_alone(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    assert listed((tmp_path / "data/b.csv").as_uri()) == ["b.csv"]


def test_the_beginning_of_names_means_all_that_begin_so(tmp_path: Path) -> None:
    write(tmp_path, {"part-1": b"", "part-2": b"", "part-x/a": b"", "other": b""})
    assert listed((tmp_path / "part-").as_uri()) == ["part-1", "part-2", "part-x/a"]


def test_nothing_there_is_the_callers_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("gone", "empty", "gone/part-"):
        assert error_of(lambda n=name: listed((tmp_path / n).as_uri())).code == "input-not-found"


def test_links_may_not_lead_out_of_what_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"secret": b"s", "in/part-a": b"a"})
    (tmp_path / "in/part-inside").symlink_to(tmp_path / "in/part-a")
    assert listed((tmp_path / "in").as_uri()) == ["part-a", "part-inside"]
    (tmp_path / "in/part-out").symlink_to(tmp_path / "secret")
    for uri in ((tmp_path / "in").as_uri(), (tmp_path / "in/part-").as_uri()):
        assert error_of(lambda u=uri: listed(u)).code == "artifact-link-refused"


def test_what_is_no_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in/pipe")
    for name in ("in", "in/pipe", "in/pi"):
        error = error_of(lambda n=name: listed((tmp_path / n).as_uri()))
        assert error.code == "artifact-type-unsupported"


def test_keys_that_no_output_can_be_named_after_are_refused(tmp_path: Path) -> None:
    for name in ("a\nb", "a\\b", "x" * 250):
        folder = tmp_path / f"in{len(name)}"
        write(folder, {name: b""})
        assert error_of(lambda f=folder: listed(f.as_uri())).code == "input-key-unsafe"
    write(tmp_path / "long", {"x" * 243: b""})
    assert listed((tmp_path / "long").as_uri()) == ["x" * 243]


def put(store: ObjectServer, files: dict[str, bytes]) -> None:
    store.objects.update({f"/bucket/{name}": content for name, content in files.items()})


def test_a_prefix_of_a_bucket_means_all_keys_that_begin_so(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    """Below a folder keys are relative to it; else to the folder that the prefix begins in."""
    put(store, {f"team/{name}": content for name, content in FILES.items()})
    put(store, {"team/data/": b"", "team/data/a/": b"", "team/data/a/.DS_Store": b""})
    assert listed("s3://bucket/team/data/", s3) == KEYS
    assert listed("s3://bucket/team/data", s3) == [*(f"data/{key}" for key in KEYS), "data2/c"]
    assert listed("s3://bucket/team/data/b", s3) == ["b.csv"]
    assert listed("s3://bucket/team/data/b.csv", s3) == ["b.csv"]
    assert listed("s3://bucket/team/data/a", s3) == ["x y.csv"]
    assert listed("s3://bucket/team/data2", s3) == ["c"]
    assert listed("s3://bucket/t", s3)[0] == "team/data/a/x y.csv"
    assert len(listed("s3://bucket", s3)) == 4
    for gone in ("s3://bucket/team/x", "s3://bucket/team/data/b.csv/", "s3://other/"):
        assert error_of(lambda u=gone: listed(u, s3)).code == "input-not-found"


def test_an_object_with_empty_or_dotted_parts_in_its_key_is_refused(
    store: ObjectServer, s3: ArtifactSettings
) -> None:
    for name in ("in/a//b", "in/../../etc/passwd", "in/a\\b"):
        store.objects.clear()
        put(store, {name: b"x"})
        assert error_of(lambda: listed("s3://bucket/in/", s3)).code == "input-key-unsafe"


def test_a_bucket_mapped_to_a_folder_is_read_as_one(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    settings = ArtifactSettings(s3_local={"bucket": str(tmp_path)})
    assert listed("s3://bucket/data", settings) == KEYS
    error = error_of(lambda: listed("s3://bucket/../x", settings))
    assert error.code == "artifact-uri-invalid"


def test_a_url_is_one_object_and_its_secrets_are_not_told(store: ObjectServer) -> None:
    store.objects["/data/a b.csv"] = b"abc"
    [one] = list_objects(TransformInput(uri=f"{store.url}/data/a%20b.csv?sig=SECRET"), SETTINGS)
    assert (one.size, one.key) == (3, "a b.csv")
    for uri in (f"{store.url}/gone?sig=SECRET", "http://user:SECRET@example.com/x", "ftp://x/y"):
        error = error_of(lambda u=uri: listed(u))
        assert "SECRET" not in error.message + error.hint


def manifest(folder: Path, *entries: object) -> str:
    (folder / "manifest").write_text(json.dumps(entries))
    return (folder / "manifest").as_uri()


def test_a_manifest_names_its_objects(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    uri = manifest(tmp_path, {"prefix": (tmp_path / "data").as_uri()}, "b.csv", "a/x y.csv")
    assert listed(uri, data_type="ManifestFile") == ["a/x y.csv", "b.csv"]


def test_a_manifest_of_a_bucket(store: ObjectServer, s3: ArtifactSettings) -> None:
    put(store, FILES)
    names = [{"prefix": "s3://bucket/data/"}, "b.csv", "ü#?.csv"]
    put(store, {"m.json": json.dumps(names).encode()})
    asked = TransformInput(uri="s3://bucket/m.json", data_type="ManifestFile")
    found = list_objects(asked, s3)
    assert [(one.key, one.uri) for one in found] == [
        ("b.csv", "s3://bucket/data/b.csv"),
        ("ü#?.csv", "s3://bucket/data/ü#?.csv"),
    ]
    put(store, {"m.json": json.dumps([*names, "gone"]).encode()})
    error = error_of(lambda: list_objects(asked, s3))
    assert (error.code, "gone" in error.message) == ("input-not-found", True)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["../secret"], "input-key-unsafe"),
        (["/etc/passwd"], "input-key-unsafe"),
        (["a/../b.csv"], "input-key-unsafe"),
        (["./b.csv"], "manifest-invalid"),
        (["b.csv/"], "manifest-invalid"),
        ([""], "manifest-invalid"),
        (["a"], "manifest-invalid"),
        (["link"], "artifact-link-refused"),
        (["gone"], "input-not-found"),
        (["b.csv", "b.csv"], "input-duplicate"),
        ([5], "manifest-invalid"),
        ([], "manifest-invalid"),
    ],
)
def test_a_manifest_can_not_lead_out_of_its_prefix(
    tmp_path: Path, names: list[object], code: str
) -> None:
    write(tmp_path, FILES | {"secret": b"s"})
    (tmp_path / "data/link").symlink_to(tmp_path / "secret")
    uri = manifest(tmp_path, {"prefix": (tmp_path / "data").as_uri()}, *names)
    assert error_of(lambda: listed(uri, data_type="ManifestFile")).code == code


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b'["a"]', b'[{"prefix":5},"a"]', b'[{"prefix":"https://h/"},"a"]',
        b'[{"x":1},"a"]', b'[{"prefix":"/d/","x":1},"a"]', b'[{"prefix":"/d/"},"a",5]',
        b"\xff", b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    uri = write(tmp_path / "m", {"manifest": content}) + "/manifest"
    assert error_of(lambda: listed(uri, data_type="ManifestFile")).code == "manifest-invalid"


def test_a_manifest_is_one_object_of_bounded_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, FILES)
    uri = manifest(tmp_path, {"prefix": (tmp_path / "data").as_uri()}, "b.csv", "a/x y.csv")
    assert len(read_manifest(uri, SETTINGS, objects_max=2)) == 2
    error = error_of(lambda: read_manifest(uri, SETTINGS, objects_max=1))
    assert error.code == "input-objects-too-many"
    error = error_of(lambda: read_manifest((tmp_path / "data").as_uri(), SETTINGS, objects_max=9))
    assert error.code == "manifest-invalid"
    size = (tmp_path / "manifest").stat().st_size
    monkeypatch.setattr("penstock.records.objects.objects.MANIFEST_BYTES_MAX", size)
    assert len(read_manifest(uri, SETTINGS, objects_max=2)) == 2
    monkeypatch.setattr("penstock.records.objects.objects.MANIFEST_BYTES_MAX", size - 1)
    error = error_of(lambda: read_manifest(uri, SETTINGS, objects_max=2))
    assert (error.code, "bytes" in error.message) == ("manifest-invalid", True)

"""Archives of packages: the same bytes for the same contents, and nothing but these."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from pathlib import Path

import pytest
from tests.kit.package_files import write

from penstock.artifacts.archive.unpack import UnpackLimits, unpack
from penstock.artifacts.files.budget import Budget
from penstock.errors import PenstockError
from penstock.packaging.archive import (
    HEAD_BYTES,
    contents,
    digest_in,
    digest_of,
    file_sha256,
    packed_files,
    write_archive,
)
from penstock.packaging.package_spec import PackageSpec, read_packages

PACKAGE = """\
schema: 1
package: shop
version: "2"
kind: ranker
files:
  - {from: data, to: assets}
  - {from: run.sh, to: bin/}
  - {from: data/empty, to: nothing}
code: {from: code, to: code}
templates:
  - {from: config.pbtxt, to: config.pbtxt, values: {rows_max: "8", kind: own}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PackageSpec:
    write(
        tmp_path,
        {
            "package.yaml": PACKAGE,
            "data/weights.bin": os.urandom(300_000),
            "data/deep/er/labels.txt": "a\nb\n",
            "data/empty": b"",
            "data/.DS_Store": "clutter",
            "data/__pycache__/x.pyc": "clutter",
            "run.sh": "#!/bin/sh\n",
            "code/1.9/inference.py": "nine",
            "code/1.10/inference.py": "ten",
            "code/draft/inference.py": "no version",
            "config.pbtxt": 'name: "${package}-${version}"\nmax_batch_size: ${rows_max} #${kind}\n',
        },
    )
    (tmp_path / "run.sh").chmod(0o755)
    [made] = read_packages(tmp_path / "package.yaml")
    return made


def archive(spec: PackageSpec, path: Path) -> Path:
    files, _ = contents(spec)
    packed = packed_files(files)
    write_archive(path, files, packed, digest=digest_of(packed))
    return path


def refused(spec: PackageSpec) -> tuple[str, str]:
    with pytest.raises(PenstockError) as caught:
        contents(spec)
    assert caught.value.hint
    return caught.value.code, caught.value.message


def test_files_folders_code_and_templates_lie_where_the_file_says(
    spec: PackageSpec, tmp_path: Path
) -> None:
    files, code_version = contents(spec)
    assert [file.name for file in files] == [
        "assets/deep/er/labels.txt",
        "assets/empty",
        "assets/weights.bin",
        "bin/run.sh",
        "code/inference.py",
        "config.pbtxt",
        "nothing",
    ]
    assert code_version == "1.10"
    with tarfile.open(archive(spec, tmp_path / "a.tar.gz")) as read:
        config = read.extractfile("config.pbtxt")
        code = read.extractfile("code/inference.py")
        assert config is not None
        assert code is not None
        assert config.read() == b'name: "shop-2"\nmax_batch_size: 8 #own\n'
        assert code.read() == b"ten"


def test_bytes_follow_from_contents_alone(spec: PackageSpec, tmp_path: Path) -> None:
    """Another time, another owner's mask, another order on disk: the same archive."""
    first = archive(spec, tmp_path / "first").read_bytes()
    weights = tmp_path / "data" / "weights.bin"
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content)
    weights.chmod(0o600)
    os.utime(weights, (1, 1))
    assert archive(spec, tmp_path / "second").read_bytes() == first
    with tarfile.open(tmp_path / "first") as read:
        members = read.getmembers()
    assert [(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members] == [(0, 0, 0, "", "")] * 7
    assert {m.name: m.mode for m in members if m.mode != 0o644} == {"bin/run.sh": 0o755}


@pytest.mark.parametrize("change", ["content", "name", "executable"])
def test_other_contents_have_another_digest(spec: PackageSpec, tmp_path: Path, change: str) -> None:
    before = digest_of(packed_files(contents(spec)[0]))
    if change == "content":
        (tmp_path / "data" / "empty").write_text("x")
    elif change == "name":
        (tmp_path / "data" / "empty").rename(tmp_path / "data" / "other")
        (tmp_path / "data" / "empty").write_text("")
    else:
        (tmp_path / "data" / "empty").chmod(0o755)
    assert digest_of(packed_files(contents(spec)[0])) != before


def test_the_first_bytes_of_a_copy_tell_what_it_is(spec: PackageSpec, tmp_path: Path) -> None:
    made = archive(spec, tmp_path / "made")
    digest = digest_of(packed_files(contents(spec)[0]))
    assert digest_in(made.read_bytes()[:HEAD_BYTES]) == digest
    assert file_sha256(made) == hashlib.sha256(made.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x1f\x8b",
        gzip.compress(b"x", mtime=0),
        b"\x1f\x8b\x08\x10" + bytes(5) + b"\xffpenstock 12\0",
    ],
)
def test_what_we_did_not_make_has_no_digest(head: bytes) -> None:
    assert digest_in(head) == ""


def test_a_server_unpacks_it_as_it_was(spec: PackageSpec, tmp_path: Path) -> None:
    made = archive(spec, tmp_path / "made")
    budget = Budget("made", bytes_max=10_000_000, seconds_max=60)
    digests = unpack(made, tmp_path / "unpacked", budget=budget, limits=UnpackLimits())
    packed = packed_files(contents(spec)[0])
    assert digests == {file.path: file.sha256 for file in packed}
    assert os.access(tmp_path / "unpacked" / "bin" / "run.sh", os.X_OK)


@pytest.mark.parametrize("size", [0, 100, 299_999, 300_000, 300_001])
def test_a_file_that_changes_while_it_is_packed_is_no_package(
    spec: PackageSpec, tmp_path: Path, size: int
) -> None:
    files, _ = contents(spec)
    packed = packed_files(files)
    (tmp_path / "data" / "weights.bin").write_bytes(b"x" * size)
    with pytest.raises(PenstockError) as caught:
        write_archive(tmp_path / "made", files, packed, digest=digest_of(packed))
    assert caught.value.code == "artifact-changed"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("from: data,", "from: ../data,", "files[0].from"),
        ("from: data,", "from: /etc,", "files[0].from"),
        ("from: data,", "from: nothing,", "files[0].from is 'nothing', which is not in"),
        ("to: assets", "to: ../assets", "files[0].to"),
        ("to: assets", "to: /etc", "files[0].to"),
        ("to: config.pbtxt,", "to: ../../config.pbtxt,", "templates[0].to"),
        ("from: config.pbtxt", "from: data", "data is no file of at most 1 MiB"),
        ("from: config.pbtxt", "from: data/weights.bin", "can't be read as text"),
        ("from: code,", "from: data,", "has no folder that is named as a version"),
        ("to: code}", 'to: code, version: "7"}', "code.from is 'code/7', which is not in"),
        ("to: nothing", "to: assets/weights.bin", "'assets/weights.bin' twice"),
        ("to: nothing", "to: assets", "twice, or as a file and a folder"),
        ("to: nothing", "to: .", "twice, or as a file and a folder"),
        ('rows_max: "8"', 'rows: "8"', "nothing gives a value to '${rows_max}'"),
    ],
)
def test_a_wrong_place_is_refused_with_file_and_line(
    spec: PackageSpec, tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in PACKAGE
    (tmp_path / "package.yaml").write_text(PACKAGE.replace(old, new))
    [changed] = read_packages(tmp_path / "package.yaml")
    code, told = refused(changed)
    assert code == "spec-invalid"
    assert told.startswith(f"{tmp_path / 'package.yaml'}:")
    assert message in told


@pytest.mark.parametrize("value", ["../../etc", "/etc", "a/../../b", "a\\b", "..", "a\nb"])
@pytest.mark.parametrize("key", ["from", "to"])
def test_no_value_of_a_row_leads_out_of_the_folders(tmp_path: Path, key: str, value: str) -> None:
    entry = {"from": "f", "to": "t"} | {key: '"${each}"'}
    added = f"files:\n  - {{from: {entry['from']}, to: {entry['to']}}}"
    text = PACKAGE.replace("files:", added)
    quoted = value.replace("\\", "\\\\").replace("\n", "\\n")
    write(tmp_path, {"package.yaml": f'{text}for_each: ["{quoted}"]\n', "data/x": "", "f": ""})
    [spec] = read_packages(tmp_path / "package.yaml")
    assert refused(spec)[0] == "spec-invalid"


def test_a_link_is_the_file_it_leads_to_and_none_leads_out(
    spec: PackageSpec, tmp_path: Path
) -> None:
    (tmp_path / "data" / "link").symlink_to("weights.bin")
    found = {file.path: file for file in packed_files(contents(spec)[0])}
    assert found["assets/link"].sha256 == found["assets/weights.bin"].sha256
    (tmp_path / "data" / "out").symlink_to("/etc/passwd")
    assert refused(spec)[0] == "artifact-link-refused"


@pytest.mark.parametrize("what", ["data", "code", "config.pbtxt"])
def test_a_source_that_is_itself_a_link_out_is_refused(
    spec: PackageSpec, tmp_path: Path, what: str
) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (tmp_path / what).rename(elsewhere / what)
    (tmp_path / what).symlink_to(elsewhere / what)
    code, told = refused(spec)
    assert (code, "a link that leaves" in told) == ("spec-invalid", True)


def test_sources_lie_below_the_folder_that_is_given(spec: PackageSpec, tmp_path: Path) -> None:
    moved = write(tmp_path / "specs", {"package.yaml": PACKAGE})
    [changed] = read_packages(moved / "package.yaml", root=tmp_path)
    assert [file.name for file in contents(changed)[0]] == [file.name for file in contents(spec)[0]]

"""Archives are untrusted: what a hostile or broken one gets, and what an honest one keeps."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from artifact_files import budget, error_of, member, tar_bytes, tar_gz
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.artifacts.archive.unpack import UnpackLimits, archive_kind, unpack
from penstock.artifacts.files.budget import Budget
from penstock.errors import CallerError, NotNowError

LIMITS = UnpackLimits(members_max=50, ratio_max=200)


def unpacked(archive: Path, to: Path) -> dict[str, bytes]:
    unpack(archive, to, budget=budget(), limits=LIMITS)
    return {
        path.relative_to(to).as_posix(): path.read_bytes()
        for path in to.rglob("*")
        if path.is_file()
    }


def refused(archive: Path, tmp_path: Path, *, bytes_max: int = 10_000_000) -> str:
    """The code of the refusal. Nothing may be left behind, neither inside nor outside."""
    to = tmp_path / "out" / "files"
    to.parent.mkdir()
    error = error_of(lambda: unpack(archive, to, budget=budget(bytes_max=bytes_max), limits=LIMITS))
    assert isinstance(error, CallerError)
    assert "model.tar.gz" in error.message
    assert list(to.parent.iterdir()) == []
    return error.code


def test_an_honest_archive_keeps_content_and_execute_bits(tmp_path: Path) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [
            member("./", kind=tarfile.DIRTYPE),
            member("./a.bin", b"a" * 1_200_000),
            member("./bin/serve", b"#!/bin/sh\n", mode=0o4755),
            member("./empty", b""),
        ],
    )
    files = unpacked(archive, tmp_path / "files")
    assert files == {"a.bin": b"a" * 1_200_000, "bin/serve": b"#!/bin/sh\n", "empty": b""}
    assert stat.S_IMODE(os.stat(tmp_path / "files/bin/serve").st_mode) == 0o555
    assert stat.S_IMODE(os.stat(tmp_path / "files/a.bin").st_mode) == 0o444


def test_what_is_unpacked_is_open_to_nobody_elses_writing(tmp_path: Path) -> None:
    """Also where the process would leave it open."""
    members = [member("sub/a", b"1", mode=0o666), member("sub/b", b"2", mode=0o777)]
    archive = tar_gz(tmp_path / "m.tar.gz", members)
    before = os.umask(0)
    try:
        unpacked(archive, tmp_path / "files")
    finally:
        os.umask(before)
    names = (".", "sub", "sub/a")
    modes = [stat.S_IMODE((tmp_path / "files" / each).stat().st_mode) for each in names]
    assert modes == [0o755, 0o755, 0o444]
    assert stat.S_IMODE((tmp_path / "files/sub/b").stat().st_mode) == 0o555


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_called_so(tmp_path: Path, kind: bytes) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("a", b"1"), member("it", kind=kind)])
    error = error_of(lambda: unpack(archive, tmp_path / "to", budget=budget(), limits=LIMITS))
    assert error.message == (
        "model.tar.gz: the member 'it' is refused: it is a device, a pipe or of an unknown type"
    )


@pytest.mark.parametrize("fmt", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_of_both_tar_dialects_are_read(tmp_path: Path, fmt: int) -> None:
    name = "/".join(["a" * 60] * 3) + "/model.onnx"
    with tarfile.open(tmp_path / "m.tar", "w", format=fmt) as archive:
        archive.addfile(tarfile.TarInfo(name))
    assert unpacked(tmp_path / "m.tar", tmp_path / "files") == {name: b""}


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "a\\..\\evil", "a\nb", "x" * 300, "d/" * 40 + "f"],
)
def test_a_path_that_is_not_plainly_inside_is_refused(tmp_path: Path, name: str) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("ok", b"1"), member(name, b"evil")])
    assert refused(archive, tmp_path) == "artifact-path-unsafe"


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "../../etc/passwd"),
        (tarfile.SYMTYPE, ".."),
        (tarfile.SYMTYPE, "sub"),
        (tarfile.SYMTYPE, "missing"),
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "../outside"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_out_and_special_files_are_refused(tmp_path: Path, kind: bytes, link: str) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [member("sub/a", b"1"), member("link", kind=kind, link=link)],
    )
    assert refused(archive, tmp_path) == "archive-unsafe"


def test_links_to_files_inside_become_the_files_themselves(tmp_path: Path) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [
            member("sub/later", kind=tarfile.SYMTYPE, link="../blobs/1"),
            member("blobs/1", b"weights"),
            member("hard", kind=tarfile.LNKTYPE, link="./blobs/1"),
            member("chain", kind=tarfile.SYMTYPE, link="sub/later"),
        ],
    )
    files = unpacked(archive, tmp_path / "files")
    assert files == dict.fromkeys(["sub/later", "blobs/1", "hard", "chain"], b"weights")
    assert not any(path.is_symlink() for path in (tmp_path / "files").rglob("*"))


def test_a_hard_link_counts_from_the_root_and_a_symbolic_one_from_its_folder(
    tmp_path: Path,
) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [
            member("a/x", b"inner"),
            member("x", b"outer"),
            member("a/hard", kind=tarfile.LNKTYPE, link="x"),
            member("a/soft", kind=tarfile.SYMTYPE, link="x"),
            member("a/up", kind=tarfile.SYMTYPE, link="../x"),
            member("a/b/up", kind=tarfile.SYMTYPE, link="./.././x"),
        ],
    )
    to = tmp_path / "files"
    digests = unpack(archive, to, budget=budget(), limits=LIMITS)
    inner, outer = hashlib.sha256(b"inner").hexdigest(), hashlib.sha256(b"outer").hexdigest()
    assert digests == {
        "a/x": inner, "x": outer, "a/hard": outer, "a/soft": inner, "a/up": outer, "a/b/up": inner,
    }  # fmt: skip
    assert (to / "a/hard").samefile(to / "x")
    assert (to / "a/b/up").samefile(to / "a/x")


@pytest.mark.parametrize(
    ("links", "cause"),
    [
        ({"a": "a"}, "it is a link to itself"),
        ({"a": "b", "b": "a"}, "it is a link to itself"),
        ({"a": "b", "b": "c", "c": "b"}, "it is a link to itself"),
        ({"a": "b", "b": "c", "c": "d", "d": "c"}, "it is a link to itself"),
        ({"a": "b", "b": "nothing"}, "it is a link to 'b', which is not a file in the archive"),
        ({"a": "sub"}, "it is a link to 'sub', which is not a file in the archive"),
        ({"a": "."}, "it is a link to '.', which is not a file in the archive"),
        ({"a": ""}, "it is a link to '.', which is not a file in the archive"),
        ({"a": "/sub/file"}, "it is a link to '/sub/file'"),
        ({"a": "sub\\file"}, "it is a link to 'sub\\\\file'"),
        ({"a": "sub/\tfile"}, "it is a link to 'sub/\\tfile'"),
        ({"a": ".."}, "it is a link to '..', outside the archive"),
        ({"a": "sub/../.."}, "it is a link to 'sub/../..', outside the archive"),
        ({"a": "../a"}, "it is a link to '../a', outside the archive"),
        ({"sub/a": "../../sub/file"}, "it is a link to '../../sub/file', outside the archive"),
    ],
)
def test_a_link_leads_to_a_file_of_the_archive_and_comes_to_an_end(
    tmp_path: Path, links: dict[str, str], cause: str
) -> None:
    """Also where it leads into a circle that it is not part of."""
    members = [member(name, kind=tarfile.SYMTYPE, link=link) for name, link in links.items()]
    archive = tar_gz(tmp_path / "m.tar.gz", [member("sub/file", b"1"), *members])
    error = error_of(lambda: unpack(archive, tmp_path / "to", budget=budget(), limits=LIMITS))
    first = next(iter(links))
    assert (error.code, error.message) == (
        "archive-unsafe",
        f"model.tar.gz: the member '{first}' is refused: {cause}",
    )


def test_a_long_chain_of_links_is_followed_once(tmp_path: Path) -> None:
    def steps(count: int) -> int:
        members = [
            member(f"l{n}", kind=tarfile.SYMTYPE, link=f"l{n + 1}" if n + 1 < count else "file")
            for n in range(count)
        ]
        archive = tmp_path / f"{count}.tar"
        archive.write_bytes(tar_bytes([*members, member("file", b"content")]))
        calls = 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            unpack(archive, tmp_path / f"to{count}", budget=budget(), limits=UnpackLimits())
        finally:
            sys.setprofile(before)
        assert (tmp_path / f"to{count}/l0").read_bytes() == b"content"
        return calls

    assert steps(800) < 2.3 * steps(400)


def test_a_name_that_begins_with_two_dots_is_no_way_out(tmp_path: Path) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [member("..a", b"1"), member("b", kind=tarfile.SYMTYPE, link="..a")],
    )
    assert unpacked(archive, tmp_path / "files") == {"..a": b"1", "b": b"1"}


def test_a_path_through_a_link_cannot_leave(tmp_path: Path) -> None:
    """The classic: a link to a folder outside, then a file through the link."""
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [member("d", kind=tarfile.SYMTYPE, link="sub"), member("d/evil", b"evil")],
    )
    assert refused(archive, tmp_path) == "archive-unsafe"


@pytest.mark.parametrize("second", ["a", "./a", "a/b"])
def test_one_path_is_named_once(tmp_path: Path, second: str) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("a", b"1"), member(second, b"2")])
    assert refused(archive, tmp_path) == "archive-unsafe"


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.DIRTYPE)


def link(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.SYMTYPE, link="target")


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (member("a"), folder("a"), "'a' is refused: the archive names this path twice"),
        (link("a"), folder("a"), "'a' is refused: the archive names this path twice"),
        (folder("a"), member("a"), "'a' is refused: the archive names this path twice"),
        (folder("a"), link("a"), "'a' is refused: the archive names this path twice"),
        (link("a"), member("a"), "'a' is refused: the archive names this path twice"),
        (link("a"), link("a"), "'a' is refused: the archive names this path twice"),
        (member("a/b"), member("a"), "'a' is refused: the archive names this path twice"),
        (member("a"), member("a/b"), "'a' is refused: it is both a file and a folder"),
        (link("a"), folder("a/b/c"), "'a' is refused: it is both a file and a folder"),
        (folder("a"), member("."), "'.' is refused: it has no name"),
        (folder("a"), link("./"), "is refused: it has no name"),
    ],
)
def test_a_path_is_one_thing(tmp_path: Path, first: Any, second: Any, cause: str) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("target"), first, second])
    error = error_of(lambda: unpack(archive, tmp_path / "to", budget=budget(), limits=LIMITS))
    assert (error.code, cause in error.message) == ("archive-unsafe", True), error.message


def test_a_folder_may_be_named_as_often_as_a_tool_likes(tmp_path: Path) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz", [folder("."), folder("a"), folder("a/"), member("a/b"), folder("a")]
    )
    assert unpacked(archive, tmp_path / "files") == {"a/b": b""}
    assert stat.S_IMODE(os.stat(tmp_path / "files/a").st_mode) & 0o700 == 0o700


def test_the_bounds_where_nobody_sets_others() -> None:
    assert UnpackLimits() == UnpackLimits(members_max=20_000, ratio_max=200.0)


def test_as_many_members_as_allowed_are_unpacked(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member(f"f{n}", b"1") for n in range(50)])
    assert len(unpacked(archive, tmp_path / "files")) == 50


def test_members_that_are_left_out_count_too(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member(f"._f{n}", b"1") for n in range(51)])
    assert refused(archive, tmp_path) == "archive-bomb"


def test_nobody_waits_for_an_archive_that_nobody_wants(tmp_path: Path) -> None:
    """Also one of folders alone, which writes no byte."""
    given_up = threading.Event()
    given_up.set()
    unwanted = Budget("m", bytes_max=10**9, seconds_max=60, cancelled=given_up)
    archive = tar_gz(tmp_path / "m.tar.gz", [folder("a")])
    with pytest.raises(NotNowError) as caught:
        unpack(archive, tmp_path / "to", budget=unwanted, limits=LIMITS)
    assert caught.value.code == "artifact-cancelled"
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(("ratio_free", "ratio_max"), [(5000, 0.0), (0, 5000 / 10_240)])
def test_an_archive_unpacks_to_as_much_as_its_ratio_allows_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio_free: int, ratio_max: float
) -> None:
    """Two files, one of them left out, of 5,000 bytes together."""
    monkeypatch.setattr("penstock.artifacts.archive.unpack.RATIO_FREE_BYTES", ratio_free)
    limits = UnpackLimits(ratio_max=ratio_max)
    archive = tmp_path / "m.tar"
    archive.write_bytes(tar_bytes([member("a", bytes(3000)), member("._b", bytes(2000))]))
    assert archive.stat().st_size == 10_240
    unpack(archive, tmp_path / "to", budget=budget(), limits=limits)
    archive.write_bytes(tar_bytes([member("a", bytes(3000)), member("._b", bytes(2001))]))
    error = error_of(lambda: unpack(archive, tmp_path / "2", budget=budget(), limits=limits))
    assert error.code == "archive-bomb"
    assert "10240 bytes unpack to more than 5000" in error.message


def test_what_is_in_the_way_is_told_and_left_alone(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("a", b"1")])
    error = error_of(lambda: unpack(archive, tmp_path / "no/such", budget=budget(), limits=LIMITS))
    assert error.code == "artifact-disk-failed"


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member(f"f{n}", b"1") for n in range(51)])
    assert refused(archive, tmp_path) == "archive-bomb"


def test_more_bytes_than_allowed_are_refused(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("zeros", bytes(3_000_000))])
    assert refused(archive, tmp_path, bytes_max=2_000_000) == "artifact-too-large"


@pytest.mark.parametrize("name", ["zeros", "._zeros"])
def test_a_bomb_is_refused_by_its_ratio(tmp_path: Path, name: str) -> None:
    """Also where the bytes belong to a file that would not be kept."""
    path = tmp_path / "m.tar.gz"
    info, _ = member(name)
    info.size = 80 * 1024 * 1024
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf())
        for _ in range(80):
            file.write(bytes(1024 * 1024))
        file.write(bytes(1024))
    assert refused(path, tmp_path, bytes_max=10**12) == "archive-bomb"


def test_an_extended_header_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    """A valid one: tarfile would take it into memory as a whole."""
    size = 8 * 1024 * 1024
    info, _ = member("pax", kind=tarfile.XHDTYPE)
    info.size = size
    start = b"%d comment=" % size
    record = start + b"x" * (size - len(start) - 1) + b"\n"
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf() + record + tar_bytes([member("a", b"1")])))
    assert refused(path, tmp_path) == "archive-unreadable"


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95, 0.999])
def test_a_gzip_archive_cut_short_is_refused(tmp_path: Path, keep: float) -> None:
    content = os.urandom(30_000)
    whole = gzip.compress(tar_bytes([member("a", content[:20_000]), member("b", content[20_000:])]))
    path = tmp_path / "m.tar.gz"
    path.write_bytes(whole[: int(len(whole) * keep)])
    assert refused(path, tmp_path) == "archive-truncated"


@pytest.mark.parametrize("size", [512, 700, 1024, 1536])
def test_a_tar_archive_cut_anywhere_is_refused(tmp_path: Path, size: int) -> None:
    """Also between two members, where tar itself would see nothing wrong."""
    whole = tar_bytes([member("a", b"1" * 512), member("b", b"2")])
    path = tmp_path / "m.tar"
    path.write_bytes(whole[:size])
    assert refused(path, tmp_path) == "archive-truncated"


def test_a_flipped_byte_in_a_gzip_archive_is_noticed(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(tar_bytes([member("a", os.urandom(20_000))])))
    whole[10_000] ^= 0xFF
    path = tmp_path / "m.tar.gz"
    path.write_bytes(whole)
    assert refused(path, tmp_path) in ("archive-truncated", "archive-unreadable")


def test_garbage_between_members_is_not_the_end(tmp_path: Path) -> None:
    one = tar_bytes([member("a", b"1")])[:1024]
    path = tmp_path / "m.tar"
    path.write_bytes(one + b"\xff" * 512 + bytes(1024))
    assert refused(path, tmp_path) == "archive-truncated"


def test_other_files_are_no_archives(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(600))
    assert archive_kind(path) == ""
    assert refused(path, tmp_path) == "archive-unreadable"


def test_an_archive_without_files_is_empty(tmp_path: Path) -> None:
    archive = tar_gz(tmp_path / "m.tar.gz", [member("only-a-folder", kind=tarfile.DIRTYPE)])
    assert refused(archive, tmp_path) == "artifact-empty"


def test_what_desktop_systems_leave_behind_is_left_out(tmp_path: Path) -> None:
    archive = tar_gz(
        tmp_path / "m.tar.gz",
        [member("._model.xml", b"x"), member(".DS_Store", b"x"), member("model.onnx", b"m")],
    )
    assert unpacked(archive, tmp_path / "files") == {"model.onnx": b"m"}


def test_a_zip_archive_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.txt", "a" * 1000)
    assert unpacked(path, tmp_path / "files") == {"folder/a.txt": b"a" * 1000}


@pytest.mark.parametrize(
    ("name", "content", "mode", "code"),
    [
        ("../evil", "evil", 0o100644, "artifact-path-unsafe"),
        ("/evil", "evil", 0o100644, "artifact-path-unsafe"),
        ("link", "../../etc/passwd", 0o120777, "archive-unsafe"),
        ("pipe", "", 0o010644, "archive-unsafe"),
    ],
)
def test_a_hostile_zip_archive_is_refused(
    tmp_path: Path, name: str, content: str, mode: int, code: str
) -> None:
    path = tmp_path / "m.zip"
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, content)
    assert refused(path, tmp_path) == code


def test_a_zip_archive_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", os.urandom(5000))
    path.write_bytes(path.read_bytes()[:-60])
    assert refused(path, tmp_path) == "archive-truncated"


@settings(max_examples=150, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=6))
def test_damaged_bytes_are_an_error_or_an_archive_and_never_anything_else(
    flips: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    data = bytearray(
        tar_bytes(
            [
                member("sub/a", b"1" * 600),
                member("link", kind=tarfile.SYMTYPE, link="sub/a"),
                member("b", b"2"),
            ]
        )
    )
    for at, value in flips:
        data[at] = value
    path = folder / "m.tar"
    path.write_bytes(data)
    inside = folder / "in"
    inside.mkdir()
    try:
        unpack(path, inside / "files", budget=budget(), limits=LIMITS)
    except CallerError:
        assert list(inside.iterdir()) == []
    assert {entry.name for entry in folder.iterdir()} == {"m.tar", "in"}


def global_header(records: dict[str, str]) -> tuple[tarfile.TarInfo, bytes]:
    """pax: what it says holds for all members behind it."""
    content = b""
    for key, value in records.items():
        body = f" {key}={value}\n".encode()
        size = len(body)
        while len(str(size)) + len(body) != size:
            size = len(str(size)) + len(body)
        content += str(size).encode() + body
    return member("g", content, kind=tarfile.XGLTYPE)


def with_globals(records: list[dict[str, str]]) -> bytes:
    members = []
    for at, each in enumerate(records):
        members += [global_header(each), member(f"m{at}", b"x")]
    return tar_bytes(members)


def test_global_headers_are_read(tmp_path: Path) -> None:
    """git archive writes one."""
    (tmp_path / "a.tar").write_bytes(with_globals([{"comment": "a commit"}]))
    unpack(tmp_path / "a.tar", tmp_path / "out", budget=budget(), limits=UnpackLimits())
    assert (tmp_path / "out/m0").read_bytes() == b"x"


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([{"comment": "x" * (1 << 20)}] * 80, id="many megabytes"),
        pytest.param([{f"key{at}": "x" for at in range(200)}], id="many keys at once"),
        pytest.param([{f"key{at}": "x"} for at in range(200)], id="many keys one by one"),
    ],
)
def test_global_headers_do_not_escape_the_byte_counts(
    tmp_path: Path, records: list[dict[str, str]]
) -> None:
    """They are no member's content, and tarfile keeps what they say for each member."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(with_globals(records), compresslevel=1))
    error = error_of(lambda: unpack(path, tmp_path / "out", budget=budget(), limits=UnpackLimits()))
    assert error.code == "archive-unreadable"
    assert "headers" in error.message
    assert not (tmp_path / "out").exists()

"""What is read of an archive, member by member, before anybody decides about it."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_files import error_of, member, tar_bytes

from penstock.artifacts.archive import unpack as archive_readers
from penstock.artifacts.archive.unpack import ArchiveMember, archive_kind, tar_members, zip_members

Row = tuple[str, str, bytes, str, bool]


def rows(members: Iterator[ArchiveMember]) -> list[Row]:
    """(name, kind, content, link, executable) of each, read as a consumer reads them."""
    told = []
    for each in members:
        content = b""
        while piece := each.read(100):
            content += piece
        told.append((each.name, each.kind, content, each.link, each.executable))
    return told


def tar_rows(data: bytes, *, gzipped: bool = False) -> list[Row]:
    return rows(tar_members(io.BytesIO(data), gzipped=gzipped, what="model"))


def zip_rows(data: bytes) -> list[Row]:
    return rows(zip_members(io.BytesIO(data), what="model"))


def tar_refused(data: bytes, *, gzipped: bool = False) -> tuple[str, str]:
    error = error_of(lambda: tar_rows(data, gzipped=gzipped))
    return error.code, error.message


def zip_refused(data: bytes) -> tuple[str, str]:
    error = error_of(lambda: zip_rows(data))
    return error.code, error.message


# Which kind it is


def old_tar(name: bytes = b"a", content: bytes = b"1") -> bytes:
    """One file as the seventh edition wrote it: no magic, a checksum in six octal digits."""
    head = bytearray(512)
    head[: len(name)] = name
    head[100:108] = b"000644 \0"
    head[124:136] = b"%011o " % len(content)
    head[136:148] = b"00000000000 "
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content.ljust(512, b"\0") + bytes(1024)


def old_tar_that_fills_its_fields(checksum: bytes) -> bytes:
    """No space ends the time, and the kind of a file is written out: digits on both sides."""
    head = bytearray(old_tar())
    head[136:148] = b"000000000007"
    head[156:157] = b"0"
    head[148:156] = b" " * 8
    head[148:156] = checksum % sum(head[:512])
    return bytes(head)


def with_checksum(head: bytes, text: bytes) -> bytes:
    return head[:148] + text.ljust(8) + head[156:]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"\x1f\x8b\x08", "tar.gz", id="gzip"),
        pytest.param(b"\x1f\x8c\x08", "", id="not-quite-gzip"),
        pytest.param(b"PK\3\4", "zip", id="zip"),
        pytest.param(b"PK\5\6", "zip", id="an-empty-zip"),
        pytest.param(b"PK\7\x08", "", id="half-a-zip"),
        pytest.param(tar_bytes([member("a")]), "tar", id="tar"),
        pytest.param(b"x" * 257 + b"ustar", "tar", id="a-magic-is-enough"),
        pytest.param(b"x" * 257 + b"ustar\0" + b"00", "tar", id="a-magic-and-a-version"),
        pytest.param(old_tar(), "tar", id="old-tar"),
        pytest.param(old_tar_that_fills_its_fields(b"%-8o"), "tar", id="checksum-from-the-left"),
        pytest.param(old_tar_that_fills_its_fields(b"%8o"), "tar", id="checksum-to-the-right"),
        pytest.param(old_tar()[:512], "tar", id="a-head-of-an-old-tar"),
        pytest.param(old_tar()[:511], "", id="less-than-a-head"),
        pytest.param(old_tar(name=b""), "", id="without-a-name"),
        pytest.param(b"b" + old_tar()[1:], "", id="a-wrong-checksum"),
        pytest.param(with_checksum(old_tar(), b"xyz"), "", id="no-checksum"),
        pytest.param(bytes(512), "", id="zeros"),
    ],
)
def test_an_archive_is_known_by_its_first_bytes(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    assert archive_kind(path) == kind


def test_an_old_tar_is_read() -> None:
    assert tar_rows(old_tar()) == [("a", "file", b"1", "", False)]


# tar


@pytest.mark.parametrize("gzipped", [False, True])
def test_each_kind_of_member_is_told(gzipped: bool) -> None:
    data = tar_bytes(
        [
            member("d", kind=tarfile.DIRTYPE),
            member("d/a", b"x" * 1500),
            member("run", b"#!", mode=0o100),
            member("not-run", b"#!", mode=0o677),
            member("s", kind=tarfile.SYMTYPE, link="d/a"),
            member("h", kind=tarfile.LNKTYPE, link="run"),
            member("pipe", kind=tarfile.FIFOTYPE),
            member("disk", kind=tarfile.BLKTYPE),
            member("tty", kind=tarfile.CHRTYPE),
            member("contiguous", b"2", kind=tarfile.CONTTYPE),
            member("holes", b"", kind=tarfile.GNUTYPE_SPARSE),
            member("last", b"3"),
        ]
    )
    assert tar_rows(gzip.compress(data) if gzipped else data, gzipped=gzipped) == [
        ("d", "folder", b"", "", False),
        ("d/a", "file", b"x" * 1500, "", False),
        ("run", "file", b"#!", "", True),
        ("not-run", "file", b"#!", "", False),
        ("s", "symlink", b"", "d/a", False),
        ("h", "hardlink", b"", "run", False),
        ("pipe", "other", b"", "", False),
        ("disk", "other", b"", "", False),
        ("tty", "other", b"", "", False),
        ("contiguous", "file", b"2", "", False),
        ("holes", "other", b"", "", False),
        ("last", "file", b"3", "", False),
    ]


def test_what_a_consumer_leaves_unread_is_passed_over() -> None:
    data = tar_bytes([member("a", b"1" * 5000), member("b", b"2" * 700), member("c", b"3")])
    for gzipped in (False, True):
        source = io.BytesIO(gzip.compress(data) if gzipped else data)
        got = []
        for each in tar_members(source, gzipped=gzipped, what="model"):
            got.append((each.name, each.read(10)))
        assert got == [("a", b"1" * 10), ("b", b"2" * 10), ("c", b"3")]


def test_a_source_may_give_less_than_it_is_asked_for() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 7))

    data = tar_bytes([member("a", b"1" * 5000), member("b", b"2")])
    got = rows(tar_members(Trickle(data), gzipped=False, what="model"))
    assert [(name, content) for name, _, content, _, _ in got] == [("a", b"1" * 5000), ("b", b"2")]


def test_a_tar_file_ends_with_a_block_of_zeros() -> None:
    whole = tar_bytes([member("a", b"1")])
    assert tar_rows(whole[:1536]) == tar_rows(whole)
    end = "it has no end mark, or garbage in a header's place"
    for data in (whole[:1024], whole[:1535], whole[:1024] + b"x" * 512):
        code, message = tar_refused(data)
        assert (code, end in message) == ("archive-truncated", True)


def test_padding_behind_the_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", 100_000)
    whole = tar_bytes([member("a", b"1")])[:1536]
    assert len(tar_rows(whole + bytes(99_999))) == 1
    code, message = tar_refused(whole + bytes(100_000))
    assert (code, "data after the end of the archive" in message) == ("archive-unreadable", True)


def test_the_checksum_behind_a_gzip_stream_is_compared() -> None:
    packed = gzip.compress(tar_bytes([member("a", b"1")]) + bytes(200_000))
    assert len(tar_rows(packed, gzipped=True)) == 1
    assert tar_refused(packed[:-8] + bytes(8), gzipped=True)[0] == "archive-truncated"
    assert tar_refused(packed[:-1], gzipped=True)[0] == "archive-truncated"


def pax(kind: bytes, size: int) -> tuple[tarfile.TarInfo, bytes]:
    """An extended header of this many bytes."""
    start = b"%d comment=" % size
    return member("pax", start + b"x" * (size - len(start) - 1) + b"\n", kind=kind)


def test_one_header_is_as_large_as_allowed_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", 16_384)
    for size in (16_384 - 511, 16_384):  # tarfile reads whole blocks
        assert len(tar_rows(tar_bytes([pax(tarfile.XHDTYPE, size), member("a", b"1")]))) == 1
    code, message = tar_refused(tar_bytes([pax(tarfile.XHDTYPE, 16_385), member("a", b"1")]))
    assert (code, "a header of 16896 bytes" in message) == ("archive-unreadable", True)


def test_all_headers_together_are_bounded_and_content_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 blocks are allowed here: as many heads, or one less and a block of content on its way."""
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", 32 * 512)
    monkeypatch.setattr(archive_readers, "HEADERS_BYTES_MAX", 8 * 512)
    assert len(tar_rows(tar_bytes([member(f"{n}", b"1" * 20_480) for n in range(10)]))) == 10
    assert len(tar_rows(tar_bytes([member(f"{n}", b"1" * 512) for n in range(39)]))) == 39
    code, message = tar_refused(tar_bytes([member(f"{n}", b"1" * 512) for n in range(40)]))
    assert (code, "more than 4096 bytes of headers" in message) == ("archive-unreadable", True)


def test_a_hundred_global_headers_are_read_and_no_more() -> None:
    def with_keys(count: int) -> bytes:
        archive = io.BytesIO()
        with tarfile.open(
            fileobj=archive,
            mode="w",
            format=tarfile.PAX_FORMAT,
            pax_headers={f"k{number}": "v" for number in range(count)},
        ) as file:
            file.addfile(tarfile.TarInfo("a"))
        return archive.getvalue()

    assert len(tar_rows(with_keys(100))) == 1
    code, message = tar_refused(with_keys(101))
    assert (code, "more than 100 global headers" in message) == ("archive-unreadable", True)


def test_a_member_that_claims_more_than_there_is_is_cut_short() -> None:
    info, _ = member("a")
    info.size = 3000
    assert tar_refused(info.tobuf() + b"1" * 1000)[0] == "archive-truncated"
    info.size = 1 << 60
    assert tar_refused(info.tobuf() + b"1" * 1000)[0] == "archive-truncated"


# zip


def zip_bytes(
    members: list[tuple[str, bytes, int]], *, method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """(name, content, Unix mode) of each."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            file.writestr(info, content)
    return archive.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_each_kind_of_member_of_a_zip_file_is_told(method: int) -> None:
    data = zip_bytes(
        [
            ("d/", b"", 0o040755),
            ("d/a", b"x" * 1500, 0o100644),
            ("run", b"#!", 0o100100),
            ("not-run", b"#!", 0o100677),
            ("of-no-system", b"1", 0),
            ("of-no-type", b"2", 0o000644),
            ("s", b"d/a", 0o120777),
            ("pipe", b"", 0o010644),
            ("disk", b"", 0o060644),
            ("socket", b"", 0o140644),
            ("last", b"3", 0o100644),
        ],
        method=method,
    )
    assert zip_rows(data) == [
        ("d/", "folder", b"", "", False),
        ("d/a", "file", b"x" * 1500, "", False),
        ("run", "file", b"#!", "", True),
        ("not-run", "file", b"#!", "", False),
        ("of-no-system", "file", b"1", "", False),
        ("of-no-type", "file", b"2", "", False),
        ("s", "symlink", b"", "d/a", False),
        ("pipe", "other", b"", "", False),
        ("disk", "other", b"", "", False),
        ("socket", "other", b"", "", False),
        ("last", "file", b"3", "", False),
    ]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_unpacks_with_memory_of_the_archives_choice_is_refused(method: int) -> None:
    code, message = zip_refused(zip_bytes([("a", b"1", 0)], method=method))
    assert code == "archive-unreadable"
    assert "the member 'a' is not stored or deflated" in message


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(zip_bytes([("a", b"1", 0)]))
    data[data.index(b"PK\1\2") + 8] |= 1
    code, message = zip_refused(bytes(data))
    assert (code, "the member 'a' is encrypted" in message) == ("archive-unreadable", True)


def test_a_link_is_read_up_to_its_bound() -> None:
    [row] = zip_rows(zip_bytes([("s", b"x" * 5000, 0o120777)]))
    assert row == ("s", "symlink", b"", "x" * 4096, False)
    assert zip_refused(zip_bytes([("s", b"\xff", 0o120777)]))[0] == "archive-unreadable"


def test_no_directory_of_a_zip_file_is_larger_than_a_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = zip_bytes([(f"{n:03}", b"", 0o100644) for n in range(100)])
    size = int.from_bytes(data[-10:-6], "little")
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", size)
    assert len(zip_rows(data)) == 100
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", size - 1)
    code, message = zip_refused(data)
    assert (code, f"a directory of {size} bytes" in message) == ("archive-unreadable", True)


def test_a_damaged_member_of_a_zip_file_is_noticed_by_its_checksum() -> None:
    data = bytearray(zip_bytes([("a", b"12345678", 0)], method=zipfile.ZIP_STORED))
    data[data.index(b"12345678")] ^= 1
    assert zip_refused(bytes(data))[0] == "archive-truncated"


# Errors of the parsers


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (EOFError("cut"), "archive-truncated", "cut short or damaged: cut"),
        (EOFError(), "archive-truncated", "cut short or damaged: it ends early"),
        (tarfile.ReadError("unexpected end of data"), "archive-truncated", "unexpected end"),
        (tarfile.ReadError("truncated header"), "archive-truncated", "truncated header"),
        (gzip.BadGzipFile("CRC check failed"), "archive-truncated", "CRC check failed"),
        (zipfile.BadZipFile("File is not a zip file"), "archive-truncated", "not a zip file"),
        (zipfile.BadZipFile("Bad magic number"), "archive-unreadable", "Bad magic number"),
        (tarfile.ReadError("bad checksum"), "archive-unreadable", "bad checksum"),
        (zlib.error("Error -3"), "archive-unreadable", "error: Error -3"),
        (NotImplementedError("strong"), "archive-unreadable", "NotImplementedError: strong"),
        (OverflowError("x"), "archive-unreadable", "OverflowError: x"),
        (ValueError("x" * 500), "archive-unreadable", "ValueError: " + "x" * 188),
        (EOFError("y" * 500), "archive-truncated", "damaged: " + "y" * 200),
    ],
)
def test_every_way_in_which_a_parser_fails_is_an_error_of_ours(
    raised: Exception, code: str, told: str
) -> None:
    def broken() -> Any:
        with archive_readers._parser_errors("model"):
            raise raised

    error = error_of(broken)
    assert (error.code, error.__cause__) == (code, raised)
    assert told in error.message
    assert ("x" * 189 in error.message, "y" * 201 in error.message) == (False, False)


def test_a_bug_of_ours_is_not_blamed_on_the_archive() -> None:
    with pytest.raises(AttributeError), archive_readers._parser_errors("model"):
        raise AttributeError("ours")


def test_content_that_is_broken_is_told_to_whoever_reads_it() -> None:
    """A consumer reads outside of the generator that opened the archive."""
    packed = gzip.compress(tar_bytes([member("a", bytes(range(256)) * 400)]))
    source = io.BytesIO(packed[: len(packed) // 2])
    [each] = [next(tar_members(source, gzipped=True, what="model"))]
    error = error_of(lambda: each.read(200_000))
    assert error.code == "archive-truncated"
    assert error.message.startswith("model: ")


def test_bzip2_is_no_archive_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(bz2.compress(tar_bytes([member("a")])))
    assert archive_kind(tmp_path / "m") == ""


def test_what_reads_a_zip_file_never_takes_more_than_a_directory_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it asks for all that there is."""
    monkeypatch.setattr(archive_readers, "HEADER_BYTES_MAX", 8)
    for size in (None, -1, -2, 8):
        reads = archive_readers._BoundedReads(io.BytesIO(b"0123456789"), "model")
        assert (reads.read(size), reads.tell()) == (b"01234567", 8)
    assert (reads.read(1), reads.read(), reads.read()) == (b"8", b"9", b"")
    assert error_of(lambda: reads.read(9)).code == "archive-unreadable"

"""One exchange as plain values: header names, compressed bodies, headers that are safe to write."""

from __future__ import annotations

import gzip

import pytest

from penstock.errors import InternalError
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, header_text, percent_decoded, readable_body

_MEMBER = gzip.compress(b"{}", mtime=0)  # a test's name is the same whenever it is run


def compressed(body: bytes, encoding: str = "gzip") -> HttpRequest:
    return HttpRequest("POST", "/", "", {"Content-Encoding": encoding}, body)


def test_header_names_have_no_case_and_repeated_ones_are_joined() -> None:
    http = HttpRequest("GET", "/", "", [("X-A", " 1 "), ("x-a", "2"), ("Host", "h")])
    assert http.headers == {"x-a": "1,2", "host": "h"}


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "custom, gzip"])
def test_a_gzip_body_is_inflated_when_gzip_came_last(encoding: str) -> None:
    assert readable_body(compressed(gzip.compress(b"{}"), encoding)) == b"{}"


def test_a_body_in_another_encoding_is_left_as_it_is() -> None:
    assert readable_body(compressed(b"{}", "identity")) == b"{}"


def test_a_body_that_inflates_beyond_the_bound_is_refused_before_it_is_all_inflated() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    with pytest.raises(AwsError) as refused:
        readable_body(compressed(bomb), bytes_max=1000)
    assert (refused.value.code, refused.value.status) == ("RequestEntityTooLarge", 413)


def test_a_body_of_exactly_the_bound_is_read() -> None:
    assert len(readable_body(compressed(gzip.compress(bytes(1000))), bytes_max=1000)) == 1000


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", _MEMBER[:-3], _MEMBER + b"x", _MEMBER * 2],
)
def test_a_body_that_is_not_one_whole_gzip_member_is_refused(body: bytes) -> None:
    with pytest.raises(AwsError) as refused:
        readable_body(compressed(body))
    assert refused.value.code == "SerializationException"


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x", "a\nb", "a\0b"])
def test_a_header_value_cannot_smuggle_a_line(value: str) -> None:
    with pytest.raises(InternalError):
        header_text("X-A", value)


def test_a_header_value_beyond_ascii_goes_as_utf8_one_character_per_byte() -> None:
    assert header_text("X-A", "é").encode("latin-1") == "é".encode()


def test_percent_encoding_is_utf8_and_a_plus_is_a_space_where_asked() -> None:
    assert percent_decoded("a%2Fb+%C3%A9", plus_is_space=True) == "a/b é"
    assert percent_decoded("a+b", plus_is_space=False) == "a+b"
    with pytest.raises(AwsError):
        percent_decoded("%ff", plus_is_space=True)

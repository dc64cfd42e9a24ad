"""What the head of a request alone decides."""

from __future__ import annotations

import pytest

from penstock.core.request.head_check import HeadCheck, authority_of, origin_form
from penstock.core.request.host_gate import HostGate


def code(error: object) -> str | None:
    return getattr(error, "code", None)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        (b"/a?b=http://c/d", None, b"/a?b=http://c/d"),
        (b"*", None, b"*"),
        (b"http://a:1/b?c", b"a:1", b"/b?c"),
        (b"HTTPS://a", b"a", b"/"),
        (b"http://a?b", b"a", b"/?b"),
        (b"ftp://a/b", None, b"ftp://a/b"),
    ],
)
def test_a_target_in_absolute_form_is_a_host_and_a_path(
    url: bytes, authority: bytes | None, path: bytes
) -> None:
    assert (authority_of(url), origin_form(url)) == (authority, path)


@pytest.mark.parametrize(
    ("url", "version", "known", "rare", "expected"),
    [
        (b"/", "1.1", b"localhost", {}, None),
        (b"/", "1.1", None, {}, "host-missing"),
        (b"/", "1.0", None, {}, None),
        (b"/", "1.1", None, {b"host": b"localhost"}, None),
        (b"/", "1.1", None, {b"host": b""}, "host-malformed"),
        (b"/", "1.1", None, {b"host": b"localhost,localhost"}, "host-repeated"),
        (b"/", "1.1", b"localhost", {b"host": b"localhost"}, "host-repeated"),
        (b"/", "1.1", None, {b"host": b"evil.example"}, "host-unknown"),
        (b"http://localhost/", "1.1", b"localhost:80", {}, None),
        (b"http://LOCALHOST:80/", "1.1", b"localhost", {}, None),
        (b"http://evil.example/", "1.1", b"localhost", {}, "host-repeated"),
        (b"http://localhost:8080/", "1.1", b"localhost:80", {}, "host-repeated"),
        (b"*", "1.1", b"localhost", {}, None),
        (b"http://a@localhost/", "1.1", b"localhost", {}, "host-repeated"),
        (b"http://evil.example/", "1.0", None, {}, "host-unknown"),
        (b"/", "1.1", b"localhost", {b"transfer-encoding": b"Chunked"}, None),
        (
            b"/", "1.1", b"localhost", {b"transfer-encoding": b"gzip, chunked"},
            "transfer-coding-unknown",
        ),
        (
            b"/", "1.1", b"localhost", {b"transfer-encoding": b"chunked,chunked"},
            "transfer-coding-unknown",
        ),
        (b"/", "1.0", b"localhost", {b"transfer-encoding": b"chunked"}, "http-malformed"),
        (b"/", "1.1", b"localhost", {b"origin": b"http://evil.example"}, "page-foreign"),
    ],
)  # fmt: skip
def test_a_head_names_exactly_one_host_and_can_be_read_in_one_way(
    url: bytes, version: str, known: bytes | None, rare: dict[bytes, bytes], expected: str | None
) -> None:
    assert code(HeadCheck(HostGate()).error(b"POST", url, version, known, rare)) == expected


def test_spellings_that_passed_are_known_and_never_many() -> None:
    check = HeadCheck(HostGate(any_host=True))
    for number in range(1000):
        assert check.error(b"GET", b"/", "1.1", None, {b"host": b"h%d" % number}) is None
        assert b"h%d" % number in check.known_hosts
        assert len(check.known_hosts) == number % 64 + 1
    refusing = HeadCheck(HostGate())
    refusing.error(b"GET", b"/", "1.1", None, {b"host": b"evil.example"})
    assert refusing.known_hosts == set()


def test_a_page_that_passed_with_one_host_is_still_judged_with_another() -> None:
    """What was remembered of one pair of Origin and Host says nothing of any other."""
    check = HeadCheck(HostGate(any_host=True))
    own = {b"origin": b"http://a:1"}
    for _ in range(2):
        assert check.error(b"POST", b"/", "1.1", b"a:1", own) is None
        assert code(check.error(b"POST", b"/", "1.1", b"b:1", own)) == "page-foreign"
        foreign = {b"origin": b"http://b:1"}
        assert code(check.error(b"POST", b"/", "1.1", b"a:1", foreign)) == "page-foreign"


def test_a_page_is_this_servers_by_the_host_that_the_same_head_names() -> None:
    check = HeadCheck(HostGate(any_host=True))
    for host, expected in ((b"a:1", None), (b"b:1", "page-foreign")):
        rare = {b"host": host, b"origin": b"http://a:1"}
        assert code(check.error(b"POST", b"/", "1.1", None, rare)) == expected


def test_a_request_of_no_page_lets_no_page_pass_after_it() -> None:
    check = HeadCheck(HostGate())
    assert check.error(b"POST", b"/", "1.1", b"localhost", {}) is None
    foreign = {b"sec-fetch-site": b"cross-site"}
    assert code(check.error(b"POST", b"/", "1.1", b"localhost", foreign)) == "page-foreign"

"""What an HTTP server may answer, rule by rule; the answers are made here, the rules are real."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from artifact_files import budget, error_of
from tests.kit.object_server import ObjectServer, object_server

from penstock.artifacts.sources import http_source, object_store
from penstock.errors import CallerError, NotNowError, PenstockError


class CannedAnswer:
    """One answer; `chunks` is its body."""

    def __init__(self, status: int = 200, *chunks: bytes, **headers: str) -> None:
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.chunks = chunks
        self.closed = False

    def stream(self, size: int, decode_content: bool) -> Iterator[bytes]:
        assert not decode_content, "an archive is what its bytes are"
        yield from self.chunks

    def close(self) -> None:
        self.closed = True


class CannedAnswers:
    """Answers in their order, and what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: CannedAnswer) -> None:
        self.answers = list(answers)
        self.urls: list[tuple[str, bool]] = []
        monkeypatch.setattr(http_source, "_asked", self)

    def __call__(self, url: str, admits: Any, given: Any, *, credentials: bool) -> CannedAnswer:
        self.urls.append((url, credentials))
        return self.answers[len(self.urls) - 1]


def test_a_listing_is_one_file_of_the_announced_size(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = CannedAnswer(200, b"ab", b"c", content_length="3", etag='"e"', last_modified="today")
    CannedAnswers(monkeypatch, answer)
    listing = http_source.list_http("http://h/a%20b/m.onnx?sig=x#y", budget=budget())
    [file] = listing.files
    assert (file.name, file.size, file.stamp) == ("m.onnx", 3, '"e"')
    assert (listing.single, listing.settled, file.executable) == (True, True, False)
    assert not answer.closed
    assert b"".join(file.chunks()) == b"abc"
    assert answer.closed


@pytest.mark.parametrize(
    ("headers", "stamp"),
    [({"last_modified": "today"}, "today"), ({"etag": "", "last_modified": "today"}, "today"),
     ({}, "")],
)  # fmt: skip
def test_without_an_etag_the_date_is_the_stamp(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], stamp: str
) -> None:
    CannedAnswers(monkeypatch, CannedAnswer(200, content_length="0", **headers))
    [file] = http_source.list_http("http://h/m", budget=budget()).files
    assert file.stamp == stamp


@pytest.mark.parametrize("size", ["", "-1", "1.0", "\xb2", "\u0663", " 3", "9" * 19, "9" * 5000])
def test_a_size_that_is_no_number_is_unknown(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    answer = CannedAnswer(200, content_length=size)
    CannedAnswers(monkeypatch, answer)
    error = error_of(lambda: http_source.list_http("http://h/m", budget=budget()))
    assert (error.code, answer.closed) == ("artifact-size-unknown", True)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "artifact-not-found", CallerError),
        (410, "artifact-not-found", CallerError),
        (401, "artifact-access-denied", CallerError),
        (403, "artifact-access-denied", CallerError),
        (204, "artifact-unreachable", NotNowError),
        (304, "artifact-unreachable", NotNowError),
        (402, "artifact-unreachable", NotNowError),
        (500, "artifact-unreachable", NotNowError),
    ],
)
def test_another_status_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, kind: type[PenstockError]
) -> None:
    answer = CannedAnswer(status, content_length="0")
    CannedAnswers(monkeypatch, answer)
    error = error_of(lambda: http_source.list_http("http://h/m", budget=budget()))
    assert (error.code, type(error), answer.closed) == (code, kind, True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_credentials_stay_with_their_host(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    answers = [
        CannedAnswer(status, location="b"),
        CannedAnswer(status, location="//u:p@other/c"),
        CannedAnswer(status, location="http://u:p@h/d"),
        CannedAnswer(200, content_length="0"),
    ]
    asked = CannedAnswers(monkeypatch, *answers)
    http_source.list_http("http://u:p@h/x/a", budget=budget())
    assert asked.urls == [
        ("http://u:p@h/x/a", True),
        ("http://u:p@h/x/b", True),
        ("http://u:p@other/c", False),
        ("http://u:p@h/d", True),
    ]
    assert [answer.closed for answer in answers] == [True, True, True, False]


@pytest.mark.parametrize(("redirects", "refused"), [(5, False), (6, True)])
def test_redirects_are_followed_five_times(
    monkeypatch: pytest.MonkeyPatch, redirects: int, refused: bool
) -> None:
    answers = [CannedAnswer(302, location="/again") for _ in range(redirects)]
    asked = CannedAnswers(monkeypatch, *answers, CannedAnswer(200, content_length="0"))
    if refused:
        error = error_of(lambda: http_source.list_http("http://h/m", budget=budget()))
        assert error.code == "artifact-redirect-refused"
    else:
        http_source.list_http("http://h/m", budget=budget())
    assert len(asked.urls) == 6


@pytest.mark.parametrize("to", ["https://h/m", "file:///etc/passwd", "http://[bad/m", "//[bad"])
def test_a_redirect_to_another_scheme_or_to_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    answer = CannedAnswer(302, location=to)
    CannedAnswers(monkeypatch, answer)
    error = error_of(lambda: http_source.list_http("http://h/m", budget=budget()))
    assert (error.code, answer.closed) == ("artifact-redirect-refused", True)


@pytest.mark.parametrize("chunks", [(b"ab",), (b"ab", b"cd"), ()])
def test_a_body_of_another_length_is_no_model(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[bytes, ...]
) -> None:
    answer = CannedAnswer(200, *chunks, content_length="3")
    CannedAnswers(monkeypatch, answer)
    [file] = http_source.list_http("http://h/m", budget=budget()).files
    error = error_of(lambda: list(file.chunks()))
    assert (error.code, answer.closed) == ("artifact-unreachable", True)


class FailingAnswer(CannedAnswer):
    def __init__(self, cause: Exception) -> None:
        super().__init__(200, content_length="3")
        self.cause = cause

    def stream(self, size: int, decode_content: bool) -> Iterator[bytes]:
        yield b"a"
        raise self.cause


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (urllib3.exceptions.ProtocolError("broken"), "artifact-unreachable"),
        (TimeoutError("late"), "artifact-unreachable"),
        (ssl.SSLError("CERTIFICATE_VERIFY_FAILED"), "artifact-certificate-untrusted"),
        (CallerError("ours", "Ours.", hint="h"), "ours"),
    ],
)
def test_what_breaks_on_the_way_is_told(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, code: str
) -> None:
    answer = FailingAnswer(cause)
    CannedAnswers(monkeypatch, answer)
    [file] = http_source.list_http("http://h/m", budget=budget()).files
    assert error_of(lambda: list(file.chunks())).code == code
    assert answer.closed


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no route"), "no route"),
        (OSError(), "OSError"),
        (OSError("first\nsecond"), "first"),
        (OSError("at http://u:p@h/x?sig=secret now"), "at http://h/x now"),
        (urllib3.exceptions.MaxRetryError(None, "/", OSError("why")), "why"),  # type: ignore[arg-type]
    ],
)
def test_a_failure_is_told_without_what_is_secret(error: Exception, words: str) -> None:
    told = http_source._failed("model", error)
    assert (told.code, told.message) == ("artifact-unreachable", f"model: {words}")


# Addresses


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost", "127.0.0.1"),
        ("LOCALHOST.", "127.0.0.1"),
        ("a.localhost", "127.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("example.com", "1.1.1.1"),
    ],
)
def test_a_name_says_of_its_address_what_it_can(host: str, address: str) -> None:
    assert http_source._named_address(host) == address


@pytest.mark.parametrize(
    ("address", "public", "link_local"),
    [
        ("1.1.1.1", True, False),
        ("10.0.0.1", False, False),
        ("127.0.0.1", False, False),
        ("224.0.0.1", False, False),
        ("ff0e::1", False, False),
        ("169.254.169.254", False, True),
        ("::ffff:169.254.169.254", False, True),
        ("fe80::1%eth0", False, True),
        ("2606:4700::1111", True, False),
        ("::ffff:1.1.1.1", True, False),
    ],
)
def test_an_address_is_public_private_or_of_the_link(
    address: str, public: bool, link_local: bool
) -> None:
    assert http_source._is_public(address) is public
    assert http_source._is_link_local(address) is link_local


# On a real connection


def test_what_is_asked_and_how_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib3.Retry, "sleep", lambda self, response=None: None)
    with object_server() as server:
        server.objects["/m"] = b"x"
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        answer = http_source._asked(
            server.url.replace("//", "//us%20er:p%3Aw@") + "/m?a=b", lambda _: True, budget(),
            credentials=True,
        )  # fmt: skip
        assert answer.status == 200
        answer.close()
        http_source._asked(server.url, lambda _: True, budget(), credentials=True).close()
        assert server.requests == ["GET /m?a=b", "GET /"]
        assert server.authorizations == ["Basic dXMgZXI6cDp3", ""]
        asked_again(server)


def asked_again(server: ObjectServer) -> None:
    """What may pass is asked for again, a few times; anything else is not."""
    for status, times in ((503, 1 + object_store.RETRIES_MAX), (404, 1)):
        server.requests.clear()
        server.status = status
        answer = http_source._asked(f"{server.url}/m", lambda _: True, budget(), credentials=False)
        assert (answer.status, len(server.requests)) == (status, times)
        answer.close()

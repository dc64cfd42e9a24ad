"""The command line's client: errors of every door as our own, with a code and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit import http_servers
from tests.kit.http_servers import Reply, SeenRequest

from penstock.cli.client import Client
from penstock.errors import PenstockError


class Answering:
    """A server that answers every request with the same status, headers and body."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.asked: dict[str, str] = {}
        self.url = ""

    def reply(self, seen: SeenRequest) -> Reply:
        self.asked = seen.headers
        return self.answer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    server = Answering()
    with http_servers.answering(server.reply) as server.url:
        yield server


@pytest.mark.parametrize(
    ("status", "headers", "body", "family", "code", "hint"),
    [
        (
            400,
            {"x-amzn-ErrorType": "ValidationError"},
            b'{"Message": "Endpoint shop of account 1 not found."}',
            "caller",
            "ValidationError",
            "See 'penstock status' for what there is.",
        ),
        (424, {"x-amzn-ErrorType": "ModelError"}, b'{"Message": "m"}', "model", "ModelError", ""),
        (
            503,
            {"x-amzn-ErrorType": "ServiceUnavailable"},
            b'{"Message": "m"}',
            "not-now",
            "ServiceUnavailable",
            "Try again in a moment.",
        ),
        (
            403,
            {"x-amzn-ErrorType": "UnrecognizedClientException"},
            b'{"Message": "m"}',
            "caller",
            "UnrecognizedClientException",
            "Give a key of 'penstock keys create --bearer' with --key or PENSTOCK_KEY.",
        ),
        (404, {}, b'{"code": "gone", "message": "m", "hint": "h"}', "caller", "gone", "h"),
        (502, {}, b"<html>a proxy's page</html>", "internal", "http-502", ""),
    ],
)
def test_an_error_keeps_its_code_and_says_what_to_do(
    answering: Answering,
    status: int,
    headers: dict[str, str],
    body: bytes,
    family: str,
    code: str,
    hint: str,
) -> None:
    answering.answer = (status, headers, body)
    with pytest.raises(PenstockError) as caught:
        Client(answering.url).invoke("shop", b"{}", {})
    assert (caught.value.family, caught.value.code, caught.value.hint) == (family, code, hint)


def test_the_key_comes_from_the_flag_or_else_from_the_environment(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    Client(answering.url).invoke("shop", b"{}", {})
    assert "authorization" not in answering.asked
    monkeypatch.setenv("PENSTOCK_KEY", "from-environment")
    Client(answering.url).invoke("shop", b"{}", {})
    assert answering.asked["authorization"] == "Bearer from-environment"
    Client(answering.url, key="from-flag").invoke("shop", b"{}", {})
    assert answering.asked["authorization"] == "Bearer from-flag"

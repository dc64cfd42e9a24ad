"""The key with which a platform's own pipelines ask its endpoints: it opens nothing else."""

from __future__ import annotations

import pytest

from penstock.api.access import KeyAuthenticator
from penstock.clock import ManualClock
from penstock.wire.aws.errors import AwsError

OWN = "own-key-of-this-start"


class NoKeys:
    def secret(self, access_key_id: str) -> str | None:
        return None

    def bearer(self, token: str) -> str | None:
        return None

    def grant(self, key_id: str) -> None:
        return None


def check(path: str, token: str, own_key: str = OWN) -> None:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    authenticator = KeyAuthenticator(NoKeys(), ManualClock(), own_key=own_key)
    authenticator.check("POST", path.encode(), b"", headers, b"{}")


def test_endpoints_open_to_it() -> None:
    check("/endpoints/chat/invocations", OWN)
    check("/endpoints/chat/openai/v1/chat/completions", OWN)


@pytest.mark.parametrize("path", ["/", "/metrics", "/admin/copies", "/v1/models", "/v2/models/x"])
def test_all_else_stays_closed(path: str) -> None:
    with pytest.raises(AwsError):
        check(path, OWN)


@pytest.mark.parametrize("token", ["", "own", OWN + "x", OWN[:-1]])
def test_no_other_token_is_taken_for_it(token: str) -> None:
    with pytest.raises(AwsError):
        check("/endpoints/chat/invocations", token)


def test_a_platform_without_one_takes_no_empty_token() -> None:
    with pytest.raises(AwsError):
        check("/endpoints/chat/invocations", "", own_key="")

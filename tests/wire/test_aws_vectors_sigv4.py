"""AWS's Signature Version 4 test suite: every step of each case, then the signed request."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from tests.wire import aws_vectors

from penstock.wire.aws import sigv4
from penstock.wire.aws.http import HttpRequest

aws_vectors.require()

SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
STAMP = "20150830T123600Z"
NOW_S = 1_440_938_160.0

#: Signed requests that can't be right.
BROKEN = {
    "get-vanilla-with-session-token": "its signature is not that of its own .authz file",
}


def request_of(raw: bytes) -> HttpRequest:
    """A request from its file; a header that goes on in the next line is one value."""
    head, _, body = raw.partition(b"\n\n")
    line, *lines = re.sub(rb"\n[ \t]+", b" ", head.strip(b"\n")).decode("latin-1").split("\n")
    method, target = line.rpartition(" ")[0].split(" ", 1)
    path, _, query = target.partition("?")
    headers = [(name, value) for name, _, value in (header.partition(":") for header in lines)]
    return HttpRequest(method, path, query, headers, body)


@pytest.mark.parametrize("path", aws_vectors.signature_cases())
def test_every_step_gives_what_the_suite_says(path: Path) -> None:
    authorization = aws_vectors.read(path, ".authz").decode().strip()
    signed = sigv4.parse_authorization({"authorization": authorization})
    http = request_of(aws_vectors.read(path, ".sreq"))
    body_hash = hashlib.sha256(http.body).hexdigest()

    canonical = sigv4.canonical_request(http, signed.signed_headers, body_hash)

    assert canonical == aws_vectors.read(path, ".creq").decode("latin-1")
    expected = aws_vectors.read(path, ".sts").decode()
    assert sigv4.string_to_sign(canonical, STAMP, signed) == expected
    assert sigv4.signature_of(canonical, STAMP, signed, SECRET_KEY) == signed.signature


@pytest.mark.parametrize("path", aws_vectors.signature_cases(without=BROKEN))
def test_the_signed_request_is_let_in(path: Path) -> None:
    http = request_of(aws_vectors.read(path, ".sreq"))
    signed = sigv4.parse_authorization(http.headers)
    assert signed.access_key == "AKIDEXAMPLE"
    sigv4.verify(http, signed, SECRET_KEY, now_wall_s=NOW_S, service_expected="service")

"""The certificate authority of a deployment: private, lasting, replaced before it is too late."""

from __future__ import annotations

import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from penstock.errors import CallerError, NotNowError
from penstock.fleet.identity import contexts
from penstock.fleet.identity.authority import Authority, key_and_request
from penstock.fleet.identity.contexts import server_identity_of

NOW = 1_800_000_000.0
YEAR_S = 365 * 86_400.0


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    Authority.open(tmp_path, now=NOW).server_identity(now=NOW)
    folder = tmp_path / "identity"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"authority.pem": 0o600, "server.pem": 0o600}


def test_an_authority_outlives_its_server(tmp_path: Path) -> None:
    first = Authority.open(tmp_path, now=NOW)
    assert Authority.open(tmp_path, now=NOW + YEAR_S).certificate == first.certificate


def test_an_authority_that_would_expire_before_what_it_signs_is_replaced(tmp_path: Path) -> None:
    first = Authority.open(tmp_path, now=NOW)
    assert Authority.open(tmp_path, now=NOW + 7.9 * YEAR_S).certificate == first.certificate
    assert Authority.open(tmp_path, now=NOW + 8.1 * YEAR_S).certificate != first.certificate


def test_each_start_has_a_new_key(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path, now=NOW)
    first, second = authority.server_identity(now=NOW), authority.server_identity(now=NOW)
    assert first.key != second.key
    assert server_identity_of(tmp_path) == second


def test_a_clock_that_is_late_by_a_minute_does_not_matter(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path, now=NOW)
    own = x509.load_pem_x509_certificate(authority.certificate.encode())
    signed = x509.load_pem_x509_certificate(authority.server_identity(now=NOW).certificate.encode())
    for certificate in (own, signed):
        assert certificate.not_valid_before_utc <= datetime.fromtimestamp(NOW - 60, UTC)


def test_a_key_is_in_no_repr(tmp_path: Path) -> None:
    identity = Authority.open(tmp_path, now=NOW).server_identity(now=NOW)
    assert "PRIVATE" in identity.key
    assert "PRIVATE" not in repr(identity)


def test_a_request_can_ask_for_no_name_of_its_own(tmp_path: Path) -> None:
    """Whatever a node writes into its request, its instance has the name that we gave it."""
    authority = Authority.open(tmp_path, now=NOW)
    _, request = key_and_request(contexts.SERVER)
    signed = authority.sign(request, contexts.of_instance("one"), now=NOW)
    certificate = x509.load_pem_x509_certificate(signed.encode())
    told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert told.value.get_values_for_type(x509.DNSName) == [contexts.of_instance("one")]
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not limits.value.ca


@pytest.mark.parametrize("request_pem", ["", "nonsense", "-----BEGIN CERTIFICATE REQUEST-----\n"])
def test_what_is_no_request_is_refused(tmp_path: Path, request_pem: str) -> None:
    authority = Authority.open(tmp_path, now=NOW)
    with pytest.raises(CallerError) as refused:
        authority.sign(request_pem, "name", now=NOW)
    assert refused.value.code == "certificate-request-invalid"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    Authority.open(tmp_path, now=NOW).server_identity(now=NOW)
    (tmp_path / "identity" / "authority.pem").write_text("half a k")
    (tmp_path / "identity" / "server.pem").write_text("half a k")
    for read in (lambda: Authority.open(tmp_path, now=NOW), lambda: server_identity_of(tmp_path)):
        with pytest.raises(CallerError) as refused:
            read()
        assert refused.value.code == "identity-unreadable"


def test_a_directory_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("a file is in its place")
    with pytest.raises(NotNowError) as refused:
        Authority.open(tmp_path, now=time.time())
    assert refused.value.code == "identity-not-writable"

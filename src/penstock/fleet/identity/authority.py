"""The certificate authority of one deployment, kept in its state directory.

Files below `identity/` there, readable by their owner alone:

    authority.pem  the authority's key and certificate: whoever reads it can pose as anybody here
    server.pem     key, certificate and the authority's certificate, for the gateways and the
                   control plane; made anew with each start

An instance's key is made where the instance runs, and never leaves that machine: only a request to
be signed travels. Keys are in no log, no command line and no `repr`. Certificates are valid from an
hour before they are signed, so the clocks of machines need not agree. To renew them, restart the
server (its instances end with it, so they get new ones too). An authority that would expire before
what it signs is replaced at the start.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.errors import CallerError, NotNowError
from penstock.fleet.identity import contexts
from penstock.fleet.identity.contexts import Identity, unreadable

#: Lifetime of a certificate. It covers a server that is never restarted, and is no longer because
#: certificates cannot be revoked.
_LEAF: Final = timedelta(days=730)
_AUTHORITY: Final = timedelta(days=3650)
#: Clocks of machines differ, by minutes or by a forgotten time zone.
_BACKDATED: Final = timedelta(hours=1)
_COMMON_NAME_CHARS_MAX: Final = 64  # ub-common-name of RFC 5280


class Authority:
    """Signs for one deployment. Make one with `open`."""

    def __init__(
        self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self._folder = folder
        self._key = key
        self._certificate = certificate
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM).decode()

    @classmethod
    def open(cls, state_dir: Path, *, now: float) -> Authority:
        """The authority of this state directory. It is made first where none exists, or where it
        would expire too soon.

        `now`: s since the epoch. Raises NotNowError `identity-not-writable`, and CallerError
        `identity-unreadable` where its file is damaged.
        """
        folder = state_dir / "identity"
        path = folder / "authority.pem"
        moment = datetime.fromtimestamp(now, UTC)
        if path.exists():
            key, certificate = _read(path)
            if certificate.not_valid_after_utc >= moment + _LEAF:
                return cls(folder, key, certificate)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(key, moment)
        _write_private(path, _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, key, certificate)

    def server_identity(self, *, now: float) -> Identity:
        """A new one, also written to `server.pem` for the other processes of this server."""
        key, request = key_and_request("penstock server")
        identity = self.identity(key, request, contexts.SERVER, now=now)
        text = identity.key + identity.certificate + identity.authority
        _write_private(self._folder / "server.pem", text.encode())
        return identity

    def identity(self, key: str, request: str, name: str, *, now: float) -> Identity:
        return Identity(
            certificate=self.sign(request, name, now=now), key=key, authority=self.certificate
        )

    def sign(self, request: str, name: str, *, now: float) -> str:
        """A certificate, in PEM, for the key that `request` was made with, under `name`.

        Other fields of the request are ignored. Raises CallerError `certificate-request-invalid`.
        """
        moment = datetime.fromtimestamp(now, UTC)
        try:
            asked = x509.load_pem_x509_csr(request.encode())
            if not asked.is_signature_valid:
                raise InvalidSignature
        except (ValueError, InvalidSignature):
            raise CallerError(
                "certificate-request-invalid", f"the request for a certificate of {name} is none"
            ) from None
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(self._certificate.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - _BACKDATED)
            .not_valid_after(moment + _LEAF)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_and_request(common_name: str) -> tuple[str, str]:
    """A new private key, and a request for its certificate; both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_CHARS_MAX])]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    signed = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return _key_pem(key).decode(), signed.decode()


def _self_signed(key: ec.EllipticCurvePrivateKey, moment: datetime) -> x509.Certificate:
    # Each authority has its own name: two with one name would be confused.
    called = f"Penstock {x509.random_serial_number():x}"[:_COMMON_NAME_CHARS_MAX]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _BACKDATED)
        .not_valid_after(moment + _AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read(path: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        text = path.read_bytes()
        key = serialization.load_pem_private_key(text, password=None)
        certificate = x509.load_pem_x509_certificate(text[text.index(b"-----BEGIN CERT") :])
    except OSError as error:
        raise unreadable(path, error.strerror or "unreadable") from error
    except (ValueError, TypeError):
        raise unreadable(path, "it is damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise unreadable(path, "its key is of another kind")
    return key, certificate


def _write_private(path: Path, data: bytes) -> None:
    """Writes the file as a whole or not at all, and never readable by anybody else."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise NotNowError(
            "identity-not-writable",
            f"{path} can't be written: {error.strerror}",
            hint="Free disk space, or correct the permissions of the state directory.",
        ) from error

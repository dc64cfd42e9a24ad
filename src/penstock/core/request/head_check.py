"""Checks of a request's head alone: it can be read in one way only, and comes from an allowed page.

Framing and names are checked here, credentials elsewhere. A head that can be read in two ways is
refused and never repaired: a proxy before this server may have read it the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.core.request.host_gate import HostGate, split_authority
from penstock.errors import CallerError, PenstockError

HOST: Final = b"host"
TRANSFER_ENCODING: Final = b"transfer-encoding"
ORIGIN: Final = b"origin"
FETCH_SITE: Final = b"sec-fetch-site"
FETCH_MODE: Final = b"sec-fetch-mode"
#: Headers that are checked here, and that nothing on the hot path reads.
RARE: Final = (TRANSFER_ENCODING, ORIGIN, FETCH_SITE, FETCH_MODE)
#: Fields in one head. Browsers and SDKs send fewer than 40; a field of four bytes takes 40 times
#: its size in memory.
FIELDS_MAX: Final = 128

#: Spellings of hosts, and of pages with hosts, that are remembered.
_KNOWN_MAX = 64
Known = TypeVar("Known", bytes, tuple[bytes, bytes])
_DEFAULT_PORTS = {b"http": "80", b"https": "443"}


class HeadCheck:
    """Judges heads for one server.

    Attributes:
        known_hosts: values of Host that have passed, in their original spelling: a usual request
            costs one look-up here.
    """

    def __init__(self, gate: HostGate) -> None:
        self._gate = gate
        self.known_hosts: set[bytes] = set()
        self._known_pages: set[tuple[bytes, bytes]] = set()  #: Origin, Host

    def error(
        self,
        method: bytes,
        url: bytes,
        version: str,
        known_host: bytes | None,
        rare: Mapping[bytes, bytes],
    ) -> PenstockError | None:
        """None if the request may be read further.

        Args:
            version: "1.0" or "1.1".
            known_host: the first Host header, if it is one of `known_hosts`; else None.
            rare: the other headers, by lower-case name; values of repeated ones are joined by
            commas.
        """
        host = known_host
        noted = rare.get(HOST)
        if noted is not None:
            if known_host is not None or b"," in noted:
                return CallerError("host-repeated", "A request names exactly one host.")
            host = noted
        elif host is None and version != "1.0":
            return CallerError("host-missing", "The request has no Host header.")
        return (
            _framing_error(rare.get(TRANSFER_ENCODING), version)
            or (None if noted is None else self._host_error(noted))
            or self._target_error(url, host)
            or self._page_error(method, host or b"", rare)
        )

    def _host_error(self, host: bytes) -> PenstockError | None:
        error = self._gate.host_error(host)
        if error is None:
            _remember(self.known_hosts, host)
        return error

    def _page_error(
        self, method: bytes, host: bytes, rare: Mapping[bytes, bytes]
    ) -> PenstockError | None:
        origin = rare.get(ORIGIN)
        site, mode = rare.get(FETCH_SITE), rare.get(FETCH_MODE)
        if origin is None:
            return self._gate.page_error(method, host, None, site, mode)
        page = (origin, host)  # where there is an Origin, nothing else decides
        if page in self._known_pages:
            return None
        error = self._gate.page_error(method, host, origin, site, mode)
        if error is None:
            _remember(self._known_pages, page)
        return error

    def _target_error(self, url: bytes, host: bytes | None) -> PenstockError | None:
        """A target in absolute form names the host a second time (RFC 9112, 3.2.2)."""
        if url[:1] == b"/":
            return None
        authority = authority_of(url)
        if authority is None:
            return None  # `*`, or a target that doors will not find
        if host is None:
            return self._gate.host_error(authority)
        scheme = url.partition(b":")[0].lower()
        default = _DEFAULT_PORTS.get(scheme, "")
        told, of_host = split_authority(authority), split_authority(host)
        if told is None or of_host is None or _whole(told, default) != _whole(of_host, default):
            return CallerError("host-repeated", "The target and the Host header name two hosts.")
        return None


def _remember(known: set[Known], passed: Known) -> None:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known.add(passed)


def authority_of(url: bytes) -> bytes | None:
    """The part between scheme and path of a target in absolute form; None for other targets."""
    scheme, separator, rest = url.partition(b"://")
    if not separator or scheme.lower() not in _DEFAULT_PORTS:
        return None
    return rest.partition(b"/")[0].partition(b"?")[0]


def origin_form(url: bytes) -> bytes:
    """Path and query of a target in absolute form (RFC 9112, 3.2.2); other targets unchanged."""
    authority = authority_of(url)
    if authority is None:
        return url
    rest = url.partition(b"://")[2][len(authority) :]
    return rest if rest[:1] == b"/" else b"/" + rest


def _whole(authority: tuple[str, str], default: str) -> tuple[str, str]:
    return authority[0], authority[1] or default


def _framing_error(coding: bytes | None, version: str) -> PenstockError | None:
    if coding is None:
        return None
    if version == "1.0":
        return CallerError("http-malformed", "HTTP/1.0 has no Transfer-Encoding.")
    if coding.strip(b" \t").lower() != b"chunked":
        message = f"Transfer-Encoding: {coding[:64].decode('latin-1')} is not served."
        hint = "Send the body as it is, with its length or in chunks."
        # RFC 9112, 6.1 requires 501, which makes SDKs send the same again.
        return CallerError("transfer-coding-unknown", message, hint=hint)
    return None

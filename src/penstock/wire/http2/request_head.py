"""A header block into a request, by the rules of RFC 9113, 8.2 and 8.3, and of RFC 9110, 5.

Clients send the same block again and again, so two things are kept for a connection: the heads of
blocks that did not change the decoder's table, as long as nothing else changes it, and what was
found out about single fields. Both are bounded, and only cost a peer that varies them their gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.wire.http2.hpack import Field, HpackDecoder

#: A token without upper case (RFC 9113, 8.2.1; RFC 9110, 5.6.2).
_NAME: Final = re.compile(rb"[a-z0-9!#$%&'*+\-.^_`|~]+")
#: No control characters but tabs, and no space at either end (8.2.1; RFC 9110, 5.5).
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff][\t -~\x80-\xff]*)?")
_TOKEN: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
#: Visible characters, and those beyond ASCII, which servers let pass; no fragment (8.3.1). A star
#: stands for the server (of OPTIONS alone).
_PATH: Final = re.compile(rb"/[!\"$-~\x80-\xff]*|\*")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*")
#: Neither user information (8.3.1) nor what would begin another part of a URL.
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9\-._~%!$&'()*+,;=:\[\]]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")

#: Fields of one HTTP/1.1 connection (8.2.2).
_CONNECTION_FIELDS: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
#: What the value of a pseudo field must be (8.3.1)
_PSEUDO: Final = {
    b":method": _TOKEN,
    b":scheme": _SCHEME,
    b":authority": _AUTHORITY,
    b":path": _PATH,
}

# What is known about a field
_PLAIN: Final = 0
_IS_PSEUDO: Final = 1
_IS_COOKIE: Final = 2
_IS_HOST: Final = 3
_IS_LENGTH: Final = 4
_OF_NAME: Final = {b"cookie": _IS_COOKIE, b"host": _IS_HOST, b"content-length": _IS_LENGTH}

_KNOWN_MAX: Final = 128
_KNOWN_BYTES_MAX: Final = 256  #: of a field that is kept
_HEADS_MAX: Final = 32
_HEAD_BYTES_MAX: Final = 1024  #: of a block that is kept


class MalformedRequest(Exception):
    """The request breaks a rule: its stream ends with PROTOCOL_ERROR (RFC 9113, 8.1.1)."""


class Http2RequestHead(NamedTuple):
    method: bytes
    path: bytes
    authority: bytes
    scheme: bytes
    fields: tuple[Field, ...]
    length: int  #: content-length; -1 = not stated


class HeadReader:
    """All header blocks of one connection, in the order of their arrival."""

    __slots__ = ("_changes", "_decoder", "_heads", "_known")

    def __init__(self, list_bytes_max: int) -> None:
        self._decoder = HpackDecoder(list_bytes_max)
        self._changes = 0  #: the decoder's, for which `_heads` is right
        self._heads: dict[bytes, Http2RequestHead] = {}  #: by their blocks
        self._known: dict[Field, int] = {}

    def head(self, block: bytes) -> Http2RequestHead:
        """The request that a block begins.

        Raises MalformedRequest, and what `HpackDecoder.decode` raises.
        """
        head = self._heads.get(block)
        if head is not None:
            return head
        changes = self._changes
        head = self._checked(self.skip(block))
        if changes != self._changes:
            return head
        if len(block) <= _HEAD_BYTES_MAX:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[block] = head
        return head

    def trailers(self, block: bytes) -> tuple[Field, ...]:
        """The fields behind a body. Raises as `head` does."""
        fields = self.skip(block)
        for field in fields:
            if self._kind(field) == _IS_PSEUDO:
                raise MalformedRequest("a pseudo field in trailers")  # 8.1
        return tuple(fields)

    def skip(self, block: bytes) -> list[Field]:
        """Fields that nobody reads: decoded, so that the tables stay equal (4.3)."""
        try:
            return self._decoder.decode(block)
        finally:  # a list that is too large has changed the table as well
            if self._decoder.changes != self._changes:
                self._changes = self._decoder.changes
                self._heads.clear()

    def _checked(self, fields: list[Field]) -> Http2RequestHead:
        pseudo: dict[bytes, bytes] = {}
        plain: list[Field] = []
        cookies: list[bytes] = []
        length, host = -1, None
        known = self._known
        for field in fields:
            kind = known.get(field)
            if kind is None:
                kind = self._kind(field)
            if kind == _PLAIN:
                plain.append(field)
            elif kind == _IS_PSEUDO:
                if plain or cookies:
                    raise MalformedRequest("a pseudo field after a field")  # 8.3
                if field[0] in pseudo:
                    raise MalformedRequest("a pseudo field given twice")  # 8.3
                pseudo[field[0]] = field[1]
            elif kind == _IS_COOKIE:
                cookies.append(field[1])
            elif kind == _IS_HOST:
                if host is not None:
                    raise MalformedRequest("host given twice")  # RFC 9110, 7.2
                host = field[1]
                plain.append(field)
            else:
                if length not in (-1, int(field[1])):
                    raise MalformedRequest("two lengths of one body")  # RFC 9110, 8.6
                if length == -1:
                    plain.append(field)
                length = int(field[1])
        if cookies:  # they may come in crumbs (8.2.3)
            plain.append((b"cookie", b"; ".join(cookies)))
        return _request(pseudo, tuple(plain), host, length)

    def _kind(self, field: Field) -> int:
        """What a field is; raises MalformedRequest where it must not be."""
        name, value = field
        kind = _OF_NAME.get(name, _PLAIN)
        if name in _PSEUDO:
            kind = _IS_PSEUDO
            if not _PSEUDO[name].fullmatch(value):
                raise MalformedRequest(f"a {name.decode()[1:]} that is none")
        elif not _NAME.fullmatch(name):
            raise MalformedRequest(f"a field name that is none: {name[:40]!r}")
        elif name in _CONNECTION_FIELDS:
            raise MalformedRequest(f"a field of HTTP/1.1 connections: {name.decode()}")
        elif name == b"te" and value.lower() != b"trailers":
            raise MalformedRequest("te is not trailers")  # 8.2.2
        elif kind == _IS_HOST and not _AUTHORITY.fullmatch(value):
            raise MalformedRequest("a host that is none")
        elif kind == _IS_LENGTH and not _LENGTH.fullmatch(value):
            raise MalformedRequest("content-length is no length")
        if not _VALUE.fullmatch(value) or value[-1:] in (b" ", b"\t"):
            raise MalformedRequest(f"a value with characters that must not be there: {name!r}")
        if len(name) + len(value) <= _KNOWN_BYTES_MAX:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[field] = kind
        return kind


def _request(
    pseudo: dict[bytes, bytes], fields: tuple[Field, ...], host: bytes | None, length: int
) -> Http2RequestHead:
    """By the rules for pseudo fields (8.3.1)."""
    method = pseudo.get(b":method")
    if method is None:
        raise MalformedRequest("no method")
    authority = pseudo.get(b":authority")
    if authority is None:
        authority = host or b""
    elif host is not None and host != authority and host.lower() != authority.lower():
        raise MalformedRequest("host differs from :authority")
    path, scheme = pseudo.get(b":path"), pseudo.get(b":scheme")
    if method == b"CONNECT":  # 8.5
        if path is not None or scheme is not None or not authority:
            raise MalformedRequest("CONNECT has an authority, and neither path nor scheme")
        return Http2RequestHead(method, b"", authority, b"", fields, length)
    if scheme is None or path is None:
        raise MalformedRequest("no scheme, or no path")
    if not authority and scheme in (b"http", b"https"):  # RFC 9110, 4.2.1
        raise MalformedRequest("neither authority nor host")
    if path == b"*" and method != b"OPTIONS":
        raise MalformedRequest("a star that is not OPTIONS'")
    return Http2RequestHead(method, path, authority, scheme, fields, length)


def check_sent(fields: Iterable[Field]) -> None:
    """Of what we send, which user code may have made: a value must not end its field.

    Raises ValueError.
    """
    for name, value in fields:
        if name != b":status" and not _NAME.fullmatch(name):
            raise ValueError(f"a field name that is none: {name!r}")
        if name in _CONNECTION_FIELDS:
            raise ValueError(f"a field of HTTP/1.1 connections: {name!r}")
        if not _VALUE.fullmatch(value) or value[-1:] in (b" ", b"\t"):
            raise ValueError(f"a value with characters that must not be there: {name!r}")

"""One HTTP exchange as plain values, which the protocol modules read and write.

Text that came off the wire holds one character per byte (latin-1), so that a signature can be
checked over exactly the bytes that were signed; `percent_decoded` makes it readable.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.errors import InternalError
from penstock.wire.aws.errors import AwsError, unreadable

#: CloudWatch accepts 1 MB, compressed or not; nothing of the control plane comes near this. Reading
#: a larger body would also keep other requests waiting too long.
BODY_BYTES_MAX = 1 << 20
_GZIP_WBITS = 31  # zlib's code for a gzip header and trailer, and nothing else


class HttpRequest:
    """A whole request.

    Attributes:
        path: as on the wire, percent-encoded, without the query.
        query: as on the wire, without the question mark.
        headers: names in lower case; a header that came several times is joined by commas.
        body: as on the wire, still compressed if it came so.
    """

    __slots__ = ("body", "headers", "method", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.body = body
        self.headers: dict[str, str] = {}
        repeated: dict[str, list[str]] = {}  # a header may occur thousands of times
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            key, text = name.lower(), value.strip(" \t")
            if key not in self.headers:
                self.headers[key] = text
            else:
                repeated.setdefault(key, [self.headers[key]]).append(text)
        for key, texts in repeated.items():
            self.headers[key] = ",".join(texts)

    @classmethod
    def received(
        cls,
        method: str,
        path: bytes,
        query: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes = b"",
    ) -> HttpRequest:
        """A request in the bytes that were received, one character per byte."""
        return cls(
            method,
            path.decode("latin-1"),
            query.decode("latin-1"),
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
            body,
        )


class HttpResponse(NamedTuple):
    """A whole answer; the server adds framing headers (Content-Length, Date)."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as they are sent, names in lower case."""
        return [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in self.headers
        ]


class ParsedRequest(NamedTuple):
    """A parsed request. Timestamps are seconds since the epoch, blobs are bytes."""

    operation: Any  #: botocore.model.OperationModel
    params: dict[str, Any]


def readable_body(http: HttpRequest, *, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The decoded body: inflated if it came as gzip.

    Raises:
        AwsError: the body claims to be gzip and is not, or is larger than `bytes_max`, inflated.
    """
    encodings = http.headers.get("content-encoding", "")
    if encodings.rpartition(",")[2].strip().lower() != "gzip":
        if len(http.body) > bytes_max:
            raise _too_large(f"The body is larger than {bytes_max} bytes.")
        return http.body
    inflater = zlib.decompressobj(_GZIP_WBITS)
    try:
        body = inflater.decompress(http.body, bytes_max + 1)
    except zlib.error as cause:
        raise unreadable("The body does not hold the gzip data that it announces.") from cause
    if len(body) > bytes_max:
        raise _too_large(f"The body inflates to more than {bytes_max} bytes.")
    if not inflater.eof or inflater.unused_data:
        raise unreadable("The gzip data of the body is cut short or followed by something else.")
    return body


def _too_large(message: str) -> AwsError:
    return AwsError("RequestEntityTooLarge", message, status=413)


def percent_decoded(text: str, *, plus_is_space: bool) -> str:
    """A part of a path, a query string or a form, decoded to UTF-8 text.

    Raises:
        AwsError: SerializationException, for bytes that are not UTF-8.
    """
    if plus_is_space:
        text = text.replace("+", " ")
    if "%" not in text and text.isascii():
        return text
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeError as cause:
        raise unreadable(f"Not UTF-8: {text[:64]!r}") from cause


def header_text(name: str, value: str) -> str:
    """A header value that is safe to write: it can't add a line, and non-ASCII goes as UTF-8."""
    if "\r" in value or "\n" in value or "\0" in value:
        raise InternalError("header-unsafe", f"The value of header {name} spans lines.")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("latin-1")

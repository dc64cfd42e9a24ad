"""What a browser must read before a listed page of another server sees an answer (Fetch standard,
"CORS protocol").

Whose pages may call is `listen.origins`; the listener has refused others before. Credentials of a
browser (cookies) are none of ours, so they are never allowed; a page sends its key itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.api.openai.request import is_preflight
from penstock.core.request.head_check import ORIGIN
from penstock.core.request.host_gate import ANY, normal_origin
from penstock.gateway.http.call import status_line

REQUEST_HEADERS: Final = b"access-control-request-headers"
#: How long a browser may remember what a page may send, in s: what Chromium has as its most.
_MAX_AGE_S: Final = 7200
_METHODS: Final = b"GET, HEAD, POST"
#: Headers of answers that pages read: OpenAI's clients retry and report by them.
_SHOWN: Final = b"x-request-id, retry-after, retry-after-ms, x-should-retry"
_HEADERS_MAX: Final = 2048
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]*")


class PageAccess:
    """The pages that may read answers. Made once per door."""

    def __init__(self, origins: Iterable[str]) -> None:
        """`origins`: as the setting lists them; `*` stands for any."""
        origins = tuple(origins)
        self._any = ANY in origins
        self._origins = frozenset(filter(None, map(normal_origin, origins)))

    def lines(self, rare: Mapping[bytes, bytes] | None) -> bytes:
        """Header lines of an answer; empty where no listed page asked."""
        if not rare or not (self._any or self._origins):
            return b""
        origin = rare.get(ORIGIN)
        if origin is None:
            return b""
        if self._any:
            whose = b"*\r\n"
        elif normal_origin(origin.decode("latin-1")) in self._origins:
            whose = origin + b"\r\nvary: origin\r\n"
        else:
            return b""
        shown = b"access-control-expose-headers: %b\r\n" % _SHOWN
        return b"access-control-allow-origin: " + whose + shown

    def preflight(self, method: bytes, rare: Mapping[bytes, bytes] | None) -> bytes | None:
        """The head of the answer to a browser that asks whether a page may send a request; None:
        this is none, or its page is not listed."""
        if rare is None or not is_preflight(method, rare):
            return None
        lines = self.lines(rare)
        if not lines:
            return None
        head = status_line(204) + lines + b"access-control-allow-methods: %b\r\n" % _METHODS
        wanted = rare.get(REQUEST_HEADERS, b"")
        if wanted and len(wanted) <= _HEADERS_MAX and _HEADER_NAMES.fullmatch(wanted):
            # OpenAI's clients send a dozen of their own, so none is refused.
            head += b"access-control-allow-headers: %b\r\n" % wanted
        return head + b"access-control-max-age: %d\r\n" % _MAX_AGE_S

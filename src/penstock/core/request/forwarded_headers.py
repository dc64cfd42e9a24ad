"""Which headers of an inference request a model sees among its parameters (Triton's
`--http-header-forward-pattern` and `--grpc-header-forward-pattern`).

The operator's pattern is looked for in the names of headers, whatever their case; `(?-i)` before
it makes the case count. Credentials are never passed on: they are for this server. Names that
Triton keeps for its own parameters are refused, as Triton does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.errors import CallerError

SETTING: Final = "listen.header_forward_pattern"
#: Of all names and values of one request. The head of a frame takes 64 KiB, with all else.
FORWARDED_BYTES_MAX: Final = 16 << 10
_CASE_COUNTS: Final = "(?-i)"
_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization"})
_RESERVED: Final = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers",
     "binary_data_output")
)  # fmt: skip
_RESERVED_PREFIX: Final = "triton_"


class HeaderForwarding:
    def __init__(self, pattern: str) -> None:
        """`pattern`: empty = no header is passed on.

        Raises CallerError (`header-pattern-invalid`) for one that is no regular expression.
        """
        flags = 0 if pattern.startswith(_CASE_COUNTS) else re.IGNORECASE
        try:
            self._find = re.compile(pattern.removeprefix(_CASE_COUNTS), flags).search
        except re.error as error:
            raise CallerError(
                "header-pattern-invalid",
                f"{SETTING} is {pattern[:200]!r}: {error}",
                hint="Give a regular expression of header names, such as ^x-tenant$ or PREFIX_.*",
            ) from None
        self.on = bool(pattern)

    def chosen(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers to pass on; values of one name are joined by commas.

        Raises CallerError: `header-reserved`, `headers-too-large`.
        """
        found: dict[str, str] = {}
        size = 0
        for name, value in headers:
            if not self._find(name) or name.lower() in _CREDENTIALS:
                continue
            if name in _RESERVED or name.startswith(_RESERVED_PREFIX):
                raise CallerError(
                    "header-reserved",
                    f"Header {name!r} is reserved for Triton usage and cannot be forwarded.",
                    hint="Give the header another name.",
                )
            size += len(name) + len(value)
            found[name] = f"{found[name]},{value}" if name in found else value
        if size > FORWARDED_BYTES_MAX:
            raise CallerError(
                "headers-too-large",
                f"The headers that are passed on to the model have {size} bytes,"
                f" {FORWARDED_BYTES_MAX} at most.",
                hint=f"Send less in the headers that {SETTING} names.",
                status=431,
            )
        return found

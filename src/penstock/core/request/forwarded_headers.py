"""Which headers of an inference request a model sees among its parameters.

What Triton's `--http-header-forward-pattern` and `--grpc-header-forward-pattern` do. The operator
names headers, or the beginnings of names; an expression, as Triton takes one, could cost any time
with a stranger's names. Credentials are never passed on: they are for this server. Nor is what gRPC
and its tracing say to one another (`grpc-...`). Names that Triton keeps for its own parameters are
refused, as Triton does. A parameter is a text, so a binary value of gRPC (its name ends with
`-bin`) is passed on where it is UTF-8, and refused where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters, digits
from typing import Final

from penstock.errors import CallerError

SETTING: Final = "listen.forward_headers"
#: Of all names and values of one request. The head of a frame takes 64 KiB, with all else.
FORWARDED_BYTES_MAX: Final = 16 << 10
_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization"})
_RESERVED: Final = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers",
     "binary_data_output")
)  # fmt: skip
_RESERVED_PREFIX: Final = "triton_"
_OF_GRPC: Final = "grpc-"
#: A `*` is a character of names, too; here it is the mark for a beginning.
_NAME_CHARACTERS: Final = frozenset(ascii_letters + digits + "!#$%&'+-.^_`|~")


class HeaderForwarding:
    def __init__(self, names: Sequence[str]) -> None:
        """`names`: whatever their case; with `*` behind it, a name is the beginning of others.

        Raises CallerError (`header-name-invalid`) for what is no name of a header (RFC 9110,
        section 5.6.2), or has a `*` elsewhere.
        """
        for name in names:
            if not name or not _NAME_CHARACTERS.issuperset(name[:-1] if name[-1] == "*" else name):
                raise CallerError(
                    "header-name-invalid",
                    f"{SETTING} has {name[:200]!r}",
                    hint="Give names of headers; a * is at the end of one, as in x-tenant-*.",
                )
        lower = [name.lower() for name in names]
        self._names = frozenset(name for name in lower if not name.endswith("*"))
        self._beginnings = tuple(name[:-1] for name in lower if name.endswith("*"))
        self.on = bool(names)

    def chosen(self, headers: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
        """The headers to pass on; values of one name are joined by commas.

        Raises CallerError: `header-reserved`, `header-not-text`, `headers-too-large`.
        """
        found: dict[str, str] = {}
        size = 0
        for name, given in headers:
            lower = name.lower()
            named = lower in self._names or lower.startswith(self._beginnings)
            if not named or lower in _CREDENTIALS or lower.startswith(_OF_GRPC):
                continue
            if name in _RESERVED or name.startswith(_RESERVED_PREFIX):
                raise CallerError(
                    "header-reserved",
                    f"The header {name!r} has the name of a parameter of Triton's own.",
                    hint="Give the header another name.",
                )
            value = given if isinstance(given, str) else _text(name, given)
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


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CallerError(
            "header-not-text",
            f"Metadata {name!r} has bytes that are no text in UTF-8, and is passed on to the model"
            " as a parameter, which is a text.",
            hint=f"Send it as a text, such as base64, or take its name out of {SETTING}.",
        ) from None

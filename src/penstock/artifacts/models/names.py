"""Which names of target models are accepted. Pure.

A name is the path below the prefix, all of it, suffix included: the archive `a.tar.gz` and the
folder `a` are two models with two names, and so are `A.tar.gz` and `a.tar.gz`. Nothing is repaired
and nothing decoded: a name means what it says, or it is refused. AWS allows 1 to 1024 printable
characters that do not begin with a space.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.errors import CallerError

CHARS_MAX: Final = 1024
#: What programs put at the end of files that they have not finished. Files that begin with a dot
#: are hidden and mostly of that kind, too.
_UNFINISHED: Final = (".part", ".partial", ".tmp", "~")
#: A name that is still another one after this many rounds of percent-decoding wants to be one.
_ROUNDS_MAX: Final = 8


def checked(name: str) -> str:
    """`name`, if it names something below a prefix. Raises `CallerError` (`target-model-invalid`).

    Percent signs are ordinary characters, but what they might be decoded to further on must be
    harmless as well.
    """
    _check(name, name)
    decoded = name
    for _ in range(_ROUNDS_MAX):
        before, decoded = decoded, unquote(decoded)
        if decoded == before:
            return name
        _check(decoded, name)
    raise _invalid(name, "it is percent-encoded again and again")


def is_left_out(path: str) -> bool:
    """Whether a path is hidden, temporary or bookkeeping, and so no model nor part of an index."""
    return is_clutter(path) or any(
        part.startswith(".") or part.endswith(_UNFINISHED) for part in path.split("/")
    )


def _check(name: str, given: str) -> None:
    if not 1 <= len(name) <= CHARS_MAX:
        raise _invalid(given, f"it has {len(name)} characters; 1 to {CHARS_MAX} are allowed")
    if name[0].isspace() or name[-1].isspace():
        raise _invalid(given, "it begins or ends with a space")
    if "�" in name:
        raise _invalid(given, "it contains undecodable characters")
    try:
        plain = safe_path(name, where="TargetModel")
    except CallerError as error:
        raise _invalid(given, error.message.rpartition(": ")[2]) from None
    if plain != name:
        raise _invalid(given, "it has an empty part or a '.' between two slashes, or at an end")
    if is_left_out(name):
        raise _invalid(given, "hidden and temporary names are no models")


def _invalid(name: str, cause: str) -> CallerError:
    return CallerError(
        "target-model-invalid",
        f"TargetModel {shown(name)} is refused: {cause}",
        hint="Give the path of the model below the prefix of CreateModel, as in "
        "customer-17.tar.gz or team/a/model.tar.gz.",
        param="TargetModel",
    )

"""Errors for a job's data that is missing, has changed, or has another format.

`penstock.artifacts` reads the data, and its errors speak of models. Those with another meaning for
data are replaced here; the others stay.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import CallerError, PenstockError


def of_data(error: PenstockError) -> PenstockError:
    """The error of a read, in words for the owner of a job's data."""
    told = _TOLD_ANEW.get(error.code)
    return error if told is None else told(error.message)


def not_found(message: str) -> CallerError:
    return CallerError(
        "input-not-found",
        message,
        hint="Check bucket, key and spelling. A path is one of the server's machine; for "
        "s3://, check control.s3_endpoint and s3_local too.",
    )


def too_many(message: str) -> CallerError:
    return CallerError(
        "input-objects-too-many",
        message,
        hint="Name a longer prefix, or put more records into each object.",
    )


def key_unsafe(message: str) -> CallerError:
    return CallerError(
        "input-key-unsafe",
        message,
        hint="Rename the object: its output is named after it, below the output location.",
    )


def changed(message: str) -> CallerError:
    return CallerError(
        "input-changed",
        message,
        hint="A job reads each object in the version that was there when it was created. Write new "
        "objects beside the old ones, and start a job when they are complete.",
    )


def too_large(what: str, offset: int, bytes_max: int) -> CallerError:
    return CallerError(
        "record-too-large",
        f"{what}: the record at byte {offset} is larger than {bytes_max} bytes",
        hint="Check SplitType and what parts the records; raise MaxPayloadInMB if it is right.",
    )


def unreadable(what: str, offset: int, kind: str, cause: str) -> CallerError:
    """The error for bytes from `offset` on that don't fit SplitType."""
    return CallerError(
        "record-unreadable",
        f"{what}: it can't be read as {kind} at byte {offset}: {cause}",
        hint="Check SplitType and CompressionType, and that the object was uploaded whole.",
    )


_TOLD_ANEW: Final = {
    "artifact-not-found": not_found,
    "artifact-empty": not_found,
    "artifact-changed": changed,
    "artifact-too-many-files": too_many,
    "artifact-path-unsafe": key_unsafe,
}

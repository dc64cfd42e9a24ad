"""Bytes of one object from any position, in the version that existed when the job began.

A reader gets a part of the object in chunks of bounded size, and an error if the object is no
longer the listed one: its stamp is compared before the first byte and after the last.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import Final, Protocol

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import copy_file, local_place, look
from penstock.artifacts.sources.local_files import open_unchanged
from penstock.artifacts.sources.places import LocalPlace
from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.core.jobs.spec import InputObject
from penstock.core.request.storage_failures import storage_error
from penstock.errors import PenstockError
from penstock.records.refusals import changed, of_data

CHUNK_BYTES: Final = 256 * 1024
#: Time limit of a listing or of one ranged read; only the caller limits reading a whole object.
SECONDS_MAX: Final = 600.0
#: Bound of an object that is copied; a full disk is reported first.
OBJECT_BYTES_MAX: Final = 2**40


class ObjectBytes(Protocol):
    """An open object, for one thread at a time."""

    size: int

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        """Bytes from `start` up to `stop`, or the end; each chunk has at least one byte.

        Args:
            sure: bytes up to here are read in any case, so they may be requested ahead; None:
                all of them.
        """


def open_object(
    one: InputObject, settings: ArtifactSettings
) -> AbstractContextManager[ObjectBytes]:
    """Opens an object. Entering, reading and leaving raise `PenstockError` (`input-changed`
    ...)."""
    budget = budget_for(one.uri)
    place = local_place(one.uri, settings, budget)
    if place is not None:
        return _local(place, one, budget.what)
    if one.uri[:5].lower() == "s3://":
        from penstock.records.objects.s3_objects import opened  # noqa: PLC0415 - kept off local reads

        return opened(one, settings, budget)
    return _copied(one, settings, budget)


def budget_for(uri: str) -> Budget:
    return Budget(shown_uri(uri), bytes_max=OBJECT_BYTES_MAX, seconds_max=SECONDS_MAX)


@contextmanager
def _local(place: LocalPlace, one: InputObject, what: str) -> Iterator[ObjectBytes]:
    try:
        with open_unchanged(place.path, one.stamp, what, place.fence) as descriptor:
            yield DescriptorBytes(descriptor, one.size, what)
    except PenstockError as error:
        raise of_data(error) from error


@contextmanager
def _copied(one: InputObject, settings: ArtifactSettings, budget: Budget) -> Iterator[ObjectBytes]:
    """Copies an object behind https:// at full speed. A model reads slowly, and a server would
    close the connection."""
    try:
        [file] = look(one.uri, settings, budget).files
        if (file.size, file.stamp) != (one.size, one.stamp):
            raise changed(f"{budget.what}: it is another one than when the job began")
        with tempfile.TemporaryDirectory(prefix="penstock-input-") as folder:
            budget.expect(one.size, Path(folder))
            copy = Path(folder) / "object"
            copy_file(file, copy, budget)
            descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
    except PenstockError as error:
        raise of_data(error) from error
    # The copy has no name any more, so nothing of it remains, however this ends.
    with FileIO(descriptor):
        yield DescriptorBytes(descriptor, one.size, budget.what)


class DescriptorBytes:
    """An open file of this machine."""

    def __init__(self, descriptor: int, size: int, what: str) -> None:
        self.size = size
        self._descriptor = descriptor
        self._what = what

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        at, stop = start, min(stop, self.size)
        while at < stop:
            try:
                chunk = os.pread(self._descriptor, min(CHUNK_BYTES, stop - at), at)
            except OSError as error:
                raise storage_error(
                    error,
                    "input-unreadable",
                    f"{self._what}: cannot read at byte {at}: {error.strerror}",
                    hint="Check the disk that holds it.",
                ) from error
            if not chunk:
                return  # truncated since; the comparison of the stamps reports it
            yield chunk
            at += len(chunk)

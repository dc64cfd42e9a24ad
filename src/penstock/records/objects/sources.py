"""Bytes of one object from anywhere in it, in the version that was there when the job began.

Whoever reads gets a part of the object in chunks of bounded size, and an error where the object is
no longer the one that was listed: its stamp is compared before the first byte and after the last.
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
#: Of one look or one ranged read; reading a whole object has no end but the caller's.
SECONDS_MAX: Final = 600.0
#: Of an object that is copied; a full disk is told before.
OBJECT_BYTES_MAX: Final = 2**40


class ObjectBytes(Protocol):
    """An open object. One thread at a time."""

    size: int

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        """Bytes from `start` up to `stop`, or the end; each chunk has at least one byte.

        Args:
            sure: up to here they are read in any case, so that they may be asked for ahead; None:
                all of them.
        """


def open_object(
    one: InputObject, settings: ArtifactSettings
) -> AbstractContextManager[ObjectBytes]:
    """Opens it. Entering, reading and leaving raise `PenstockError` (`input-changed` ...)."""
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
    """Behind https:// an object is read once, as fast as it comes, and not as slowly as a model
    asks for it: a server would hang up."""
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
    # The copy has no name any more: nothing of it stays, however this ends.
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
                return  # cut short meanwhile: what compares the stamps says so
            yield chunk
            at += len(chunk)

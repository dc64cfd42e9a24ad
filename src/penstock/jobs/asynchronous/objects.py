"""Inputs and outputs of asynchronous requests: objects on this machine, in S3, or at https:// URLs.

Calls block: the driver makes them in threads. An output is there whole or not at all, and survives
a power cut once `write` has returned. A second `write` replaces the object.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import shutil
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import SourceFile
from penstock.artifacts.sources.fetch import local_place, look, s3_parts
from penstock.artifacts.sources.object_store import chunks_of, put_error, remote_error, s3_store
from penstock.artifacts.sources.places import LocalPlace, file_mode
from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.core.request.storage_failures import errno_passes
from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError, PenstockError

#: A body or an answer has at most 1 GiB: a transfer that takes longer than this hangs.
SECONDS_MAX: Final = 600.0
_STORES_MAX: Final = 64
_INPUT_CODES: Final = {
    "artifact-not-found": "input-not-found",
    "artifact-too-large": "input-too-large",
}


class Input(NamedTuple):
    """An object that was read."""

    body: bytes
    content_type: str  #: as its store reports it; empty = unknown


class Objects:
    """The stores that this server reaches, with the operator's settings. Thread-safe."""

    def __init__(
        self,
        settings: ArtifactSettings,
        *,
        inputs: tuple[str, ...] = (),
        free_bytes_min: int = 0,
    ) -> None:
        """
        Args:
            inputs: prefixes. A link may not lead out of the prefix that an input is below.
            free_bytes_min: what outputs leave free on a disk of this machine.
        """
        self._settings = settings
        self._free_bytes_min = free_bytes_min
        self._inputs = tuple(prefix.rstrip("/") + "/" for prefix in inputs)
        self._stores: dict[str, Any] = {}  #: by bucket: making one needs credentials

    def size(self, uri: str, *, bytes_max: int) -> int:
        """Bytes of an input. Raises as `read`."""
        budget = _budget(uri, bytes_max)
        with _input_errors():
            place = self._in_s3(uri, budget)
            if place is None:
                size = self._file(uri, budget).size
            else:
                store, key = place
                size = int(_asked("head", store, key, budget)["size"])
            return _checked(size, bytes_max, budget.what)

    def read(self, uri: str, *, bytes_max: int) -> Input:
        """One whole object.

        Raises CallerError (`input-not-found`, `input-empty`, `input-too-large`,
        `input-unreadable`), or NotNowError (`input-unreachable`).
        """
        budget = _budget(uri, bytes_max)
        body = bytearray()
        content_type = ""
        with _input_errors():
            place = self._in_s3(uri, budget)
            if place is None:
                file = self._file(uri, budget)
                _checked(file.size, bytes_max, budget.what)
                chunks = file.chunks()
            else:
                found = _asked("get", *place, budget)
                _checked(int(found.meta["size"]), bytes_max, budget.what)
                content_type = str((found.attributes or {}).get("Content-Type", ""))
                chunks = chunks_of(found, budget)
            for chunk in chunks:
                budget.take(len(chunk))
                body += chunk
        return Input(bytes(body), content_type)

    def write(self, uri: str, data: bytes, *, draft: str, content_type: str = "") -> None:
        """Makes or replaces an object. `draft`: a name that no other writer uses at the same time.

        Raises CallerError (`output-unwritable`), or NotNowError (`output-unreachable`) where its
        disk or its store fails for now.
        """
        budget = _budget(uri, len(data))
        try:
            place = local_place(uri, self._settings, budget)
            if place is None:
                if uri[:5].lower() != "s3://":
                    raise _unwritable(uri, "answers are written to s3:// and file:// only")
                bucket, key = s3_parts(uri, budget)
                self._put(bucket, key, data, content_type, budget)
            else:
                _replace(place, data, draft, budget.what, self._free_bytes_min)
        except PenstockError as error:
            raise _output_error(uri, error) from error
        except OSError as error:
            raise _disk_error(uri, error) from error

    def check_writable(self, uri: str) -> None:
        """Returns if outputs can be written below a prefix. Raises as `write`."""
        probe = f"{uri.rstrip('/')}/.penstock-writable"
        self.write(probe, b"", draft="probe")
        budget = _budget(uri, 0)
        place = local_place(probe, self._settings, budget)
        if place is not None:
            try:
                with place.fence.folder(place.path.parent, budget.what) as folder:
                    (folder / place.path.name).unlink(missing_ok=True)
            except OSError as error:
                raise _disk_error(uri, error) from error
            return
        bucket, key = s3_parts(probe, budget)
        try:
            importlib.import_module("obstore").delete(self._store(bucket, budget), key)
        except Exception as error:
            failure = remote_error(budget.what, error)
            # The right to write does not imply the right to delete
            if not isinstance(failure, CallerError):
                raise _output_error(uri, failure) from error

    def _in_s3(self, uri: str, budget: Budget) -> tuple[Any, str] | None:
        """The bucket's store, and the key; None for URIs that are not in S3."""
        if uri[:5].lower() != "s3://" or local_place(uri, self._settings, budget) is not None:
            return None
        bucket, key = s3_parts(uri, budget)
        return self._store(bucket, budget), key

    def _file(self, uri: str, budget: Budget) -> SourceFile:
        within = max((one for one in self._inputs if uri.startswith(one)), key=len, default="")
        listing = look(uri, self._settings, budget, within=within)
        if not listing.single:
            raise CallerError(
                "input-not-found", f"{budget.what}: it is a folder, or a prefix of objects"
            )
        return listing.files[0]

    def _put(self, bucket: str, key: str, data: bytes, content_type: str, budget: Budget) -> None:
        attributes = {"Content-Type": content_type} if content_type else None
        try:
            importlib.import_module("obstore").put(
                self._store(bucket, budget), key, data, attributes=attributes
            )
        except PenstockError:
            raise
        except Exception as error:
            raise put_error(budget.what, error) from error

    def _store(self, bucket: str, budget: Budget) -> Any:
        store = self._stores.get(bucket)
        if store is None:
            store = s3_store(bucket, endpoint=self._settings.s3_endpoint, budget=budget)
            if len(self._stores) >= _STORES_MAX:
                self._stores.clear()
            self._stores[bucket] = store
        return store


def _budget(uri: str, bytes_max: int) -> Budget:
    return Budget(shown_uri(uri), bytes_max=bytes_max, seconds_max=SECONDS_MAX)


def _replace(place: LocalPlace, data: bytes, draft: str, what: str, free_bytes_min: int) -> None:
    name = place.path.name
    # Listings of artifacts leave such names out, should somebody serve from this folder.
    beside = f"._penstock-{draft}-{name}"[:255]
    with place.fence.folder(place.path.parent, what) as folder:
        if free_bytes_min and shutil.disk_usage(folder).free < free_bytes_min + len(data):
            raise OSError(errno.ENOSPC, f"{free_bytes_min} bytes of its disk are to stay free")
        replace_file(folder / name, (data,), mode=file_mode(folder), draft=beside)


def _asked(operation: str, store: Any, key: str, budget: Budget) -> Any:
    try:
        return getattr(importlib.import_module("obstore"), operation)(store, key)
    except Exception as error:
        raise remote_error(budget.what, error) from error


def _checked(size: int, bytes_max: int, what: str) -> int:
    if not size:
        raise CallerError("input-empty", f"{what}: the object is empty")
    if size > bytes_max:
        raise CallerError(
            "input-too-large",
            f"{what}: the object has {size} bytes; the bound is {bytes_max} bytes",
            hint="Send smaller inputs, or raise limits.async_bytes_max.",
        )
    return size


@contextlib.contextmanager
def _input_errors() -> Iterator[None]:
    """Turns errors of artifacts into those of an input."""
    try:
        yield
    except NotNowError as error:
        raise NotNowError("input-unreachable", error.message, hint=error.hint) from error
    except CallerError as error:
        if error.code.startswith("input-"):
            raise
        code = _INPUT_CODES.get(error.code, "input-unreadable")
        raise CallerError(code, error.message, hint=error.hint) from error


def _output_error(uri: str, error: PenstockError) -> PenstockError:
    if error.code == "output-unwritable":
        return error
    if isinstance(error, NotNowError):
        return NotNowError("output-unreachable", error.message, hint=error.hint)
    return _unwritable(uri, error.message)


def _disk_error(uri: str, error: OSError) -> PenstockError:
    cause = error.strerror or str(error)
    if not errno_passes(error.errno):
        return _unwritable(uri, cause)
    return NotNowError(
        "output-unreachable",
        f"{shown_uri(uri)} can't be written for now: {cause}",
        hint="Free space on the disk that holds it, or mend it; it is tried again until then.",
    )


def _unwritable(uri: str, cause: str) -> CallerError:
    return CallerError(
        "output-unwritable",
        f"{shown_uri(uri)} can't be written: {cause}",
        hint="Name a prefix that exists, and that the user that runs the server may write to.",
    )

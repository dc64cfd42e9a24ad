"""Outputs of a job: `<key>.out` for each object, complete or missing, and `<key>.errors` beside it
where records were refused.

An object's errors are written before its output, so a reader of an output finds its errors too.
Repeating it does no harm.

An `OutputPlace` is a folder of this machine or the prefix of a bucket. Each object is written there
as a whole or not at all.
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.artifacts.files.budget import disk_errors
from penstock.artifacts.files.paths import safe_path, shown
from penstock.artifacts.sources.fetch import local_path, local_place, s3_parts
from penstock.artifacts.sources.object_store import put_error, remote_error, s3_store
from penstock.artifacts.sources.places import Fence, LocalPlace, file_mode
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import DataProcessing, InputObject, Span, TransformOutput, is_parquet
from penstock.core.request.storage_failures import storage_error
from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.records.objects.local_objects import file_uri
from penstock.records.objects.sources import budget_for
from penstock.records.parts import Parts


def check_writable(output: TransformOutput, settings: ArtifactSettings) -> None:
    """Writes a test object, before any work of a job.

    Raises:
        CallerError: `output-unwritable`, `output-scheme`, `artifact-uri-invalid`.
        NotNowError: the network or the store failed.
    """
    place_of(output, settings).try_out()


def assemble(
    one: InputObject,
    spans: Iterable[Span],
    parts_uri: str,
    output: TransformOutput,
    settings: ArtifactSettings,
    *,
    processing: DataProcessing | None = None,
) -> None:
    """Puts an object's output together from the parts of all its spans.

    Args:
        processing: the job's; where Parquet is written, columns of the object are joined.

    Raises:
        CallerError: the output location fails (`output-unwritable`, `artifact-disk-full`), or an
            object changed whose columns are joined (`input-changed`).
        NotNowError: the network or the store failed; another try may succeed.
        InternalError: `part-missing`, `part-damaged`.
    """
    parts = Parts(parts_uri, spans)
    place = place_of(output, settings)
    name = safe_path(one.key, where=output.uri)
    if parts.refused():
        place.put(f"{name}.errors", parts.error_lines())
    else:
        place.remove(f"{name}.errors")  # left by an earlier job
    if is_parquet(output.accept):
        from penstock.records.formats.tables import table_pieces  # noqa: PLC0415 - an extra

        pieces = table_pieces(one, parts, processing or DataProcessing(), settings)
    else:
        pieces = parts.outputs()
    place.put(f"{name}.out", pieces)


def check_apart(
    objects: Iterable[InputObject], output: TransformOutput, settings: ArtifactSettings
) -> None:
    """Refuses outputs that would replace an object of the input, before any work of a job.

    Raises:
        CallerError: `output-over-input`.
    """
    listed = list(objects)
    place = place_of(output, settings)
    taken = {canonical(one.uri, settings): one.key for one in listed}
    for one in listed:
        for ending in (".out", ".errors"):
            over = taken.get(canonical(place.uri(one.key + ending), settings))
            if over is not None:
                raise CallerError(
                    "output-over-input",
                    f"the output of {shown(one.key)} would take the place of {shown(over)}, "
                    "which the job reads",
                    hint="Name another S3OutputPath.",
                )


#: Larger objects are uploaded in parts, and a part that fails is sent again.
_PART_BYTES: Final = 16 * 1024 * 1024
#: Parts that are uploaded at once: memory holds this many.
_PARTS_AT_ONCE: Final = 2
_HINT: Final = (
    "Give the server's user or credentials write access, or name another S3OutputPath; where the "
    "disk is full or broken, mend it and try again."
)


class OutputPlace(Protocol):
    """Names are safe relative paths. All methods raise `PenstockError`."""

    def try_out(self) -> None:
        """Writes an object and removes it. Raises `output-unwritable`: a `CallerError`, or a
        `NotNowError` where only a full or failing disk prevents it."""

    def uri(self, name: str) -> str:
        """The URI of an object with this name."""

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Writes an object, replacing one that exists. Holds a few pieces at a time. An error that
        `pieces` raises is passed on, and then nothing has changed."""

    def remove(self, name: str) -> None:
        """Removes an object; does nothing if it is gone."""


def place_of(output: TransformOutput, settings: ArtifactSettings) -> OutputPlace:
    """The place of a job's outputs. Raises `CallerError` (`output-scheme`,
    `artifact-uri-invalid`)."""
    budget = budget_for(output.uri)
    place = local_place(output.uri, settings, budget)
    if place is not None:
        return _Folder(place, budget.what)
    if output.uri[:5].lower() == "s3://":
        return _Prefix(output.uri, settings)
    raise CallerError(
        "output-scheme",
        f"{budget.what}: outputs can't be written there",
        hint="Use s3:// or file://.",
    )


def canonical(uri: str, settings: ArtifactSettings) -> str:
    """A URI that is equal for the same object, whatever links lead to its folder."""
    path = local_path(uri, settings, budget_for(uri))
    if path is None:
        return uri
    return file_uri(Path(os.path.realpath(path.parent)) / path.name)


class _Folder:
    def __init__(self, place: LocalPlace, what: str) -> None:
        self._path = place.path
        self._fence = place.fence
        self._what = what

    def try_out(self) -> None:
        try:
            with self._opened(self._fence, self._path) as folder:
                probe = folder / _probe_name()
                try:
                    probe.write_bytes(b"\n")
                    probe.unlink()
                except OSError:
                    with suppress(OSError):  # the error of the writing is the one to report
                        probe.unlink()
                    raise
        except OSError as error:
            raise storage_error(
                error,
                "output-unwritable",
                _told(self._what, str(error.strerror or error)),
                hint=_HINT,
            ) from error

    def uri(self, name: str) -> str:
        return file_uri(self._path / name)

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        with disk_errors(self._what, self._path), self._beside(name) as path:
            replace_file(path, pieces, mode=file_mode(path.parent))

    def remove(self, name: str) -> None:
        with disk_errors(self._what, self._path), self._beside(name) as path:
            path.unlink(missing_ok=True)

    @contextmanager
    def _beside(self, name: str) -> Iterator[Path]:
        """The path of a name, with its folder created. A link must not lead out of the place."""
        path = self._path / name
        with self._opened(self._fence.inside(self._path), path.parent) as folder:
            yield folder / path.name

    @contextmanager
    def _opened(self, fence: Fence, path: Path) -> Iterator[Path]:
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(fence.folder(path, self._what))
            except CallerError as error:
                raise _unwritable(self._what, error.message) from error
            yield folder


class _Prefix:
    def __init__(self, uri: str, settings: ArtifactSettings) -> None:
        budget = budget_for(uri)
        bucket, prefix = s3_parts(uri, budget)
        self._bucket = bucket
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self._what = budget.what
        self._store = s3_store(bucket, endpoint=settings.s3_endpoint, budget=budget)
        self._obstore: Any = importlib.import_module("obstore")

    def try_out(self) -> None:
        name = _probe_name()
        try:
            self._obstore.put(self._store, self._prefix + name, b"\n")
        except Exception as error:
            told = put_error(self._what, error)
            if isinstance(told, NotNowError):
                raise told from error
            raise _unwritable(self._what, told.message) from error
        with suppress(PenstockError):  # the right to write need not include the right to remove
            self.remove(name)

    def uri(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        failed: list[BaseException] = []
        try:
            self._obstore.put(
                self._store,
                self._prefix + name,
                _watched(_filled(pieces), failed),
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        except Exception as error:
            if failed:
                raise failed[0] from error
            raise put_error(f"{self._what} ({name})", error) from error

    def remove(self, name: str) -> None:
        try:
            self._obstore.delete(self._store, self._prefix + name)
        except Exception as error:
            told = remote_error(f"{self._what} ({name})", error)
            if told.code != "artifact-not-found":
                raise told from error


def _filled(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Joins pieces into ones that are large enough for a call."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= 1024 * 1024:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _watched(pieces: Iterator[bytes], failed: list[BaseException]) -> Iterator[bytes]:
    """Records an error raised while pieces are made, because the store would raise its own."""
    try:
        yield from pieces
    except Exception as error:
        failed.append(error)
        raise


def _probe_name() -> str:
    return f".penstock-{uuid.uuid4().hex}"


def _unwritable(what: str, cause: str) -> CallerError:
    return CallerError("output-unwritable", _told(what, cause), hint=_HINT)


def _told(what: str, cause: str) -> str:
    return f"{what}: outputs can't be written there: {cause}"

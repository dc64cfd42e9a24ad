"""The objects that a job reads, in their present version.

Outputs are named after keys: the path below the prefix if that is a folder, else the path below the
folder that contains it. If the prefix is the beginning of names, all objects with that beginning
are included. A manifest lists keys below a prefix, each of which is an object:

    [{"prefix": "s3://bucket/folder/"}, "a.csv", "b/c.csv"]

(docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html)
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote

import orjson

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.paths import NAME_BYTES_MAX, safe_path, shown
from penstock.artifacts.sources.fetch import local_place, look, s3_parts
from penstock.artifacts.sources.object_store import s3_store
from penstock.artifacts.sources.places import LocalPlace
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import MANIFEST_FILE, InputObject, TransformInput
from penstock.errors import CallerError, PenstockError
from penstock.records.objects import local_objects, s3_objects
from penstock.records.objects.local_objects import FoundObject
from penstock.records.objects.sources import budget_for
from penstock.records.refusals import key_unsafe, of_data, too_many

#: Most objects of one job. Each has a row of progress and an output.
OBJECTS_MAX: Final = 100_000
#: Bytes added to a key's last part while its output is written: `.<name>.errors.new`.
_AROUND_BYTES: Final = len("..errors.new")


def list_objects(data: TransformInput, settings: ArtifactSettings) -> tuple[InputObject, ...]:
    """The objects below the prefix or in the manifest, sorted by key.

    Raises:
        CallerError: `input-not-found` (no object), `input-key-unsafe`, `input-duplicate`,
            `input-objects-too-many`, `manifest-invalid`, `artifact-access-denied` ...
        NotNowError: the network or a store failed.
    """
    try:
        if data.data_type == MANIFEST_FILE:
            found = read_manifest(data.uri, settings, objects_max=OBJECTS_MAX)
        else:
            found = _below(data.uri, settings)
    except PenstockError as error:
        raise of_data(error) from error
    found.sort(key=lambda one: one.key)
    what = budget_for(data.uri).what
    for one, following in zip(found, [*found[1:], None], strict=True):
        _check_key(one, following, what)
    return tuple(
        InputObject(number=number, key=one.key, uri=one.uri, size=one.size, stamp=one.stamp)
        for number, one in enumerate(found)
    )


def _below(uri: str, settings: ArtifactSettings) -> list[FoundObject]:
    budget = budget_for(uri)
    place = local_place(uri, settings, budget)
    if place is not None:
        return local_objects.below(place, budget, objects_max=OBJECTS_MAX)
    if uri[:5].lower() == "s3://":
        return s3_objects.below(uri, settings, budget, objects_max=OBJECTS_MAX)
    [file] = look(uri, settings, budget).files  # an https:// URL has exactly one
    name = safe_path(unquote(file.name), where=budget.what)
    return [FoundObject(name, uri, file.size, file.stamp)]


def _check_key(one: FoundObject, following: FoundObject | None, what: str) -> None:
    if following is not None and following.key == one.key:
        raise CallerError(
            "input-duplicate",
            f"{what}: {shown(one.key)} is named twice",
            hint="Name each object once: its output is named after it.",
        )
    if len(one.key.rpartition("/")[2].encode()) + _AROUND_BYTES > NAME_BYTES_MAX:
        raise key_unsafe(
            f"{what}: the name {shown(one.key)} is too long to name an output after: it may have "
            f"{NAME_BYTES_MAX - _AROUND_BYTES} bytes behind the last slash"
        )


#: Larger than 100,000 keys of the greatest length.
MANIFEST_BYTES_MAX: Final = 128 * 1024 * 1024
_THREADS: Final = 16  # each waits for the network, none for the processor


def read_manifest(uri: str, settings: ArtifactSettings, *, objects_max: int) -> list[FoundObject]:
    """The objects in a manifest, in its order.

    Raises `CallerError`: `manifest-invalid`, and those of missing objects.
    """
    budget = budget_for(uri)
    prefix, names = _parsed(_content(uri, settings, budget), budget.what, objects_max)
    folder = prefix if prefix.endswith("/") else f"{prefix}/"
    for name in names:
        if not name or safe_path(name, where=budget.what) != name:
            raise _invalid(budget.what, f"{shown(name)} is no key of an object below a prefix")
    place = local_place(folder, settings, budget)
    if place is not None:
        return [found for name in names for found in _local(place, name, budget)]
    if prefix[:5].lower() != "s3://":
        raise _invalid(budget.what, "its prefix is neither s3:// nor file://")
    bucket, key = s3_parts(folder, budget)
    store = s3_store(bucket, endpoint=settings.s3_endpoint, budget=budget)
    with ThreadPoolExecutor(_THREADS, "manifest") as pool:
        return list(
            pool.map(lambda name: s3_objects.one(bucket, key + name, name, store, budget), names)
        )


def _local(folder: LocalPlace, name: str, budget: Budget) -> list[FoundObject]:
    found = local_objects.one(folder, name, budget)
    if not found:
        raise _invalid(budget.what, f"{shown(name)} is a folder")
    return found


def _content(uri: str, settings: ArtifactSettings, budget: Budget) -> bytes:
    listing = look(uri, settings, budget)
    if not listing.single:
        raise _invalid(budget.what, "it is a folder, or the beginning of several keys")
    [file] = listing.files
    pieces, size = [], 0
    for chunk in file.chunks():
        pieces.append(bytes(chunk))
        size += len(chunk)
        if size > MANIFEST_BYTES_MAX:
            raise _invalid(budget.what, f"it has more than {MANIFEST_BYTES_MAX} bytes")
    return b"".join(pieces)


def _parsed(content: bytes, what: str, objects_max: int) -> tuple[str, list[str]]:
    try:
        entries: Any = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _invalid(what, f"it is not JSON: {error}") from error
    if not isinstance(entries, list) or len(entries) < 2:
        raise _invalid(what, "it is no array of a prefix and keys")
    head, *names = entries
    prefix = head.get("prefix") if isinstance(head, dict) and len(head) == 1 else None
    if not isinstance(prefix, str) or not all(isinstance(name, str) for name in names):
        raise _invalid(what, "its first element is no prefix, or another one is no text")
    if len(names) > objects_max:
        raise too_many(f"{what}: more than {objects_max} objects")
    return prefix, names


def _invalid(what: str, cause: str) -> CallerError:
    return CallerError(
        "manifest-invalid",
        f"{what}: the manifest can't be used: {cause}",
        hint='Write [{"prefix": "s3://bucket/folder/"}, "a.csv", "b/c.csv"].',
    )

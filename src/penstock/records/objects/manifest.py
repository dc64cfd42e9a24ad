"""Manifests: lists of keys below a prefix, each of which is an object.

    [{"prefix": "s3://bucket/folder/"}, "a.csv", "b/c.csv"]

(docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html)
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.paths import safe_path, shown
from penstock.artifacts.sources.fetch import local_place, look, s3_parts
from penstock.artifacts.sources.object_store import s3_store
from penstock.artifacts.sources.places import LocalPlace
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.errors import CallerError
from penstock.records.objects import local_objects, s3_objects
from penstock.records.objects.local_objects import FoundObject
from penstock.records.objects.sources import budget_for
from penstock.records.refusals import too_many

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

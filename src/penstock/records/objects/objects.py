"""The objects that a job reads, in their present version.

Outputs are named after keys: the path below the prefix if that is a folder, else the path below the
folder that contains it. If the prefix is the beginning of names, all objects with that beginning
are included.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from penstock.artifacts.files.paths import NAME_BYTES_MAX, safe_path, shown
from penstock.artifacts.sources.fetch import local_place, look
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import MANIFEST_FILE, InputObject, TransformInput
from penstock.errors import CallerError, PenstockError
from penstock.records.objects import local_objects, s3_objects
from penstock.records.objects.local_objects import FoundObject
from penstock.records.objects.manifest import read_manifest
from penstock.records.objects.sources import budget_for
from penstock.records.refusals import key_unsafe, of_data

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

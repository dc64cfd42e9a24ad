"""From an `ArtifactSource` to a model that can be loaded: fetch, verify, unpack, detect.

`prepare` blocks on the network and on the disk, so call it on a thread. Calling it again is cheap:
an unchanged source is found in the cache by its stamps, without reading it. A source that can't be
reached counts as unchanged, so that an endpoint comes back without its object store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.artifacts.archive.unpack import UnpackLimits, archive_kind, not_an_archive, unpack
from penstock.artifacts.cache.cache import ArtifactCache, CacheEntry
from penstock.artifacts.detection.detect import Detected, detect
from penstock.artifacts.detection.images import image_hint
from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing, SourceFile
from penstock.artifacts.models.names import is_part_of_names
from penstock.artifacts.sources.fetch import copy_file, directory_digest, look
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.artifacts.sources.submitted_code import code_uri, joined, together
from penstock.artifacts.sources.unfinished import changed, judged
from penstock.clock import Clock
from penstock.errors import CallerError, NotNowError

_log = logging.getLogger(__name__)

#: Model files that are zip archives inside: they are unpacked only if the source says Gzip.
_ZIP_SUFFIX = ".zip"


def prepare(
    source: ArtifactSource,
    cache: ArtifactCache,
    settings: ArtifactSettings | None = None,
    *,
    compile_uncompiled: Callable[[Path, str], Path] = lambda root, digest: root,
    cancelled: threading.Event | None = None,
    clock: Clock | None = None,
    instruction_set: str = "",
) -> Detected:
    """Makes the artifact available on this machine and says what it is.

    `compile_uncompiled` gets the artifact's root and digest, compiles weights that have no graph,
    and returns the root to be served. `instruction_set`: of this processor; it chooses among
    several builds.

    Raises `CallerError` for what its owner must fix (the message names file and cause, the hint the
    remedy) and `NotNowError` where only the network, the time or the caller's patience failed.
    """
    settings = settings or ArtifactSettings()
    try:
        entry = _whole(source, cache, settings, cancelled, clock)
        detected = detect(
            compile_uncompiled(entry.root, entry.digest),
            image=source.image,
            environment=source.environment,
            runtime=source.runtime,
            image_commands=settings.image_commands,
            trusted=source.trusted or settings.trusts(source.uri),
            instruction_set=instruction_set,
        )
    except CallerError as error:
        raise judged(error, source, settings, clock=clock) from error
    return dataclasses.replace(detected, digest=entry.digest, stamp=entry.stamp)


def _whole(
    source: ArtifactSource,
    cache: ArtifactCache,
    settings: ArtifactSettings,
    cancelled: threading.Event | None,
    clock: Clock | None,
) -> CacheEntry:
    """The artifact, joined with its code where the environment names a place for that."""
    submitted = code_source(source, settings)
    if submitted is None:
        return obtain(source, cache, settings, cancelled=cancelled, clock=clock)
    weights = None
    if source.uri:
        weights = obtain(source, cache, settings, cancelled=cancelled, clock=clock)
    code = obtain(submitted, cache, settings, cancelled=cancelled, clock=clock)
    both = joined(weights, code, cache, what=submitted.shown_uri())
    stamp = code.stamp if weights is None else together(weights.stamp, code.stamp)
    return dataclasses.replace(both, stamp=stamp)


def code_source(source: ArtifactSource, settings: ArtifactSettings) -> ArtifactSource | None:
    """The archive with the model's code, where the environment names one; else None."""
    uri = code_uri(source.environment)
    if not uri or image_hint(source.image, settings.image_commands).kind == "process":
        return None
    return ArtifactSource(uri=uri, compressed=True, seconds_max=source.seconds_max)


def obtain(
    source: ArtifactSource,
    cache: ArtifactCache,
    settings: ArtifactSettings,
    *,
    cancelled: threading.Event | None = None,
    clock: Clock | None = None,
) -> CacheEntry:
    """The first half of `prepare`: the artifact's files in the cache, not yet understood."""
    what = source.shown_uri()
    budget = Budget(
        what,
        bytes_max=settings.bytes_max,
        seconds_max=min(source.seconds_max or settings.seconds_max, settings.seconds_max),
        clock=clock,
        cancelled=cancelled,
    )
    if not source.uri:
        return _without_data(source, cache, settings)
    if source.sha256 and (known := cache.find(source.sha256)) is not None:
        return known
    key = _source_key(source)
    with cache.source_lock(key, budget):
        try:
            return _current(source, key, cache, settings, budget, clock)
        except NotNowError as error:
            if error.code != "artifact-changed":
                raise
        # A second try: whoever replaced the source has mostly finished by now.
        return _current(source, key, cache, settings, budget, clock)


def _current(
    source: ArtifactSource,
    key: str,
    cache: ArtifactCache,
    settings: ArtifactSettings,
    budget: Budget,
    clock: Clock | None,
) -> CacheEntry:
    """One version of the source, from the cache if it is there.

    Raises `NotNowError` (`artifact-changed`) where the source changes while it is read.
    """
    try:
        listing = look(source.uri, settings, budget, clock=clock, within=source.within)
    except NotNowError as error:
        away = error.code in ("artifact-unreachable", "artifact-unreadable")
        entry = cache.find_last(key) if away else None
        if entry is None:
            raise
        _log.warning("%s: what was last fetched is used, for %s", budget.what, error.message)
        return entry
    if source.within:
        refuse_part_of_names(listing, budget.what)
    fingerprint = listing.fingerprint()
    entry = cache.find_source(key, fingerprint)
    if entry is None:
        with cache.staging(budget.what) as staging:
            entry = _fetched(source, listing, staging, cache, settings, budget)
        if not listing.single:
            # Each file was as listed; a second look shows whether they belong to one version.
            again = look(source.uri, settings, budget, clock=clock, within=source.within)
            if not again.is_as(listing):
                raise changed(budget.what)
        cache.remember(key, fingerprint, entry.digest, uri=budget.what)
    return dataclasses.replace(entry, stamp=listing.stamp())


def refuse_part_of_names(listing: Listing, what: str) -> None:
    """Called before anything of it is copied. Raises CallerError (`artifact-not-found`)."""
    if not listing.single and is_part_of_names([file.name for file in listing.files]):
        raise CallerError(
            "artifact-not-found",
            f"{what}: this folder is no model; it holds archives that are",
            hint="Name one of them.",
        )


def _fetched(
    source: ArtifactSource,
    listing: Listing,
    staging: Path,
    cache: ArtifactCache,
    settings: ArtifactSettings,
    budget: Budget,
) -> CacheEntry:
    budget.expect(listing.size, staging)
    if not listing.single:
        _refuse_digest(source, budget.what)
        if source.compressed:
            raise not_an_archive(f"{budget.what} (CompressionType Gzip)")
        return _kept_files(listing.files, staging, cache, budget)
    file = listing.files[0]
    download = staging / "download"
    digest = copy_file(file, download, budget)
    if source.sha256 and digest != source.sha256.lower():
        raise CallerError(
            "artifact-digest-mismatch",
            f"{budget.what}: its SHA-256 is {digest}, not {source.sha256}",
            hint="The artifact was changed or damaged on its way; upload it again.",
        )
    if not _is_archive(download, file.name, source.compressed):
        if source.compressed:
            raise not_an_archive(f"{budget.what} (CompressionType Gzip)")
        return _kept_file(file, download, digest, staging, cache, budget)
    entry = cache.find(digest)
    if entry is None:
        files = staging / "files"
        limits = UnpackLimits(members_max=settings.files_max, ratio_max=settings.ratio_max)
        digests = unpack(download, files, budget=budget, limits=limits)
        entry = cache.commit(files, digest, what=budget.what, digests=digests)
    return entry


def _kept_files(
    files: tuple[SourceFile, ...], staging: Path, cache: ArtifactCache, budget: Budget
) -> CacheEntry:
    """Copies a directory or a prefix, file by file."""
    folder = staging / "files"
    folder.mkdir()
    facts = []
    for file in files:
        digest = copy_file(file, folder / file.name, budget)
        _make_read_only(folder / file.name, executable=file.executable)
        facts.append((file.name, file.size, file.executable, digest))
    total = directory_digest(facts)
    digests = {name: digest for name, _, _, digest in facts}
    return cache.find(total) or cache.commit(folder, total, what=budget.what, digests=digests)


def _kept_file(
    file: SourceFile,
    download: Path,
    digest: str,
    staging: Path,
    cache: ArtifactCache,
    budget: Budget,
) -> CacheEntry:
    """Copies a single model file: an artifact of one file, under its own name."""
    folder = staging / "files"
    folder.mkdir()
    download.rename(folder / file.name)
    _make_read_only(folder / file.name, executable=file.executable)
    total = directory_digest([(file.name, file.size, file.executable, digest)])
    digests = {file.name: digest}
    return cache.find(total) or cache.commit(folder, total, what=budget.what, digests=digests)


def _without_data(
    source: ArtifactSource, cache: ArtifactCache, settings: ArtifactSettings
) -> CacheEntry:
    """An artifact without data; only a command brings its own model."""
    if image_hint(source.image, settings.image_commands).kind != "process":
        raise CallerError(
            "artifact-missing",
            "the model has no data: neither ModelDataUrl nor ModelDataSource is given"
            + (
                f", and the image {source.image!r} is not mapped to a command"
                if source.image
                else ""
            ),
            hint="Give the URI of an artifact, or map the image to a command "
            "(control.image_commands).",
        )
    digest = directory_digest([])
    found = cache.find(digest)
    if found is not None:
        return found
    with cache.staging("an empty artifact") as staging:
        (staging / "files").mkdir()
        return cache.commit(staging / "files", digest, what="an empty artifact")


def _is_archive(path: Path, name: str, compressed: bool | None) -> bool:
    if compressed is False:
        return False
    kind = archive_kind(path)
    if kind == "zip" and compressed is None:
        return name.lower().endswith(_ZIP_SUFFIX)
    return kind != ""


def _refuse_digest(source: ArtifactSource, what: str) -> None:
    if source.sha256:
        raise CallerError(
            "artifact-digest-mismatch",
            f"{what}: a SHA-256 is given, and this is a directory",
            hint="Digests are checked for single files; pack the directory as model.tar.gz.",
        )


def _source_key(source: ArtifactSource) -> str:
    """The properties, besides the content, that decide which files a source is turned into."""
    return hashlib.sha256(json.dumps([source.uri, source.compressed]).encode()).hexdigest()


def _make_read_only(path: Path, *, executable: bool) -> None:
    path.chmod(0o555 if executable else 0o444)

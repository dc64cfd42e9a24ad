"""From an `ArtifactSource` to a model that can be loaded: fetch, verify, unpack, detect.

`prepare` blocks on the network and on the disk, so call it on a thread. Calling it again is cheap:
an unchanged source is found in the cache by its stamps, without reading it. A source that can't be
reached counts as unchanged, so that an endpoint comes back without its object store.

Nobody announces an upload. Its signs are a source that changes while it is read, and a young file
that ends where an archive or a model can't end. Such an artifact may be whole a moment later, so
the error is `NotNowError`. An old artifact with the same fault is its owner's to fix.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.artifacts.archive.unpack import UnpackLimits, archive_kind, not_an_archive, unpack
from penstock.artifacts.cache.cache import ArtifactCache, CacheEntry
from penstock.artifacts.detection.detect import Detected, detect, step_into
from penstock.artifacts.detection.images import ImageHint, image_here, with_engine
from penstock.artifacts.detection.toolkits import served_as_it_is
from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing, SourceFile
from penstock.artifacts.files.paths import shown
from penstock.artifacts.models.index import is_part_of_names
from penstock.artifacts.pull_image import bring_image
from penstock.artifacts.sources.fetch import copy_file, directory_digest, look
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.artifacts.sources.submitted_code import code_uri, joined, together
from penstock.clock import Clock, SystemClock
from penstock.errors import CallerError, NotNowError, PenstockError

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
    log: Callable[[str], None] = lambda line: None,
) -> Detected:
    """Makes the artifact available on this machine and says what it is.

    `compile_uncompiled` gets the artifact's root and digest, compiles weights that have no graph,
    and returns the root to be served. `instruction_set`: of this processor; it chooses among
    several builds. `log`: gets what is said while an image is pulled.

    Raises `CallerError` for what its owner must fix (the message names file and cause, the hint the
    remedy) and `NotNowError` where only the network, the time or the caller's patience failed.
    """
    settings = settings or ArtifactSettings()
    try:
        bring_image(source, cache, settings, cancelled=cancelled, clock=clock, log=log)
        entry = _whole(source, cache, settings, cancelled, clock)
        root = entry.root
        hint = _image(source, settings)
        as_it_is = hint.image is not None or served_as_it_is(
            step_into(root), hint.toolkit, source.environment
        )
        if not as_it_is:
            root = compile_uncompiled(root, entry.digest)
        detected = detect(
            root,
            image=source.image,
            environment=source.environment,
            runtime=source.runtime,
            image_environments=settings.environments.images,
            hint=hint,
            trusted=settings.trusts(source.uri),
            vouched=source.trusted,
            instruction_set=instruction_set,
            beside_others=bool(source.within),
        )
    except CallerError as error:
        if source.image and error.code in ("image-not-mapped", "artifact-missing"):
            error = with_engine(error, source.image, settings.containers)
        raise judged(error, source, settings, clock=clock) from error
    return dataclasses.replace(detected, digest=entry.digest, stamp=entry.stamp)


def _image(source: ArtifactSource, settings: ArtifactSettings) -> ImageHint:
    return image_here(
        source.image, settings.image_commands, settings.containers, image_id=source.image_id
    )


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
    if not uri or _image(source, settings).brings_server:
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
    fetch = _Fetch(source, cache, settings, budget, clock)
    key = _source_key(source)
    with cache.source_lock(key, budget):
        try:
            return fetch.current(key)
        except NotNowError as error:
            if error.code != "artifact-changed":
                raise
        # A second try: whoever replaced the source has mostly finished by now.
        return fetch.current(key)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One source on its way into the cache."""

    source: ArtifactSource
    cache: ArtifactCache
    settings: ArtifactSettings
    budget: Budget
    clock: Clock | None

    def current(self, key: str) -> CacheEntry:
        """One version of the source, from the cache if it is there.

        Raises `NotNowError` (`artifact-changed`) where the source changes while it is read.
        """
        cache, what = self.cache, self.budget.what
        try:
            listing = self._look()
        except NotNowError as error:
            away = error.code in ("artifact-unreachable", "artifact-unreadable")
            entry = cache.find_last(key) if away else None
            if entry is None:
                raise
            _log.warning("%s: what was last fetched is used, for %s", what, error.message)
            return entry
        if self.source.within:
            refuse_part_of_names(listing, what)
        fingerprint = listing.fingerprint()
        entry = cache.find_source(key, fingerprint)
        if entry is None:
            with cache.staging(what) as staging:
                entry = self._fetched(listing, staging)
            # Each file was as listed; a second look shows whether they belong to one version.
            if not listing.single and not self._look().is_as(listing):
                raise changed(what)
            cache.remember(key, fingerprint, entry.digest, uri=what)
        return dataclasses.replace(entry, stamp=listing.stamp())

    def _look(self) -> Listing:
        source = self.source
        return look(source.uri, self.settings, self.budget, clock=self.clock, within=source.within)

    def _fetched(self, listing: Listing, staging: Path) -> CacheEntry:
        source, cache, budget = self.source, self.cache, self.budget
        budget.expect(listing.size, staging)
        if not listing.single:
            _refuse_digest(source, budget.what)
            self._refuse_compressed()
            folder = _new_folder(staging)
            copied = [(file, copy_file(file, folder / file.name, budget)) for file in listing.files]
            return self._kept(folder, copied)
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
            self._refuse_compressed()
            folder = _new_folder(staging)
            download.rename(folder / file.name)
            return self._kept(folder, [(file, digest)])
        entry = cache.find(digest)
        if entry is None:
            files, settings = staging / "files", self.settings
            limits = UnpackLimits(members_max=settings.files_max, ratio_max=settings.ratio_max)
            digests = unpack(download, files, budget=budget, limits=limits)
            entry = cache.commit(files, digest, what=budget.what, digests=digests)
        return entry

    def _refuse_compressed(self) -> None:
        if self.source.compressed:
            raise not_an_archive(f"{self.budget.what} (CompressionType Gzip)")

    def _kept(self, folder: Path, files: Sequence[tuple[SourceFile, str]]) -> CacheEntry:
        """Keeps files in `folder`, each with its digest, as they are and under their own names."""
        for file, _ in files:
            (folder / file.name).chmod(0o555 if file.executable else 0o444)
        total = directory_digest(
            (file.name, file.size, file.executable, digest) for file, digest in files
        )
        digests = {file.name: digest for file, digest in files}
        return self.cache.find(total) or self.cache.commit(
            folder, total, what=self.budget.what, digests=digests
        )


def _new_folder(staging: Path) -> Path:
    folder = staging / "files"
    folder.mkdir()
    return folder


def refuse_part_of_names(listing: Listing, what: str) -> None:
    """Called before anything of it is copied. Raises CallerError (`artifact-not-found`)."""
    if not listing.single and is_part_of_names([file.name for file in listing.files]):
        raise CallerError(
            "artifact-not-found",
            f"{what}: this folder is no model; it holds archives that are",
            hint="Name one of them.",
        )


def _without_data(
    source: ArtifactSource, cache: ArtifactCache, settings: ArtifactSettings
) -> CacheEntry:
    """An artifact without data; only a command or an image brings its own model."""
    if not _image(source, settings).brings_server:
        _refuse_hub(source)
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
        return cache.commit(_new_folder(staging), digest, what="an empty artifact")


def _refuse_hub(source: ArtifactSource) -> None:
    """Raises CallerError where the model's environment names one of a hub instead of files."""
    name = source.environment.get("HF_MODEL_ID", "")
    if not name or name.startswith("/"):
        return
    raise CallerError(
        "artifact-missing",
        f"the model has no data, and HF_MODEL_ID names {shown(name)}: models are not fetched from "
        "a hub",
        hint=f"Fetch it once (`hf download {shown(name)} --local-dir model`) and deploy the folder "
        "(`penstock deploy NAME model`), or give its archive as ModelDataUrl.",
    )


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


#: A running copy writes all the time. 10 s is twice the longest pause of a busy disk or network,
#: and short enough to report a badly packed model while its owner still watches.
YOUNG_S: Final = 10.0
RETRY_S: Final = 1.0
_LOOK_S: Final = 10.0

#: Code of the error for an archive that was cut short. No other fault has it.
_CUT_SHORT: Final = "archive-truncated"
#: Codes of errors for folders or files with a missing part; other faults have them as well.
_MAYBE_PARTIAL: Final = frozenset(
    {
        "archive-unreadable",
        "artifact-empty",
        "artifact-incomplete",
        "artifact-layout-unknown",
        "model-file-invalid",
        "model-yaml-invalid",
        "pbtxt-invalid",
        "source-damaged",
        "source-unknown",
        "tokenizer-damaged",
        "tokenizer-missing",
        "weights-damaged",
        "weights-incomplete",
        "weights-missing",
        "weights-unreadable",
    }
)


def judged(
    error: CallerError,
    source: ArtifactSource,
    settings: ArtifactSettings,
    *,
    clock: Clock | None = None,
) -> PenstockError:
    """`error`, or `NotNowError` (`artifact-incomplete`) where the source is so young.

    An artifact of an ordinary endpoint is deployed once it is complete, so only a cut archive is
    waited for. Target models are copied to their prefix while they are called, so any that looks
    incomplete is waited for, and a cut archive at any age: its upload may pause.
    """
    target = bool(source.within)
    if error.code != _CUT_SHORT and not (target and error.code in _MAYBE_PARTIAL):
        return error
    clock = clock or SystemClock()
    budget = Budget(source.shown_uri(), bytes_max=0, seconds_max=_LOOK_S, clock=clock)
    try:
        listing = look(source.uri, settings, budget, clock=clock, within=source.within)
    except PenstockError:
        return error
    young = clock.wall() < listing.changed_at + YOUNG_S
    if not young and not (target and error.code == _CUT_SHORT):
        return error
    return NotNowError(
        "artifact-incomplete",
        f"not all of it is there yet, as it seems: {error.message}",
        hint="Wait until it is copied; better, copy it under a hidden name and rename it. If "
        f"nobody writes it: {error.hint}",
        retry_after_s=RETRY_S,
    )


def changed(what: str) -> NotNowError:
    """The error for a source whose files were not all of one version."""
    return NotNowError(
        "artifact-changed",
        f"{what}: files were added, removed or replaced while it was read",
        hint="Deploy when all files are there; better, copy them to a new folder and rename it.",
        retry_after_s=RETRY_S,
    )

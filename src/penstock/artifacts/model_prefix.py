"""The prefix of a multi-model endpoint: from the name of a target model to its artifact.

A prefix is a directory (`file:///models/`, `/models`) or `s3://bucket/prefix/`. A target model is
an archive, a model file or a folder below it; copying one there adds it. Every call but `resolve`
blocks on the disk or the network, and only `fetch` reads contents. This module knows nothing of
endpoints, nor of which models are loaded.
"""

from __future__ import annotations

import builtins
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.detection.detect import Detected
from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import Listing
from penstock.artifacts.models import index
from penstock.artifacts.prepare import code_source, prepare, refuse_part_of_names
from penstock.artifacts.sources import object_store
from penstock.artifacts.sources.fetch import local_path, look, s3_parts
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource, shown_uri
from penstock.artifacts.sources.submitted_code import together
from penstock.clock import Clock, SystemClock
from penstock.errors import CallerError, PenstockError

#: Looking at a model takes less than a download. A slower bucket is tried again later.
LOOK_S_MAX: Final = 60.0
_ABSENT: Final = ("artifact-not-found", "artifact-empty")
#: Code of the error for a place that belongs to the server itself; such a model is not listed.
_CLOSED: Final = "place-refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One target model of the index."""

    name: str
    #: Stamp of its files; empty for a model that can't be served as it is. `ModelPrefix.stamp` then
    #: raises the reason.
    stamp: str
    size_bytes: int  #: size below the prefix: that of an archive, not that of its content


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """A target model that is on this machine and described, but not loaded."""

    detected: Detected  #: its `digest` is the artifact's in the cache
    #: Stamp of the version that was fetched; empty where the bucket could not be reached and the
    #: last fetched version is used.
    stamp: str


class ModelPrefix:
    """The models below one prefix. Safe for many threads at once."""

    def __init__(
        self,
        uri: str,
        settings: ArtifactSettings,
        environment: Mapping[str, str] | None = None,
        *,
        image: str = "",
        compressed: bool | None = None,
        seconds_max: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """`image`, `compressed` and `seconds_max` are as in `ArtifactSource`, for all its models.

        Raises `CallerError` (`artifact-scheme-unsupported`, `artifact-uri-invalid`).
        """
        self._settings = settings
        self._clock = clock or SystemClock()
        self._shown = shown_uri(uri)
        #: The prefix as a directory of this machine; None for a bucket.
        self._folder = local_path(uri, settings, self._budget())
        self._bucket, self._key = "", ""
        if self._folder is None:
            self._bucket, self._key = s3_parts(_only_s3(uri, self._shown), self._budget())
        self._is_file_uri = uri[:5].lower() == "file:"
        # Names are appended to it, so the query and fragment that urlsplit would cut off go now.
        self._uri = _plain_file_uri(uri) if self._is_file_uri else uri.rstrip("/") + "/"
        self._stores: dict[str, Any] = {}  #: opened stores: the prefix's bucket, and the code's
        self._common = ArtifactSource(
            image=image,
            compressed=compressed,
            environment=dict(environment or {}),
            seconds_max=seconds_max,
            within=self._uri,
        )

    def resolve(self, target_model: str) -> ArtifactSource:
        """The place of a target model. Reads nothing, and the model need not exist.

        Raises `CallerError` (`target-model-invalid`).
        """
        name = index.checked(target_model)
        uri = self._uri + (quote(name) if self._is_file_uri else name)
        return dataclasses.replace(self._common, uri=uri)

    def stamp(self, target_model: str) -> str | None:
        """A text that changes with what lies there now; None where nothing does. It also changes
        with the models' code where that lies elsewhere.

        The content may be equal under another stamp (a file that was copied anew, or one too young
        for its time to prove it): a host that has it loaded compares the digest that `fetch`
        returns.

        Raises `CallerError` (`target-model-invalid`, `artifact-access-denied`,
        `artifact-link-refused` ...) and `NotNowError` (`artifact-unreachable`).
        """
        try:
            listing = self._look(self.resolve(target_model))
            refuse_part_of_names(listing, self._shown)
        except CallerError as error:
            if error.code in _ABSENT:
                return None
            raise
        stamp, code = listing.stamp(), code_source(self._common, self._settings)
        return stamp if code is None else together(stamp, self._look(code).stamp())

    def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ModelEntry]:
        """The models below the prefix in the order of their names, from the first above `after`.

        Hidden and temporary files are left out. Raises as `stamp` does.
        """
        if self._folder is None:
            found = index.in_bucket(self._opened(self._bucket), self._key, self._budget())
            page = sorted(name for name in found if name > after)[:limit]
            return [_entry(name, found[name]) for name in page]
        door = self._settings.server_files
        if door:
            from penstock.artifacts.sources import server_files  # noqa: PLC0415 - of instances elsewhere

            names: Iterable[str] = server_files.names_below(door, self._uri, budget=self._budget())
        else:
            names = index.names_in_folder(self._folder, self._budget())
        page = sorted(name for name in names if name > after)[:limit]
        return [entry for name in page if (entry := self._local_entry(name)) is not None]

    def fetch(
        self,
        target_model: str,
        cache: ArtifactCache,
        *,
        compile_uncompiled: Callable[[Path, str], Path] = lambda root, digest: root,
        cancelled: threading.Event | None = None,
        instruction_set: str = "",
    ) -> FetchedModel:
        """Brings one version of a target model, whole, as `prepare` does.

        Raises what `prepare` raises, and `CallerError` (`target-model-invalid`,
        `target-model-not-found`) or `NotNowError` (`artifact-changed`, `artifact-incomplete`) for
        a model that is being replaced or uploaded.
        """
        source = self.resolve(target_model)
        try:
            detected = prepare(
                source,
                cache,
                self._settings,
                compile_uncompiled=compile_uncompiled,
                cancelled=cancelled,
                clock=self._clock,
                instruction_set=instruction_set,
            )
        except CallerError as error:
            if error.code == "artifact-not-found":
                raise not_found(target_model) from error
            raise
        return FetchedModel(detected=detected, stamp=detected.stamp)

    def _look(self, source: ArtifactSource) -> Listing:
        budget = self._budget()
        if local_path(source.uri, self._settings, budget) is not None:
            within = source.within
            return look(source.uri, self._settings, budget, clock=self._clock, within=within)
        bucket, key = s3_parts(source.uri, budget)
        return object_store.list_in_store(
            self._opened(bucket), key, budget=budget, files_max=self._settings.files_max, peek=True
        )

    def _local_entry(self, name: str) -> ModelEntry | None:
        try:
            return _entry(name, self._look(self.resolve(name)))
        except PenstockError as error:
            gone = error.code in (*_ABSENT, _CLOSED)
            return None if gone else ModelEntry(name=name, stamp="", size_bytes=0)

    def _opened(self, bucket: str) -> Any:
        """The opened bucket, kept because opening takes longer than a request."""
        store = self._stores.get(bucket)
        if store is None:
            store = self._stores[bucket] = object_store.s3_store(
                bucket, endpoint=self._settings.s3_endpoint, budget=self._budget()
            )
        return store

    def _budget(self) -> Budget:
        return Budget(self._shown, bytes_max=0, seconds_max=LOOK_S_MAX, clock=self._clock)


def not_found(target_model: str) -> CallerError:
    """The error for a name below the prefix that does not exist, or no longer does. It does not say
    where the prefix is: anybody may guess names."""
    return CallerError(
        "target-model-not-found",
        f"there is no target model {target_model!r} below the endpoint's prefix",
        hint="Check its spelling, suffix included, or copy its artifact there: it is served from "
        "then on.",
        status=404,
        param="TargetModel",
    )


def _entry(name: str, listing: Listing) -> ModelEntry:
    return ModelEntry(name=name, stamp=listing.stamp(), size_bytes=listing.size)


def _plain_file_uri(uri: str) -> str:
    return "file://" + quote(unquote(urlsplit(uri).path)).rstrip("/") + "/"


def _only_s3(uri: str, shown: str) -> str:
    if uri[:5].lower() == "s3://":
        return uri
    raise CallerError(
        "artifact-scheme-unsupported",
        f"{shown}: this is no prefix of target models",
        hint="Use s3://bucket/prefix/, file:///directory/ or the absolute path of a directory.",
    )

"""The prefix of a multi-model endpoint: from the name of a target model to its artifact.

A prefix is a directory (`file:///models/`, `/models`) or `s3://bucket/prefix/`. A target model is
an archive, a model file or a folder below it; adding one is copying it there. Every call but
`resolve` blocks on the disk or the network, and none but `fetch` reads contents. Knows nothing of
endpoints, nor of what is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.artifacts.cache import ArtifactCache
from penstock.artifacts.detect import Detected
from penstock.artifacts.source import ArtifactSettings, ArtifactSource
from penstock.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One target model of the index."""

    name: str
    stamp: str  #: as `ModelPrefix.stamp` gives it
    size_bytes: int  #: of what lies below the prefix: of an archive, not of what is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """A target model that is on this machine and understood, and not loaded."""

    detected: Detected  #: its `digest` is the artifact's in the cache
    stamp: str  #: of the version that was fetched


class ModelPrefix:
    """What lies below one prefix. Safe for many threads at once."""

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
        """`image`, `compressed` and `seconds_max` as in `ArtifactSource`, for every model of it.

        Raises `CallerError` (`artifact-scheme-unsupported`, `artifact-uri-invalid`).
        """
        raise NotImplementedError

    def resolve(self, target_model: str) -> ArtifactSource:
        """Where a target model lies. Looks at nothing: it need not be there.

        Raises `CallerError` (`target-model-invalid`).
        """
        raise NotImplementedError

    def stamp(self, target_model: str) -> str | None:
        """What lies there now, as a text that changes with it; None: nothing.

        Another stamp may still be the same content (a file that was copied anew, or one so young
        that its time can't tell): whoever has it loaded compares the digest that `fetch` returns.

        Raises `CallerError` (`target-model-invalid`, `artifact-access-denied`,
        `artifact-link-refused` ...) and `NotNowError` (`artifact-unreachable`).
        """
        raise NotImplementedError

    def list(self, *, after: str = "", limit: int = 1000) -> list[ModelEntry]:
        """The models below the prefix in the order of their names, from the first above `after`.

        Hidden and temporary files are left out. Raises as `stamp` does.
        """
        raise NotImplementedError

    def fetch(
        self,
        target_model: str,
        cache: ArtifactCache,
        *,
        compile_uncompiled: Callable[[Path, str], Path] = lambda root, digest: root,
        cancelled: threading.Event | None = None,
    ) -> FetchedModel:
        """Brings one version of a target model, whole, as `prepare` does.

        Raises what `prepare` raises, and `CallerError` (`target-model-invalid`,
        `target-model-not-found`) or `NotNowError` (`artifact-changed`, `artifact-incomplete`) for
        one that is replaced or uploaded at this moment.
        """
        raise NotImplementedError

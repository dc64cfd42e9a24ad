"""Checks the places that a request names, in any of its members, before the request is accepted.

Every reader and writer of a place checks it again (`places`). This early check tells the caller at
once, and covers members that were added later, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import local_place
from penstock.artifacts.sources.s3_urls import s3_url
from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.artifacts.sources.submitted_code import SUBMIT_DIRECTORY
from penstock.errors import CallerError

#: Skipped: a model's variables mean something to its own code only, which is confined.
_ENVIRONMENT: Final = "Environment"
_REFUSALS: Final = ("place-refused", "artifact-link-refused")


class NamedPlaces:
    """The check under one operator's settings."""

    def __init__(self, settings: ArtifactSettings) -> None:
        self._settings = settings

    async def check(self, members: Any) -> None:
        """Checks all members of a request in JSON. Other faults of a URI are reported by its
        reader.

        Raises CallerError (`place-refused`, `artifact-link-refused`).
        """
        uris = [uri for uri in _texts(members) if _is_local(uri, self._settings)]
        if uris:  # resolving links reads a disk, which may be slow
            await asyncio.to_thread(self._check, uris)

    def _check(self, uris: list[str]) -> None:
        for uri in uris:
            try:
                local_place(uri, self._settings, Budget(shown_uri(uri), bytes_max=0, seconds_max=0))
            except CallerError as error:
                if error.code in _REFUSALS:
                    raise


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, member in value.items():
            variables = name == _ENVIRONMENT and isinstance(member, Mapping)
            yield from _texts(member.get(SUBMIT_DIRECTORY) if variables else member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)


def _is_local(uri: str, settings: ArtifactSettings) -> bool:
    in_s3 = s3_url(uri)
    if in_s3 is not None:
        uri = in_s3.uri
    if uri[:5].lower() == "s3://":
        return uri[5:].partition("/")[0] in settings.s3_local
    return uri.startswith("/") or uri[:5].lower() == "file:"

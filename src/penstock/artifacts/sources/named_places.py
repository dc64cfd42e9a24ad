"""The places that a request names, whichever of its members do: refused at the door.

Whoever reads or writes there checks again (`places`). Here a caller is told at once, and a member
that nobody thought of when it was added is looked at as all others are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import local_place
from penstock.artifacts.sources.source import ArtifactSettings, shown_uri
from penstock.artifacts.sources.submitted_code import SUBMIT_DIRECTORY
from penstock.errors import CallerError

#: A model's variables mean something to its own code, which sees the files that its walls leave it.
_ENVIRONMENT: Final = "Environment"
_REFUSALS: Final = ("place-refused", "artifact-link-refused")


class NamedPlaces:
    """With an operator's settings."""

    def __init__(self, settings: ArtifactSettings) -> None:
        self._settings = settings

    async def check(self, members: Any) -> None:
        """Of a request, as JSON has it. What else may be wrong with a URI is told by its user.

        Raises CallerError (`place-refused`, `artifact-link-refused`).
        """
        uris = [uri for uri in _texts(members) if _is_local(uri, self._settings)]
        if uris:  # links are resolved on a disk, which may be slow
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
    if uri[:5].lower() == "s3://":
        return uri[5:].partition("/")[0] in settings.s3_local
    return uri.startswith("/") or uri[:5].lower() == "file:"

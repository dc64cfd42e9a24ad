"""Where packages go: a store holds the archives of one location.

A store tells what it holds by name, size and the digest in an archive's first bytes, so that no
ledger has to agree with it: whoever copied an archive there, it is known. Putting one is atomic:
a reader sees the one before or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.apply.plan import Content
from penstock.packaging.directory_store import DirectoryStore


class PackageStore(Protocol):
    """One location. Methods may be called by several threads; each raises `PenstockError`."""

    def contents(self, names: frozenset[str], *, all_of_ours: bool) -> Mapping[str, Content]:
        """What lies there under `names`; with `all_of_ours`, every archive with a digest too."""

    def left_over(self) -> list[str]:
        """Names of uploads whose run ended before them."""

    def put(self, name: str, source: Path) -> None:
        """Puts the archive there, instead of one that may be there."""

    def remove(self, name: str) -> None:
        """Removes an archive or what was left over; nothing if it is gone."""


def open_store(location: str) -> PackageStore:
    """The store of a location: s3://BUCKET/PREFIX/ or file:///FOLDER/."""
    if location.startswith("s3://"):
        from penstock.packaging.s3_store import S3Store  # noqa: PLC0415 - obstore, when it is used

        return S3Store(location)
    return DirectoryStore(Path(unquote(urlsplit(location).path)))

"""A bucket's prefix as a store, through obstore.

An object appears as a whole: by one PUT, or by the end of a multipart upload. No listing shows a
multipart upload that was killed; a lifecycle rule of the bucket removes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources.object_store import remote_error, s3_store
from penstock.core.apply.plan import Content
from penstock.errors import PenstockError
from penstock.packaging.archive import HEAD_BYTES, digest_in

#: Larger archives are sent in parts, concurrently, and a part that fails is sent again.
_ONE_PUT_BYTES_MAX = 64 * 1024 * 1024
_PART_BYTES = 16 * 1024 * 1024
_SECONDS_MAX = 3600.0
#: Concurrent reads of first bytes: each waits for the network, none for the processor.
_THREADS = 16


class S3Store:
    """The objects below one prefix. Credentials and addresses are those of the AWS tools."""

    def __init__(self, location: str) -> None:
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        self._prefix = prefix
        self._what = location
        self._obstore = importlib.import_module("obstore")
        budget = Budget(location, bytes_max=0, seconds_max=_SECONDS_MAX)
        self._store = s3_store(bucket, endpoint="", budget=budget)

    def contents(self, names: frozenset[str], *, all_of_ours: bool) -> Mapping[str, Content]:
        sizes = {name: size for name, size in self._sizes() if all_of_ours or name in names}
        with ThreadPoolExecutor(_THREADS) as pool:
            digests = pool.map(lambda item: self._digest(*item), sizes.items())
        return {
            name: Content(digest=digest, size=sizes[name])
            for name, digest in zip(sizes, digests, strict=True)
            if name in names or digest
        }

    def left_over(self) -> list[str]:
        """Always empty: no listing shows unfinished uploads."""
        return []

    def put(self, name: str, source: Path) -> None:
        key = self._key(name)
        try:
            many = source.stat().st_size > _ONE_PUT_BYTES_MAX
            self._obstore.put(
                self._store,
                key,
                source,
                use_multipart=many,
                chunk_size=_PART_BYTES,
            )
        except Exception as error:
            raise _told(f"{self._what}{name}", error) from error

    def remove(self, name: str) -> None:
        key = self._key(name)
        try:
            self._obstore.delete(self._store, key)
        except Exception as error:
            failure = _told(f"{self._what}{name}", error)
            if failure.code != "artifact-not-found":
                raise failure from error

    def _key(self, name: str) -> str:
        return self._prefix + safe_path(name, where=self._what)

    def _sizes(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        try:
            pages: Any = self._obstore.list(
                self._store, prefix=self._prefix.rstrip("/") or None, chunk_size=1000
            )
            for page in pages:
                found += [
                    (item["path"].removeprefix(self._prefix), int(item["size"]))
                    for item in page
                    if item["path"].startswith(self._prefix)
                ]
        except Exception as error:
            raise _told(self._what, error) from error
        return found

    def _digest(self, name: str, size: int) -> str:
        if not size:
            return ""
        try:
            end = min(size, HEAD_BYTES)
            head = self._obstore.get_range(self._store, self._prefix + name, start=0, end=end)
        except Exception as error:
            failure = _told(f"{self._what}{name}", error)
            if failure.code == "artifact-not-found":
                return ""  # removed since the listing, so it will be uploaded again
            raise failure from error
        return digest_in(bytes(head))


def _told(what: str, error: Exception) -> PenstockError:
    """The error as a server would report it, with a hint for whoever runs the command."""
    failure = remote_error(what, error)
    hint = (
        "Check bucket and prefix, and in this shell AWS_ENDPOINT_URL_S3, AWS_PROFILE or "
        "AWS_ACCESS_KEY_ID; then run it again."
    )
    return type(failure)(failure.code, failure.message, hint=hint)

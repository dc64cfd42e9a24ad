"""From a URI to bytes on the local disk: chooses the source that it names, and copies the files.

Supported are `s3://bucket/key`, `https://`, `http://` of this machine, `file://` and absolute
paths. AWS's https form of a place in S3 is that place, where this server has a store for S3 or
credentials; else it is a URL like others, which public buckets answer. Nothing here looks inside an
artifact; unpacking and detection come later.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.artifacts.files.budget import Budget, disk_errors
from penstock.artifacts.files.listing import Listing, SourceFile
from penstock.artifacts.sources.local_files import list_local
from penstock.artifacts.sources.object_store import list_s3, reaches_s3
from penstock.artifacts.sources.places import Fence, LocalPlace
from penstock.artifacts.sources.s3_urls import s3_url
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock, SystemClock
from penstock.core.request.host_gate import is_loopback
from penstock.errors import CallerError

_SCHEMES = "s3://, https://, file:// or an absolute path (http:// only for this machine)"


def look(
    uri: str,
    settings: ArtifactSettings,
    budget: Budget,
    *,
    clock: Clock | None = None,
    within: str = "",
) -> Listing:
    """Says what lies at `uri`, without copying it.

    `within`: the URI of a directory or prefix that contains `uri`, and that no link may lead out
    of.

    Raises `CallerError` (`artifact-not-found`, `artifact-scheme-unsupported`,
    `artifact-uri-invalid`, `artifact-access-denied` ...), or `NotNowError` where only the network
    or the time failed.
    """
    clock = clock or SystemClock()
    place = local_place(uri, settings, budget)
    if place is not None and settings.server_files:
        from penstock.artifacts.sources import server_files  # noqa: PLC0415 - of instances elsewhere

        return server_files.list_files(settings.server_files, uri, within, budget=budget)
    if place is not None:
        folder = local_path(within, settings, budget) if within else None
        fence = place.fence if folder is None else place.fence.inside(folder)
        return list_local(
            place.path, budget=budget, files_max=settings.files_max, clock=clock, fence=fence
        )
    if uri[:5].lower() == "s3://":
        return _s3(*s3_parts(uri, budget), settings, budget)
    in_s3 = s3_url(uri)
    if in_s3 is not None and reaches_s3(settings.s3_endpoint):
        return _s3(in_s3.bucket, in_s3.key, settings, budget, region=in_s3.region)
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - raises for a port that is no number
    except ValueError as error:
        raise _invalid(budget, str(error)) from error
    scheme = parts.scheme.lower()
    if scheme == "https" or (scheme == "http" and is_loopback(host)):
        return _http(uri, parts, budget)
    if scheme == "http":
        raise CallerError(
            "artifact-scheme-unsupported",
            f"{budget.what}: http:// is read from this machine only; anyone on the way could "
            "change the model",
            hint="Use https://, s3:// or file://.",
        )
    cause = f"the scheme {scheme}:// is not supported" if scheme else "it is a relative path"
    raise CallerError(
        "artifact-scheme-unsupported", f"{budget.what}: {cause}", hint=f"Use {_SCHEMES}."
    )


def copy_file(file: SourceFile, to: Path, budget: Budget) -> str:
    """Copies one file to `to`, which must not exist; returns the SHA-256 of its content.

    Counts the bytes against the budget as they arrive: an announced size proves nothing.
    """
    digest = hashlib.sha256()
    with disk_errors(budget.what, to.parent):
        to.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb", buffering=0) as target:
        for chunk in file.chunks():
            view = memoryview(chunk)
            budget.take(len(view))
            digest.update(view)
            with disk_errors(budget.what, to.parent):
                while view:  # an unbuffered write may be short
                    view = view[target.write(view) :]
    return digest.hexdigest()


def directory_digest(files: Iterable[tuple[str, int, bool, str]]) -> str:
    """The digest of a directory: over (name, size, executable, SHA-256), sorted by name."""
    digest = hashlib.sha256(b"penstock directory 1\n")
    for name, size, executable, content in sorted(files):
        digest.update(f"{content} {size} {int(executable)} {name}\n".encode())
    return digest.hexdigest()


def local_path(uri: str, settings: ArtifactSettings, budget: Budget) -> Path | None:
    """The path of `local_place`. Raises as that function does."""
    place = local_place(uri, settings, budget)
    return None if place is None else place.path


def local_place(uri: str, settings: ArtifactSettings, budget: Budget) -> LocalPlace | None:
    """The place on this machine that a URI means; None where it means none.

    Raises `CallerError` (`artifact-uri-invalid`, `place-refused`, `artifact-link-refused`).
    """
    path, fence = None, Fence(settings.closed)
    in_s3 = s3_url(uri)
    if in_s3 is not None:
        uri = in_s3.uri
    if uri.startswith("/"):
        path = Path(uri)
    elif uri[:5].lower() == "file:":
        path = _file_uri_path(uri, budget)
    elif uri[:5].lower() == "s3://":
        bucket, key = s3_parts(uri, budget)
        folder = settings.local_bucket(bucket)
        if folder is not None:
            if any(part == ".." for part in key.split("/")):
                raise _invalid(budget, "the key contains '..'")
            path, fence = folder / key.strip("/"), fence.inside(folder)
    if path is None:
        return None
    if "\0" in str(path):
        raise _invalid(budget, "the path contains a null byte")
    fence.check(path, budget.what)
    return LocalPlace(path, fence)


def s3_parts(uri: str, budget: Budget) -> tuple[str, str]:
    """Bucket and key. It avoids urlsplit: "?" and "#" are ordinary characters of a key."""
    bucket, _, key = uri[len("s3://") :].partition("/")
    if not bucket or bucket in (".", ".."):
        raise _invalid(budget, "s3:// needs a bucket: s3://bucket/key")
    return bucket, key


def _file_uri_path(uri: str, budget: Budget) -> Path:
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise _invalid(budget, str(error)) from error
    if parts.netloc not in ("", "localhost"):
        raise _invalid(
            budget, f"file:// with the host {parts.netloc!r}; a local file has three slashes"
        )
    path = unquote(parts.path)
    if not path.startswith("/"):
        raise _invalid(budget, "file:// needs an absolute path")
    return Path(path)


def _s3(
    bucket: str, key: str, settings: ArtifactSettings, budget: Budget, *, region: str = ""
) -> Listing:
    return list_s3(
        bucket,
        key,
        endpoint=settings.s3_endpoint,
        budget=budget,
        files_max=settings.files_max,
        region=region,
    )


def _http(uri: str, parts: SplitResult, budget: Budget) -> Listing:
    if not parts.hostname:
        raise _invalid(budget, "the URL has no host")
    if not parts.path.strip("/") or parts.path.endswith("/"):
        raise _invalid(budget, "an https:// URL must name one file; directories can't be listed")
    from penstock.artifacts.sources.http_source import list_http  # noqa: PLC0415 - kept off local starts

    return list_http(uri, budget=budget)


def _invalid(budget: Budget, cause: str) -> CallerError:
    return CallerError("artifact-uri-invalid", f"{budget.what}: {cause}", hint=f"Use {_SCHEMES}.")

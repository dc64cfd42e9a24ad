"""S3 buckets as sources, through obstore.

obstore is imported on first use: most models lie on the local disk. Its errors are mapped here
once, and no message contains credentials or signed queries.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES, Listing, SourceFile
from penstock.artifacts.files.paths import is_clutter, safe_path
from penstock.core.request.storage_failures import status_passes
from penstock.errors import CallerError, NotNowError, PenstockError

#: s without a byte after which the other end counts as dead; retries of a request end after
#: RETRY_S.
STALL_S = 30
CONNECT_S = 5
RETRY_S = 20
RETRIES_MAX = 4

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # obstore's value where there is no Last-Modified
#: User name and password in a URL.
_USER: Final = re.compile(r"//[^/\s@]*@")
_STATUS: Final = re.compile(r"status code: (\d{3})")


def list_s3(
    bucket: str, key: str, *, endpoint: str, budget: Budget, files_max: int, region: str = ""
) -> Listing:
    """An object, or all objects below a prefix where there is no object of that name."""
    store = s3_store(bucket, endpoint=endpoint, budget=budget, region=region)
    return list_in_store(store, key, budget=budget, files_max=files_max)


def list_in_store(
    store: Any, key: str, *, budget: Budget, files_max: int, peek: bool = False
) -> Listing:
    """As `list_s3`. `peek`: only stamps are needed, so no object is opened for reading."""
    obstore = importlib.import_module("obstore")
    if key and not key.endswith("/"):
        try:
            result = obstore.head(store, key) if peek else obstore.get(store, key)
        except Exception as error:
            mapped = remote_error(budget.what, error)
            if mapped.code != "artifact-not-found":
                raise mapped from error
        else:
            name = safe_path(key.rsplit("/", 1)[-1], where=budget.what)
            if peek:
                return listing_of(store, {name: result}, single=True, budget=budget)
            file = _opened_file(name, result, budget)
            return Listing(files=(file,), single=True, changed_at=_changed_at(result.meta))
    objects: dict[str, Any] = {}
    for name, item in objects_below(store, key, budget=budget):
        objects[safe_path(name, where=budget.what)] = item
        if len(objects) > files_max:
            raise CallerError(
                "artifact-too-many-files",
                f"{budget.what}: more than {files_max} objects below the prefix",
                hint="Name the prefix of one model.",
            )
    listing = listing_of(store, objects, single=False, budget=budget)
    if not listing.files:
        raise not_found(budget.what)
    return listing


def objects_below(
    store: Any, prefix: str, *, budget: Budget, after: str = ""
) -> Iterator[tuple[str, Any]]:
    """(name below the prefix, the store's metadata), in no order, without clutter.

    `after`: keys that sort before this one may be left out.
    """
    obstore = importlib.import_module("obstore")
    prefix = prefix.strip("/")
    options = {"offset": after} if after else {}
    try:
        for page in obstore.list(store, prefix=prefix or None, chunk_size=1000, **options):
            budget.check()
            for item in page:
                name = item["path"][len(prefix) :].lstrip("/")
                if name and not is_clutter(name):
                    yield name, item
    except PenstockError:
        raise
    except Exception as error:
        raise remote_error(budget.what, error) from error


def listing_of(store: Any, objects: Mapping[str, Any], *, single: bool, budget: Budget) -> Listing:
    """A listing of these objects of a store, by name."""
    obstore = importlib.import_module("obstore")
    # Consoles mark a folder by an empty object of its name; it is no file if files lie below it.
    folders = {name[:end] for name in objects for end, char in enumerate(name) if char == "/"}
    files = [
        SourceFile(
            name=name,
            size=int(item["size"]),
            stamp=stamp_of(item),
            chunks=functools.partial(_later_chunks, obstore, store, item, budget),
        )
        for name, item in sorted(objects.items())
        if not (name in folders and item["size"] == 0)
    ]
    newest = max((_changed_at(item) for item in objects.values()), default=0.0)
    return Listing(files=tuple(files), single=single, changed_at=newest)


def _later_chunks(obstore: Any, store: Any, item: Any, budget: Budget) -> Iterator[bytes]:
    try:
        result = obstore.get(store, item["path"])
    except Exception as error:
        raise remote_error(f"{budget.what} ({item['path']})", error) from error
    if stamp_of(result.meta) != stamp_of(item):
        raise NotNowError(
            "artifact-changed",
            f"{budget.what}: the object {item['path']} changed while the prefix was read",
            hint="Deploy when the upload is complete; better, upload each version to a new prefix.",
            retry_after_s=1.0,
        )
    yield from chunks_of(result, budget)


def _opened_file(name: str, result: Any, budget: Budget) -> SourceFile:
    return SourceFile(
        name=name,
        size=int(result.meta["size"]),
        stamp=stamp_of(result.meta),
        chunks=lambda: chunks_of(result, budget),
    )


def chunks_of(result: Any, budget: Budget) -> Iterator[bytes]:
    """The bytes of an object, all of them or an error of ours."""
    read = 0
    try:
        for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
            read += len(chunk)
            yield chunk
    except PenstockError:
        raise
    except Exception as error:
        raise remote_error(budget.what, error) from error
    size = int(result.meta["size"])
    if read != size:
        raise NotNowError(
            "artifact-unreachable",
            f"{budget.what}: the answer ended after {read} of {size} bytes",
            hint="Try again; if it repeats, check the server that holds the artifact.",
        )


def stamp_of(meta: Any) -> str:
    """A text that changes with an object, from the store's metadata; "" where that has none."""
    if meta["e_tag"]:
        return str(meta["e_tag"])
    modified = meta["last_modified"]
    return "" if modified <= _EPOCH else str(modified.timestamp())


def _changed_at(meta: Any) -> float:
    return float(max(0.0, meta["last_modified"].timestamp()))


def reaches_s3(endpoint: str) -> bool:
    """Whether this server has a store for S3, or credentials for AWS's. `endpoint`: the setting."""
    return bool(endpoint or os.environ.get("AWS_ENDPOINT_URL_S3")) or _s3_credentials() is not None


def s3_store(bucket: str, *, endpoint: str, budget: Budget, region: str = "") -> Any:
    """A bucket, opened with the credentials of the environment. `region`: of AWS's; "" = the
    environment's. Raises `CallerError`."""
    store_module = importlib.import_module("obstore.store")
    options: dict[str, Any] = {}
    # AWS_ENDPOINT_URL_S3 beats AWS_ENDPOINT_URL, as in AWS's tools: for a user of this server the
    # variable for all services mostly names this server.
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3", "")
    if endpoint:
        # Under this name, because obstore prefers the variable to its option `endpoint`.
        options["aws_endpoint_url_s3"] = endpoint
    elif region:
        options["region"] = region
    provider = _s3_credentials()
    if provider is None:
        options["skip_signature"] = True  # public buckets and open stores need no credentials
    else:
        options["credential_provider"] = provider
    # Without a setting, obstore uses AWS_ENDPOINT_URL of the environment, which may be http.
    allow_http = not endpoint or endpoint.lower().startswith("http://")
    client_options = _client_options(budget, allow_http=allow_http)
    try:
        return store_module.S3Store(
            bucket,
            client_options=client_options,
            retry_config=_retry_config(),
            **options,
        )
    except Exception as error:
        raise CallerError(
            "artifact-uri-invalid",
            f"{budget.what}: the S3 settings do not work: {_told(error)}",
            hint="Check control.s3_endpoint and the AWS environment variables of the server.",
        ) from error


def _s3_credentials() -> Any:
    """A provider of the standard chain (environment, profile, role), or None if that finds nothing.

    botocore's chain is the one that AWS users have set up; obstore alone reads no profiles.
    """
    session = importlib.import_module("botocore.session").get_session()
    credentials = session.get_credentials()
    if credentials is None:
        return None

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            # obstore asks again before botocore's own refresh can be due.
            "expires_at": datetime.now(UTC) + timedelta(minutes=5),
        }

    return provide


def _client_options(budget: Budget, *, allow_http: bool) -> dict[str, Any]:
    return _private_authority(budget) | {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "read_timeout": timedelta(seconds=STALL_S),
        "timeout": timedelta(seconds=max(1.0, budget.remaining_s())),
        "user_agent": "penstock",
    }


def _private_authority(budget: Budget) -> dict[str, Any]:
    """The certificate authorities of AWS_CA_BUNDLE, as the AWS tools take them.

    obstore itself reads SSL_CERT_FILE, which replaces the system's authorities.
    """
    bundle = os.environ.get("AWS_CA_BUNDLE", "")
    if not bundle:
        return {}
    try:
        return {"root_certificate": Path(bundle).read_bytes()}
    except OSError as error:
        raise bundle_unreadable(budget.what, bundle, error) from None


def bundle_unreadable(what: str, bundle: str, error: OSError) -> CallerError:
    return CallerError(
        "artifact-ca-bundle",
        f"{what}: the file that AWS_CA_BUNDLE names can't be read: {error.strerror}",
        hint=f"Correct or unset it in the server's environment; it is {bundle!r}.",
    )


def _retry_config() -> dict[str, Any]:
    return {"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_S)}


def remote_error(what: str, error: Exception) -> PenstockError:
    """The Penstock error for an error of obstore."""
    exceptions = importlib.import_module("obstore.exceptions")
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return not_found(what)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return access_denied(what)
    text = str(error)
    answered = _STATUS.search(text)
    if answered is not None and answered[1] in ("401", "403"):  # a listing has no class for it
        return access_denied(what)
    if "InvalidCertificate" in text:
        return certificate_untrusted(what)
    if "MissingContentLength" in text:
        return size_unknown(what)
    return unreachable(what, _told(error))


def put_error(what: str, error: Exception) -> PenstockError:
    """As `remote_error`, for an object that was to be written. Where the store calls the request
    wrong (a key that is too long, a bucket's policy), a retry would fail again."""
    answered = _STATUS.search(str(error))
    told = remote_error(what, error)
    if answered is None or isinstance(told, CallerError) or status_passes(int(answered[1])):
        return told
    return CallerError(
        "artifact-put-refused",
        told.message,
        hint="Check the bucket's name, its policy and the key.",
    )


def certificate_untrusted(what: str) -> CallerError:
    return CallerError(
        "artifact-certificate-untrusted",
        f"{what}: the server's certificate is not trusted",
        hint="For a private certificate authority, start the server with AWS_CA_BUNDLE or "
        "SSL_CERT_FILE naming its PEM file; else check the certificate's names and dates.",
    )


def size_unknown(what: str) -> CallerError:
    return CallerError(
        "artifact-size-unknown",
        f"{what}: the server does not say how large the artifact is (no Content-Length)",
        hint="Serve it as a static file, or copy it to S3 or to this machine's disk.",
    )


def access_denied(what: str) -> CallerError:
    return CallerError(
        "artifact-access-denied",
        f"{what}: access is denied",
        hint="Check the credentials in the server's environment (AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY, AWS_PROFILE), or whether a presigned URL has expired.",
    )


def unreachable(what: str, cause: str) -> NotNowError:
    return NotNowError(
        "artifact-unreachable",
        f"{what}: {cause}",
        hint="Check the address, the network and, for s3://, control.s3_endpoint; then try again.",
    )


def not_found(what: str) -> CallerError:
    return CallerError(
        "artifact-not-found",
        f"{what}: there is no such object, nor anything below that prefix",
        hint="Check bucket, key and spelling; for s3://, also control.s3_endpoint and s3_local.",
    )


def _told(error: Exception) -> str:
    """What happened, without obstore's debug tree, queries (they may be signatures), or a body.

    The far end's text is not passed on: whoever may name a URL must not read answers that are meant
    for the server alone.
    """
    answered = _STATUS.search(str(error))
    if answered is not None:
        return f"the server answered {answered[1]}"
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return without_secrets(line)


def without_secrets(line: str) -> str:
    """The line without user names and passwords in URLs, and without their queries."""
    line = _USER.sub("//", line)
    return " ".join(word.partition("?")[0] for word in line.split(" "))[:300]

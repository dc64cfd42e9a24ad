"""Buckets as sources, rule by rule: listings, stamps, errors and settings; the store is a list."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore.exceptions
import pytest
from artifact_files import budget, error_of

from penstock.artifacts.files.listing import Listing
from penstock.artifacts.sources import object_store
from penstock.clock import ManualClock
from penstock.errors import CallerError, NotNowError, PenstockError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def item(path: str, size: int = 1, tag: str | None = "e", at: datetime = EPOCH) -> dict[str, Any]:
    return {"path": path, "size": size, "e_tag": tag, "last_modified": at}


class Result:
    def __init__(self, meta: dict[str, Any], *chunks: bytes) -> None:
        self.meta = meta
        self.chunks = chunks

    def stream(self, min_chunk_size: int) -> Iterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


class Obstore:
    """In place of the package: pages of a listing, and objects by their keys."""

    def __init__(self, *pages: list[dict[str, Any]], **objects: Any) -> None:
        self.pages = pages
        self.objects = {name.replace("__", "/"): value for name, value in objects.items()}
        self.listed: list[str | None] = []
        self.got: list[str] = []

    def list(self, store: object, prefix: str | None, chunk_size: int) -> Iterator[Any]:
        self.listed.append(prefix)
        for page in self.pages:
            if isinstance(page, Exception):
                raise page
            yield page

    def get(self, store: object, key: str) -> Result:
        self.got.append(key)
        found = self.objects.get(key)
        if found is None:
            raise FileNotFoundError(key)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Result)
        return found


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`list_s3` over an `Obstore`."""

    def run(obstore_: Obstore, key: str, *, files_max: int = 100) -> Listing:
        real = object_store.importlib.import_module
        monkeypatch.setattr(
            object_store.importlib,
            "import_module",
            lambda name: obstore_ if name == "obstore" else real(name),
        )
        monkeypatch.setattr(object_store, "s3_store", lambda *_, **__: None)
        return object_store.list_s3(
            "bucket", key, endpoint="", budget=budget(), files_max=files_max
        )

    return run


def test_an_object_is_a_listing_of_one(listed: Any) -> None:
    found = Obstore(team__m=Result(item("team/m", 3), b"ab", b"c"))
    listing = listed(found, "team/m")
    [file] = listing.files
    assert (file.name, file.size, file.stamp, listing.single) == ("m", 3, "e", True)
    assert b"".join(file.chunks()) == b"abc"
    assert (found.got, found.listed) == (["team/m"], [])


@pytest.mark.parametrize(
    ("key", "asked", "prefix"),
    [("team/m", ["team/m"], "team/m"), ("team/m/", [], "team/m"), ("", [], None)],
)
def test_where_there_is_no_object_all_below_the_prefix_are_meant(
    listed: Any, key: str, asked: list[str], prefix: str | None
) -> None:
    start = f"{prefix}/" if prefix else ""
    found = Obstore(
        [item(f"{start}b", 2), item(f"{start}a/c", 1, "f")],
        [item(f"{start}.DS_Store"), item(start)],
    )
    listing = listed(found, key)
    assert [(file.name, file.size, file.stamp) for file in listing.files] == [
        ("a/c", 1, "f"), ("b", 2, "e"),
    ]  # fmt: skip
    assert (listing.single, found.got, found.listed) == (False, asked, [prefix])


def test_marks_of_folders_are_no_files_and_empty_files_are(listed: Any) -> None:
    found = Obstore([item("m/a", 0), item("m/a/b", 1), item("m/empty", 0), item("m/c", 1),
                     item("m/c/d", 0)])  # fmt: skip
    assert [file.name for file in listed(found, "m/").files] == ["a/b", "c", "c/d", "empty"]


def test_nothing_below_a_prefix_is_not_found(listed: Any) -> None:
    for found in (Obstore(), Obstore([]), Obstore([item("m/.DS_Store")])):
        assert error_of(lambda f=found: listed(f, "m/")).code == "artifact-not-found"


def test_a_prefix_may_hold_as_many_objects_as_the_bound(listed: Any) -> None:
    pages = [[item("m/a"), item("m/b")], [item("m/c")]]
    assert len(listed(Obstore(*pages), "m/", files_max=3).files) == 3
    error = error_of(lambda: listed(Obstore(*pages), "m/", files_max=2))
    assert error.code == "artifact-too-many-files"


def test_an_error_that_is_not_absence_is_told_and_nothing_else_is_asked(listed: Any) -> None:
    found = Obstore([item("m/a")], m=obstore.exceptions.PermissionDeniedError("no"))
    assert error_of(lambda: listed(found, "m")).code == "artifact-access-denied"
    assert found.listed == []
    broken = Obstore(obstore.exceptions.GenericError("broken"))  # type: ignore[arg-type]
    assert error_of(lambda: listed(broken, "m/")).code == "artifact-unreachable"
    assert error_of(lambda: listed(Obstore([item("m/a\\b")]), "m/")).code == "artifact-path-unsafe"


def test_an_object_of_a_prefix_is_read_when_its_turn_comes(listed: Any) -> None:
    found = Obstore([item("m/a", 2)], m__a=Result(item("m/a", 2), b"ab"))
    [file] = listed(found, "m/").files
    assert found.got == []
    assert b"".join(file.chunks()) == b"ab"
    found.objects["m/a"] = Result(item("m/a", 2, "other"), b"ab")
    error = error_of(lambda: list(file.chunks()))
    assert (type(error), error.code) == (NotNowError, "artifact-changed")
    del found.objects["m/a"]
    error = error_of(lambda: list(file.chunks()))
    assert (error.code, "m/a" in error.message) == ("artifact-not-found", True)


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ((b"ab",), "artifact-unreachable"),
        ((b"ab", b"cd"), "artifact-unreachable"),
        ((b"a", obstore.exceptions.GenericError("broken")), "artifact-unreachable"),
        ((b"a", CallerError("ours", "Ours.", hint="h")), "ours"),
    ],
)
def test_a_body_that_is_not_whole_is_no_model(listed: Any, chunks: Any, code: str) -> None:
    [file] = listed(Obstore(m=Result(item("m", 3), *chunks)), "m").files
    assert error_of(lambda: list(file.chunks())).code == code


@pytest.mark.parametrize(
    ("meta", "stamp"),
    [
        (item("m", 1, "tag", EPOCH), "tag"),
        (item("m", 1, None, EPOCH), ""),
        (item("m", 1, "", EPOCH + timedelta(seconds=1)), "1.0"),
    ],
)
def test_a_stamp_is_the_tag_or_the_time(meta: dict[str, Any], stamp: str) -> None:
    assert object_store.stamp_of(meta) == stamp


# Errors


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (FileNotFoundError("x"), CallerError, "artifact-not-found"),
        (obstore.exceptions.NotFoundError("x"), CallerError, "artifact-not-found"),
        (obstore.exceptions.PermissionDeniedError("x"), CallerError, "artifact-access-denied"),
        (obstore.exceptions.UnauthenticatedError("x"), CallerError, "artifact-access-denied"),
        (obstore.exceptions.GenericError("InvalidCertificate"), CallerError,
         "artifact-certificate-untrusted"),
        (obstore.exceptions.GenericError("MissingContentLength"), CallerError,
         "artifact-size-unknown"),
        (obstore.exceptions.GenericError("other"), NotNowError, "artifact-unreachable"),
        (OSError("other"), NotNowError, "artifact-unreachable"),
    ],
)  # fmt: skip
def test_what_fails_far_away_is_told_apart(
    error: Exception, kind: type[PenstockError], code: str
) -> None:
    told = object_store.remote_error("model", error)
    assert (type(told), told.code, told.message.startswith("model: ")) == (kind, code, True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("status code: 418, body: secret"), "the server answered 418"),
        (OSError("first line\nDebug { tree }"), "first line"),
        (OSError("   "), "OSError"),
        (OSError("GET http://u:p@h/k?sig=x failed"), "GET http://h/k failed"),
        (OSError("x" * 301), "x" * 300),
    ],
)
def test_what_is_told_is_one_line_without_secrets(error: Exception, told: str) -> None:
    assert object_store._told(error) == told


# Settings


class Store:
    """In place of obstore's S3Store: keeps what it is made with."""

    made: list[tuple[str, dict[str, Any]]]

    def __init__(self, bucket: str, **options: Any) -> None:
        Store.made.append((bucket, options))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    Store.made = []
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setattr("obstore.store.S3Store", Store)
    monkeypatch.setattr(object_store, "_s3_credentials", lambda: None)

    def run(endpoint: str) -> dict[str, Any]:
        object_store.s3_store("bucket", endpoint=endpoint, budget=budget())
        return Store.made[-1][1]

    return run


@pytest.mark.parametrize(
    ("endpoint", "variable", "used", "allow_http"),
    [
        ("", "", None, True),
        ("https://a", "", "https://a", False),
        ("HTTP://a", "", "HTTP://a", True),
        ("", "http://b", "http://b", True),
        ("", "https://b", "https://b", False),
        ("https://a", "http://b", "https://a", False),
    ],
)
def test_the_endpoint_is_the_settings_before_the_environments(
    made: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str, variable: str, used: Any,
    allow_http: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", variable)
    options = made(endpoint)
    assert options.get("aws_endpoint_url_s3") == used
    assert options["client_options"]["allow_http"] is allow_http


def test_a_store_without_credentials_is_asked_unsigned(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (made("")["skip_signature"], "credential_provider" in Store.made[-1][1]) == (True, False)
    provider = object()
    monkeypatch.setattr(object_store, "_s3_credentials", lambda: provider)
    options = made("")
    assert (options["credential_provider"], "skip_signature" in options) == (provider, False)
    assert options["retry_config"] == {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}


def test_settings_that_make_no_store_are_told(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("bad endpoint http://u:p@h")

    monkeypatch.setattr("obstore.store.S3Store", fail)
    error = error_of(lambda: made("nonsense"))
    assert (error.code, "u:p" in error.message) == ("artifact-uri-invalid", False)


def test_a_request_takes_no_longer_than_the_artifact_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    clock = ManualClock()
    made = object_store.Budget("model", bytes_max=1, seconds_max=60.0, clock=clock)
    assert object_store._client_options(made, allow_http=False) == {
        "allow_http": False,
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=30),
        "timeout": timedelta(seconds=60),
        "user_agent": "penstock",
    }
    clock.advance(100.0)
    assert object_store._client_options(made, allow_http=True)["timeout"] == timedelta(seconds=1)
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(b"pem")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    options = object_store._client_options(made, allow_http=True)
    assert options["root_certificate"] == b"pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "gone.pem"))
    error = error_of(lambda: object_store._client_options(made, allow_http=True))
    assert error.code == "artifact-ca-bundle"


def test_credentials_are_asked_for_again_before_they_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert object_store._s3_credentials() is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")

    class Noon:
        @staticmethod
        def now(zone: Any) -> datetime:
            return datetime(2026, 1, 1, 12, tzinfo=zone)

    monkeypatch.setattr(object_store, "datetime", Noon)
    assert object_store._s3_credentials()() == {
        "access_key_id": "AKID",
        "secret_access_key": "SECRET",
        "token": None,
        "expires_at": datetime(2026, 1, 1, 12, 5, tzinfo=UTC),
    }

"""AWS's https form of places in S3, as its documentation and its notebooks write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources import fetch
from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.s3_urls import S3Url, s3_url
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.errors import CallerError

URL = "https://mine.s3-us-west-2.amazonaws.com/demo/model.tar.gz"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (URL, S3Url("mine", "demo/model.tar.gz", "us-west-2")),
        ("https://mine.s3.amazonaws.com/m.tar.gz", S3Url("mine", "m.tar.gz", "")),
        ("https://a.b.s3.eu-central-1.amazonaws.com/m", S3Url("a.b", "m", "eu-central-1")),
        ("https://mine.s3.dualstack.us-east-1.amazonaws.com/m", S3Url("mine", "m", "us-east-1")),
        ("https://s3.amazonaws.com/mine/x/m", S3Url("mine", "x/m", "")),
        ("https://s3-us-west-2.amazonaws.com/mine/m", S3Url("mine", "m", "us-west-2")),
        ("https://s3.eu-west-1.amazonaws.com/mine/a%20b", S3Url("mine", "a b", "eu-west-1")),
        ("https://s3.cn-north-1.amazonaws.com.cn/mine/m", S3Url("mine", "m", "cn-north-1")),
        ("HTTPS://MINE.S3.AMAZONAWS.COM:443/M", S3Url("mine", "M", "")),
    ],
)
def test_it_names_a_bucket_and_a_key(url: str, found: S3Url) -> None:
    assert s3_url(url) == found


@pytest.mark.parametrize(
    "url",
    [
        "https://mine.s3.amazonaws.com/m?X-Amz-Signature=1",
        "https://user:word@mine.s3.amazonaws.com/m",
        "https://mine.s3.amazonaws.com:8443/m",
        "https://mine.s3.amazonaws.com/",
        "https://s3.amazonaws.com/mine",
        "https://mine.s3-accelerate.amazonaws.com/m",
        "https://mine.s3-website-us-west-2.amazonaws.com.evil.org/m",
        "https://lambda.us-east-1.amazonaws.com/m",
        "https://amazonaws.com/m",
        "https://mine.s3.example.org/m",
        "http://mine.s3.amazonaws.com/m",
        "https://[mine.s3.amazonaws.com/m",
        "s3://mine/m",
    ],
)
def test_every_other_url_is_none(url: str) -> None:
    """A signed one is fetched as it is."""
    assert s3_url(url) is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked of which source."""
    found: list[tuple[Any, ...]] = []

    def in_s3(bucket: str, key: str, *, endpoint: str, region: str, **_: Any) -> None:
        found.append((bucket, key, endpoint, region))

    monkeypatch.setattr(fetch, "list_s3", in_s3)
    monkeypatch.setattr(fetch, "_http", lambda uri, parts, budget: found.append((uri,)))
    return found


@pytest.mark.parametrize(
    ("endpoint", "credentials", "source"),
    [
        ("http://127.0.0.1:9000", False, "s3"), ("", True, "s3"), ("", False, "https"),
    ],
)  # fmt: skip
def test_a_server_with_a_store_or_with_credentials_finds_it_in_s3(
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[Any, ...]],
    *,
    endpoint: str,
    credentials: bool,
    source: str,
) -> None:
    monkeypatch.setattr(fetch, "reaches_s3", lambda endpoint: bool(endpoint) or credentials)
    budget = Budget("it", bytes_max=1, seconds_max=1)
    fetch.look(URL, ArtifactSettings(s3_endpoint=endpoint), budget)
    in_s3 = ("mine", "demo/model.tar.gz", endpoint, "us-west-2")
    assert asked == [in_s3 if source == "s3" else (URL,)]


async def test_in_a_bucket_that_is_a_folder_the_fence_holds(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    (bucket / "demo").mkdir(parents=True)
    settings = ArtifactSettings(s3_local={"mine": str(bucket)}, closed=(str(bucket / "demo"),))
    budget = Budget("it", bytes_max=1, seconds_max=1)
    with pytest.raises(CallerError) as refused:
        fetch.local_place(URL, settings, budget)
    assert refused.value.code == "place-refused"
    with pytest.raises(CallerError, match="demo"):
        await NamedPlaces(settings).check({"ModelDataUrl": URL})
    opened = ArtifactSettings(s3_local={"mine": str(bucket)})
    assert fetch.local_path(URL, opened, budget) == bucket / "demo" / "model.tar.gz"
    assert fetch.local_path(URL, ArtifactSettings(), budget) is None

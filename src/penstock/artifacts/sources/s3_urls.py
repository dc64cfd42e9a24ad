"""AWS's https form of an s3:// URI, which SageMaker takes as a place in S3 as well.

Source: "Methods for accessing a bucket" of Amazon S3's user guide: the bucket in the host's name or
before the key, with the region or without it.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_DOMAINS: Final = (".amazonaws.com", ".amazonaws.com.cn")


class S3Url(NamedTuple):
    bucket: str
    key: str
    region: str  #: "" = the URL names none

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def s3_url(url: str) -> S3Url | None:
    """None for every other URL; also for one with a query, which may be signed already."""
    if url[:8].lower() != "https://":
        return None
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    domain = next((each for each in _DOMAINS if host.endswith(each)), None)
    if domain is None or port not in (None, 443) or parts.query or parts.username is not None:
        return None
    found = _service(host.removesuffix(domain).split("."))
    if found is None:
        return None
    bucket, region = found
    key = unquote(parts.path).removeprefix("/")
    if not bucket:
        bucket, _, key = key.partition("/")
    return S3Url(bucket, key, region) if bucket and key else None


def _service(labels: list[str]) -> tuple[str, str] | None:
    """(bucket, region) of a host's labels before the domain, each perhaps empty."""
    *before, last = labels
    if last == "s3":
        region = ""
    elif last.startswith("s3-"):
        region = last.removeprefix("s3-")
    elif before[-1:] == ["s3"]:
        region = last
        before = before[:-1]
    elif before[-2:] == ["s3", "dualstack"]:
        region = last
        before = before[:-2]
    else:
        return None
    if region and not ("-" in region and region[-1].isdigit()):
        return None  # s3-accelerate, s3-website
    return ".".join(before), region

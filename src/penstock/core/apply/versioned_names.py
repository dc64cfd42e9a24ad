"""Names that are derived from content: the same content has the same name, whoever makes it.

A model and an endpoint configuration can't be changed, so each change of an endpoint gives them a
new name: the endpoint's own name, cut to leave room, and a digest.
"""

from __future__ import annotations

import hashlib
import re

#: SageMaker's pattern for names of endpoints, models and configurations; use it with `fullmatch`.
ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
#: SageMaker's bound of 63 characters, minus a hyphen and the digest.
_STEM_CHARS_MAX = 52
_DIGEST_CHARS = 10
_DIGEST = re.compile(r"[0-9a-f]{10}\Z")


def versioned_name(endpoint: str, content: str) -> str:
    """The name of a model or configuration of `endpoint` that is made of `content`."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{stem(endpoint)}-{digest}"


def is_version_of(name: str, endpoint: str) -> bool:
    """Whether `versioned_name` gives `name` to something of this endpoint."""
    rest = name.removeprefix(f"{stem(endpoint)}-")
    return rest != name and _DIGEST.match(rest) is not None


def stem(endpoint: str) -> str:
    """The common beginning of all versioned names of an endpoint."""
    return endpoint[:_STEM_CHARS_MAX]

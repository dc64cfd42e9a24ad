"""Names that follow from what they name: the same content has the same name, whoever makes it.

A model and an endpoint configuration can't be changed, so what an endpoint is made of gets a new
name with each change: the endpoint's own, cut to leave room, and a digest.
"""

from __future__ import annotations

import hashlib
import re

#: SageMaker's pattern of names of endpoints, models and configurations: match all of a text.
ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
#: SageMaker's bound of 63 characters, less a hyphen and the digest.
_STEM_CHARS_MAX = 52
_DIGEST_CHARS = 10
_DIGEST = re.compile(r"[0-9a-f]{10}\Z")


def versioned_name(endpoint: str, content: str) -> str:
    """The name of a model or configuration of `endpoint` that is made of `content`."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{stem(endpoint)}-{digest}"


def is_version_of(name: str, endpoint: str) -> bool:
    """Whether `name` is one that `versioned_name` gives something of this endpoint."""
    rest = name.removeprefix(f"{stem(endpoint)}-")
    return rest != name and _DIGEST.match(rest) is not None


def stem(endpoint: str) -> str:
    """What all versioned names of an endpoint begin with."""
    return endpoint[:_STEM_CHARS_MAX]

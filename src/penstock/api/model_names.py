"""Names of models in protocols that have a single field for them.

A name is `endpoint`, or `endpoint:target` for a target model of a multi-model endpoint or an
inference component of an endpoint that has components. Endpoint names have no colon, so the first
one ends them; the rest is the target's name, slashes and colons included.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.errors import CallerError

#: The limit of TargetModel in AWS's model; the host checks the name below its prefix.
TARGET_CHARS_MAX: Final = 1024
_TARGET: Final = re.compile(r"[!-~][ -~]*")


class ModelName(NamedTuple):
    """A parsed name."""

    endpoint: str
    target: str | None = None

    def __str__(self) -> str:
        return self.endpoint if self.target is None else f"{self.endpoint}:{self.target}"


def parse(name: str) -> ModelName:
    """Raises CallerError (`target-model-invalid`)."""
    endpoint, colon, target = name.partition(":")
    if not colon:
        return ModelName(endpoint)
    if len(target) > TARGET_CHARS_MAX or not _TARGET.fullmatch(target):
        raise CallerError(
            "target-model-invalid",
            f"{name[:256]!r} names no target model",
            hint="Write ENDPOINT:TARGET_MODEL, the target as it lies below the endpoint's prefix: "
            f"1 to {TARGET_CHARS_MAX} printable ASCII characters, not a space first; or"
            " ENDPOINT:COMPONENT.",
        )
    return ModelName(endpoint, target)


def endpoint_of(name: str) -> str:
    """The endpoint that the name belongs to. Never raises."""
    return name.partition(":")[0]

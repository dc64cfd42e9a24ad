"""The names by which models are asked for where a protocol has one word for them.

`endpoint`, or `endpoint:target` for a target model of a multi-model endpoint, or for an inference
component of an endpoint that takes components. Names of endpoints hold no colon, so the first one
ends them; whatever follows is the target's, slashes and colons too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.errors import CallerError

#: As AWS's model has TargetModel; what it may name below its prefix is the host's to check.
TARGET_CHARS_MAX: Final = 1024
_TARGET: Final = re.compile(r"[!-~][ -~]*")


class ModelName(NamedTuple):
    """What a name means."""

    endpoint: str
    target: str | None = None

    def bound(self, *, takes_components: bool) -> tuple[str | None, str | None]:
        """(target model, inference component): what the target is at its endpoint."""
        return (None, self.target) if takes_components else (self.target, None)

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
    """Never raises: whose name it would be."""
    return name.partition(":")[0]

"""Whether a request asks for a version of a target model that is not the one which is loaded."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.errors import CallerError
from penstock.wire.frames import decode_request_meta


def wrong_version(meta: bytes, described: dict[str, Any]) -> CallerError | None:
    """`described`: of the loaded model. None for requests that name no version, or its own."""
    if b"version" not in meta:
        return None
    parameters = decode_request_meta(meta).parameters
    asked = orjson.loads(parameters).get("version") if parameters else None
    versions = [str(one) for one in described.get("versions") or ("1",)]
    if not asked or asked in versions:
        return None
    return CallerError(
        "model-version-not-found",
        f"The target model has no version {str(asked)[:64]}; it has {', '.join(versions)}",
        hint="Leave the version out.",
        status=404,
    )

"""NextToken: where the last page ended, tied to the request that it belongs to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import orjson

from penstock.wire.aws.errors import AwsError


def encode_token(params: dict[str, Any], place: list[Any]) -> str:
    """A token that continues the request `params` at `place`."""
    return base64.urlsafe_b64encode(orjson.dumps([_digest(params), place])).decode()


def decode_token(
    params: dict[str, Any], *, code: str, fits: Callable[[Any], bool]
) -> list[Any] | None:
    """The place to go on from; None on the first page.

    A token is not a secret: `fits` says whether what it holds is a place at all.

    Raises:
        AwsError: `code`: not a token of ours, or of another request.
    """
    token = params.get("NextToken")
    if not token:
        return None
    try:
        digest, place = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError):
        digest, place = "", None
    if digest != _digest(params) or not fits(place):
        raise AwsError(code, "The NextToken is invalid, or belongs to another request.")
    return list(place)


def _digest(params: dict[str, Any]) -> str:
    same = {name: value for name, value in params.items() if name != "NextToken"}
    data = orjson.dumps(same, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=9).hexdigest()

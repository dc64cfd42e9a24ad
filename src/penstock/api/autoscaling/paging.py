"""Pages of the Describe calls: a token says behind which entry the next page begins."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from penstock.api.autoscaling.context import invalid
from penstock.wire.aws.errors import AwsError

T = TypeVar("T")


def size_of(params: dict[str, Any], most: int) -> int:
    """MaxResults. Raises ValidationException."""
    size = params.get("MaxResults")
    if size is None:
        return most
    if not 1 <= size <= most:
        raise invalid(f"MaxResults must be between 1 and {most}")
    return int(size)


def page(
    params: dict[str, Any], items: Sequence[T], key: Callable[[T], str], most: int
) -> tuple[list[T], dict[str, Any]]:
    """The page's items, and the NextToken that goes with them. Items come in order of `key`.

    Raises ValidationException, InvalidNextTokenException.
    """
    size = size_of(params, most)
    after = place_of(params)
    found = [one for one in items if after is None or key(one) > after]
    rest = {"NextToken": token_of(params, key(found[size - 1]))} if len(found) > size else {}
    return found[:size], rest


def token_of(params: dict[str, Any], place: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([_digest(params), place])).decode()


def place_of(params: dict[str, Any]) -> str | None:
    """None on the first page. Raises InvalidNextTokenException."""
    token = params.get("NextToken")
    if not token:
        return None
    try:
        digest, place = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError):
        digest, place = "", None
    if digest != _digest(params) or not isinstance(place, str):
        raise AwsError(
            "InvalidNextTokenException", "The NextToken is invalid, or belongs to another request."
        )
    return place


def _digest(params: dict[str, Any]) -> str:
    same = {
        name: value for name, value in params.items() if name not in ("NextToken", "MaxResults")
    }
    data = orjson.dumps(same, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=9).hexdigest()

"""What a scorer is asked about two answers to one request, and what its answer says.

A scorer is an endpoint of the user's that judges pairs of answers (`AgreementSpec.scorer`). It gets
one JSON object for each pair:

    {"request": ..., "old": ..., "new": ...}

Each member is the body as it came where that is JSON, else its text where it is UTF-8, else
{"base64": "..."}. It answers whether the two agree: `true`, `false`, or a number from 0 to 1, which
says yes from a half on; or an object that has one of these as `agree` or as `score`. It may stand
in a list of its own, or in two, as answers of classifiers do.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from penstock.errors import ModelError

#: Bytes. A longer answer says more than whether two others agree.
SAID_MAX: Final = 64 << 10
_AGREES_FROM: Final = 0.5
_LISTS_MAX: Final = 2  #: around the answer: a batch of one, and one output for each
_MEMBERS: Final = ("agree", "score")  #: in the order in which they count
_SHOWN_MAX: Final = 100  #: bytes of an answer in an error


def question(request: bytes, old: bytes, new: bytes) -> bytes:
    """The body of the request to a scorer."""
    return b'{"request": %b, "old": %b, "new": %b}' % (
        _member(request), _member(old), _member(new),
    )  # fmt: skip


def scored(answer: bytes) -> bool:
    """Whether two answers agree, by a scorer's answer. Raises ModelError
    (`scorer-answer-invalid`)."""
    if len(answer) > SAID_MAX:
        raise answer_invalid(f"{len(answer)} bytes")
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        raise answer_invalid(_shown(answer)) from None
    for _ in range(_LISTS_MAX):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
    if isinstance(value, dict):
        value = next((value[name] for name in _MEMBERS if name in value), None)
    if isinstance(value, int | float) and 0 <= value <= 1:  # a bool is 0 or 1
        return value >= _AGREES_FROM
    raise answer_invalid(_shown(answer))


def answer_invalid(what: str) -> ModelError:
    """The error of an answer that says nothing of a pair."""
    return ModelError(
        "scorer-answer-invalid",
        f"the scorer answered {what}, which does not say whether two answers agree",
        hint="Let it answer JSON: true, false, or a number from 0 to 1 (0.5 and more agree), or an"
        ' object with one of these as "agree" or "score".',
    )


def _member(body: bytes) -> bytes:
    """The JSON value for a body."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b'{"base64": "%b"}' % base64.b64encode(body)
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False).encode()
    return body


def _refused(constant: str) -> Any:
    """NaN and Infinity are Python's own: other readers of JSON take a body with them for broken."""
    raise ValueError(constant)


def _shown(answer: bytes) -> str:
    return repr(answer[:_SHOWN_MAX].decode("utf-8", "replace"))

"""An `AgreementSpec` as people write it: words parted by spaces, in any order, each with a default.

scores | classes | ranking | text | exact    how answers are compared [scores]
scorer=NAME        instead of these: the endpoint that judges each pair of answers
tolerance=0.01     scores: of two numbers, absolute or relative; text: part of the tokens
top=10             ranking: places that count
disagree=0.01      share of the pairs of answers that may disagree
errors=0.01        share of the requests that the new generation alone may fail
slower=1.5         times what the old generation takes; 0: time does not count
mirror=1           share of the requests that are copied
confidence=0.99    of each decision
"""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.rollout.agreement import KINDS, AgreementSpec
from penstock.errors import CallerError

#: Word -> (field, least, most); the bounds of tests are open, as a share of 0 or 1 can't be tested.
_NUMBERS: Final[dict[str, tuple[str, float, float]]] = {
    "tolerance": ("tolerance", 0.0, 1.0),
    "top": ("top", 1, 1000),
    "disagree": ("disagree_max", 0.0001, 0.5),
    "errors": ("errors_max", 0.0001, 0.5),
    "slower": ("slower_max", 0.0, 100.0),
    "mirror": ("mirror", 0.001, 1.0),
    "confidence": ("confidence", 0.5, 0.999999),
}
_SCORER: Final = "scorer"
#: Fields that say how answers are compared: a scorer has its own ways.
_OF_COMPARISON: Final = ("kind", "tolerance", "top")


def agreement_of(text: str) -> AgreementSpec:
    """What the words say. Raises CallerError (`agreement-invalid`)."""
    found: dict[str, Any] = {}
    given: dict[str, str] = {}  #: field -> its word
    for word in text.split():
        name, equals, value = word.partition("=")
        read: str | float
        if not equals and name in KINDS:
            field, read = "kind", name
        elif equals and name == _SCORER:
            if not ENDPOINT_NAME.fullmatch(value):
                raise _invalid(f"{word!r} has to name an endpoint")
            field, read = _SCORER, value
        elif equals and name in _NUMBERS:
            field, least, most = _NUMBERS[name]
            read = _number(word, value, least, most)
            read = int(read) if field == "top" else read
        else:
            words = ", ".join((*KINDS, *(f"{each}=" for each in (_SCORER, *_NUMBERS))))
            raise _invalid(f"{word!r} is none of its words: {words}")
        if field in found:
            raise _invalid(f"{word!r} is there twice")
        found[field] = read
        given[field] = word
    if _SCORER in found:
        for field in _OF_COMPARISON:
            if field in found:
                raise _invalid(
                    f"{given[field]!r} has no meaning beside {given[_SCORER]!r}: the scorer alone"
                    " says whether two answers agree"
                )
    return AgreementSpec(**found)


def _number(word: str, value: str, least: float, most: float) -> float:
    try:
        read = float(value)
    except ValueError:
        read = math.nan
    if not least <= read <= most:
        raise _invalid(f"{word!r} has to be a number from {least:g} to {most:g}")
    return read


def _invalid(cause: str) -> CallerError:
    return CallerError(
        "agreement-invalid", cause, hint="Write words like 'scores tolerance=0.01 disagree=0.01'."
    )

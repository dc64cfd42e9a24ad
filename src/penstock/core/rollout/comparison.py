"""Whether two answers to one request agree.

    exact     the same bytes
    scores    the same JSON but for numbers, which differ by at most the tolerance, absolute or
              relative to the larger one
    classes   the same class: of scores the place of the largest, of objects with a label and a
              score (or `label` alone) the label of the best; scores themselves may differ
    ranking   the same order of the first places: of scores their places from the largest down, of
              objects their labels, ids or indexes
    text      the same tokens (words and signs), but for a part: the edit distance over the longer
              one is at most the tolerance

JSON is looked through to its innermost lists of numbers, or of objects with scores, each of which
must agree. What is no JSON has to be the same bytes, or for `text` the same tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, Final

from penstock.core.rollout.agreement import AgreementSpec

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
#: Members that name a thing, and those that say how good it is, in the order in which they count.
_NAMES: Final = ("label", "class", "id", "index", "document", "text", "name")
_LABELS: Final = _NAMES[:2]  #: those that are an answer by themselves
_SCORES: Final = ("score", "probability", "relevance_score", "logit", "confidence")
#: Members that differ from answer to answer of the same model.
OF_THE_CALL: Final = frozenset({"id", "created", "created_at", "request_id", "system_fingerprint"})
#: Longer texts are compared by their beginnings: the time is the product of both lengths.
TOKENS_MAX: Final = 512
_NUMBERS: Final = (int, float)


def agree(old: bytes, new: bytes, spec: AgreementSpec) -> bool:
    """Whether an answer of the new generation agrees with the old one's."""
    if old == new:
        return True
    if spec.kind == "exact":
        return False
    try:
        values = json.loads(old), json.loads(new)
    except (ValueError, RecursionError):
        return spec.kind == "text" and _texts(_decoded(old), _decoded(new), spec.tolerance)
    try:
        return _of_kind(*values, spec)
    except RecursionError:  # deeper than any answer: only the same bytes are the same
        return False


def _of_kind(old: Any, new: Any, spec: AgreementSpec) -> bool:
    if spec.kind == "text":
        return _texts(" ".join(_strings(old)), " ".join(_strings(new)), spec.tolerance)
    if spec.kind == "scores":
        return _same(old, new, spec.tolerance)
    places = 1 if spec.kind == "classes" else spec.top
    found = [list(_orders(value, places)) for value in (old, new)]
    if not found[0] and not found[1]:
        return _same(old, new, 0.0)
    return found[0] == found[1]


def _same(old: Any, new: Any, tolerance: float) -> bool:
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, _NUMBERS) and isinstance(new, _NUMBERS):
        size = max(1.0, abs(old), abs(new))
        return old == new or abs(old - new) <= tolerance * size or (isnan(old) and isnan(new))
    if isinstance(old, list) and isinstance(new, list):
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(_same(a, b, tolerance) for a, b in pairs)
    if isinstance(old, dict) and isinstance(new, dict):
        names = old.keys() - OF_THE_CALL
        return names == new.keys() - OF_THE_CALL and all(
            _same(old[name], new[name], tolerance) for name in names
        )
    return bool(old == new)


def _orders(value: Any, places: int) -> Iterator[list[Any]]:
    """Of each innermost list of scores: what is on its first places."""
    if isinstance(value, dict):
        label = _name(value, _LABELS)
        if label is not None and not _nested(value):
            yield [label]
            return
        for member, each in value.items():
            if member not in OF_THE_CALL and member not in ("shape", "usage"):
                yield from _orders(each, places)
    elif isinstance(value, list) and value:
        if all(_is_number(each) for each in value):
            yield _best(value, range(len(value)), places)
        elif all(isinstance(each, dict) and _score(each) is not None for each in value):
            scores = [_score(each) for each in value]
            names = [_name(each, default=place) for place, each in enumerate(value)]
            yield _best(scores, names, places)
        elif all(isinstance(each, str) for each in value):
            yield list(value[:places])
        else:
            for each in value:
                yield from _orders(each, places)


def _best(scores: Sequence[Any], names: Sequence[Any], places: int) -> list[Any]:
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    return [names[at] for at in order[:places]]


def _score(value: dict[str, Any]) -> Any:
    return next((value[name] for name in _SCORES if _is_number(value.get(name))), None)


def _name(value: dict[str, Any], names: Sequence[str] = _NAMES, default: Any = None) -> Any:
    found = (value[name] for name in names if isinstance(value.get(name), str | int))
    return next(found, default)


def _nested(value: dict[str, Any]) -> bool:
    return any(isinstance(each, dict | list) for each in value.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in OF_THE_CALL:
                yield from _strings(each)


def _texts(old: str, new: str, tolerance: float) -> bool:
    tokens = [_TOKEN.findall(each)[:TOKENS_MAX] for each in (old, new)]
    longer = max(map(len, tokens))
    return not longer or _distance(*tokens) <= tolerance * longer


def _distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The least number of tokens to insert, delete or replace (Levenshtein, 1966)."""
    row = list(range(len(other) + 1))
    for number, token in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, beside in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (token != beside)),
            )
    return row[-1]


def _decoded(body: bytes) -> str:
    return body.decode("utf-8", "replace")

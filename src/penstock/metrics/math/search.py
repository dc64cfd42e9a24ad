"""SEARCH of metric math: which metrics a text like `{AWS/SageMaker,EndpointName} Inv` finds.

    search := schema? or
    or     := and ("OR" and)*
    and    := not ("AND"? not)*
    not    := "NOT" not | "(" or ")" | term
    term   := word | key "=" word | key "=" "(" word ("OR" word)* ")"
    key    := Namespace, MetricName or the name of a dimension

`{Namespace,Dimension,...}` admits metrics with just these dimensions. Words in double quotes match
a whole value, others a part of it; case does not matter. After CloudWatch's "search expression
syntax".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.errors import CallerError
from penstock.metrics.math.expression import DEPTH_MAX, invalid
from penstock.metrics.series.series import MetricName

Matches = Callable[[MetricName], bool]

_SCHEMA: Final = re.compile(r"\s*\{([^{}]*)\}")
_TOKEN: Final = re.compile(r'\s*("[^"]*"|[()=]|[^\s()="]+)')


def parse_search(text: str) -> Matches:
    """A predicate for metrics.

    Raises:
        CallerError: `expression-invalid`.
    """
    schema = _SCHEMA.match(text)
    admitted = _schema(schema[1]) if schema else None
    tokens = _tokens(text[schema.end() :] if schema else text)
    terms = _SearchParser(tokens).whole() if tokens else None
    if admitted is None and terms is None:
        raise invalid("the text of SEARCH is empty")
    return lambda metric: (
        (admitted is None or admitted(metric)) and (terms is None or terms(metric))
    )


def _schema(text: str) -> Matches:
    namespace, *dimensions = [part.strip().strip('"') for part in text.split(",")]
    wanted = sorted(dimensions)
    return lambda metric: (
        metric.namespace == namespace and sorted(name for name, _ in metric.dimensions) == wanted
    )


def _tokens(text: str) -> list[str]:
    tokens, place, stripped = [], 0, text.rstrip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise _wrong(stripped[place:])
        tokens.append(match[1])
        place = match.end()
    return tokens


class _SearchParser:
    """Recursive descent; one method per rule of the module's grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> Matches:
        found = self._either()
        if self._next < len(self._tokens):
            raise _wrong(self._tokens[self._next])
        return found

    def _either(self) -> Matches:
        options = [self._all()]
        while self._take("OR"):
            options.append(self._all())
        return lambda metric: any(option(metric) for option in options)

    def _all(self) -> Matches:
        parts = [self._not()]
        while self._peek() not in ("", ")", "OR"):
            self._take("AND")
            parts.append(self._not())
        return lambda metric: all(part(metric) for part in parts)

    def _not(self) -> Matches:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise invalid(f"the text of SEARCH is nested deeper than {DEPTH_MAX}")
        found = self._negated_or_grouped()
        self._depth -= 1
        return found

    def _negated_or_grouped(self) -> Matches:
        if self._take("NOT"):
            denied = self._not()
            return lambda metric: not denied(metric)
        if self._take("("):
            found = self._either()
            if not self._take(")"):
                raise _wrong(self._peek())
            return found
        return self._term()

    def _term(self) -> Matches:
        word = self._word()
        if not self._take("="):
            accepts = _matcher(word)
            return lambda metric: any(accepts(value) for value in _values(metric))
        if self._take("("):  # EndpointName=(a OR b)
            accepted = [_matcher(self._word())]
            while self._take("OR"):
                accepted.append(_matcher(self._word()))
            if not self._take(")"):
                raise _wrong(self._peek())
        else:
            accepted = [_matcher(self._word())]
        key = word.strip('"')
        return lambda metric: any(
            accepts(value) for value in _values_of(metric, key) for accepts in accepted
        )

    def _word(self) -> str:
        word = self._peek()
        if word in ("", "(", ")", "=", "AND", "OR", "NOT"):
            raise _wrong(word)
        self._next += 1
        return word

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        found = self._peek() == token
        self._next += found
        return found


def _matcher(word: str) -> Callable[[str], bool]:
    if word.startswith('"'):
        whole = word.strip('"').lower()
        return lambda value: value.lower() == whole
    part = word.lower()
    return lambda value: part in value.lower()


def _values(metric: MetricName) -> list[str]:
    found = [metric.namespace, metric.name]
    for name, value in metric.dimensions:
        found += (name, value)
    return found


def _values_of(metric: MetricName, key: str) -> list[str]:
    if key.lower() == "namespace":
        return [metric.namespace]
    if key.lower() == "metricname":
        return [metric.name]
    return [value for name, value in metric.dimensions if name.lower() == key.lower()]


def _wrong(found: str) -> CallerError:
    return invalid(f"the text of SEARCH has an unexpected {found[:20] or 'end'!r}")

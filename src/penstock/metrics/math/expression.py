"""Metric math as text, read into a tree: a small recursive parser, nothing is ever executed.

The language is CloudWatch's ("Using metric math" in its user guide):

    expression := and ("OR" and)*                 also `||`
    and        := comparison ("AND" comparison)*  also `&&`
    comparison := sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)?
    sum        := product (("+" | "-") product)*
    product    := power (("*" | "/") power)*
    power      := unary ("^" unary)*              from the right
    unary      := "-"* atom
    atom       := number | 'text' | name | name "(" items ")" | "[" items "]" | "(" expression ")"
    items      := (expression ("," expression)*)?

Depth is bounded, so that no input exhausts the stack. Operations in a row (`m1 + m2 + …`) are no
depth: they make a tree that is deep on its left only, which whoever walks it takes step by step.
What the names mean is `evaluate.py`'s part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.errors import CallerError

LENGTH_MAX: Final = 2048  #: CloudWatch's limit for an expression, in characters
DEPTH_MAX: Final = 40

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<text>'[^']*'|"[^"]*")
      | (?P<sign><=|>=|==|!=|&&|\|\||[-+*/^()<>,\[\]])
    )""",
    re.VERBOSE | re.ASCII,
)
_WORDS: Final = {"AND": "&&", "OR": "||"}
_COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Name:
    """A query's id, or a keyword such as REPEAT."""

    value: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    function: str  #: upper case
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListExpression:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    sign: str
    left: Node
    right: Node


Node = Number | Text | Name | FunctionCall | ListExpression | Negation | Binary


def parse_expression(text: str) -> Node:
    """The tree of an expression.

    Raises:
        CallerError: `expression-invalid`, with the place.
    """
    if len(text) > LENGTH_MAX:
        raise invalid(f"it is longer than {LENGTH_MAX} characters")
    parser = _ExpressionParser(_tokens(text))
    node = parser.expression()
    parser.expect("end", "")
    return node


def calls_in(node: Node, function: str) -> Iterator[FunctionCall]:
    """Every call of `function` in the tree, in no order."""
    for part in nodes_of(node):
        if isinstance(part, FunctionCall) and part.function == function:
            yield part


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it, in no order."""
    nodes = [node]  # a loop and no recursion: a chain of a thousand additions is a tree as deep
    while nodes:
        node = nodes.pop()
        yield node
        match node:
            case FunctionCall(_, parts) | ListExpression(parts):
                nodes += parts
            case Negation(operand):
                nodes.append(operand)
            case Binary(_, left, right):
                nodes += (left, right)


def invalid(reason: str) -> CallerError:
    """The error for an expression that can't be parsed or computed."""
    return CallerError(
        "expression-invalid",
        f"Invalid metrics expression: {reason}.",
        hint="Use + - * / ^, comparisons, AND, OR, parentheses and the documented functions.",
    )


_Token = tuple[str, str, int]  # kind, text, place


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    stripped = text.rstrip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise invalid(f"unexpected {stripped[place : place + 10]!r} at {place}")
        kind = str(match.lastgroup)
        word = match[kind]
        if kind == "name" and word.upper() in _WORDS:
            kind, word = "sign", _WORDS[word.upper()]
        tokens.append((kind, word, match.start(kind)))
        place = match.end()
    tokens.append(("end", "", len(text)))
    return tokens


class _ExpressionParser:
    """Recursive descent over tokens; one method per rule of the module's grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def expression(self) -> Node:
        self._deeper()
        node = self._conjunction()
        while self._take("||"):
            node = Binary("||", node, self._conjunction())
        self._depth -= 1
        return node

    def expect(self, kind: str, word: str) -> None:
        found_kind, found, place = self._tokens[self._next]
        if (found_kind, found) != (kind, word):
            wanted = repr(word) if word else "the end"
            raise invalid(f"expected {wanted} at {place}, found {found or 'the end'!r}")
        self._next += 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise invalid(f"it is nested deeper than {DEPTH_MAX}")

    def _conjunction(self) -> Node:
        node = self._comparison()
        while self._take("&&"):
            node = Binary("&&", node, self._comparison())
        return node

    def _comparison(self) -> Node:
        node = self._sum()
        sign = self._take(*_COMPARISONS)
        return Binary(sign, node, self._sum()) if sign else node

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = Binary(sign, node, self._product())
        return node

    def _product(self) -> Node:
        node = self._power()
        while sign := self._take("*", "/"):
            node = Binary(sign, node, self._power())
        return node

    def _power(self) -> Node:
        bases = [self._unary()]
        while self._take("^"):
            self._deeper()
            bases.append(self._unary())
        self._depth -= len(bases) - 1
        node = bases.pop()
        while bases:  # 2 ^ 3 ^ 2 is 2 ^ 9
            node = Binary("^", bases.pop(), node)
        return node

    def _unary(self) -> Node:
        minuses = 0
        while self._take("-"):
            minuses += 1
        node = self._atom()
        return Negation(node) if minuses % 2 else node

    def _atom(self) -> Node:
        kind, word, place = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            number = float(word)
            if math.isinf(number):
                raise invalid(f"the number at {place} is too large")
            return Number(number)
        if kind == "text":
            return Text(word[1:-1])
        if kind == "name":
            return FunctionCall(word.upper(), self._items(")")) if self._take("(") else Name(word)
        if word == "[":
            return ListExpression(self._items("]"))
        if word == "(":
            node = self.expression()
            self.expect("sign", ")")
            return node
        raise invalid(f"unexpected {word or 'end'!r} at {place}")

    def _items(self, closing: str) -> tuple[Node, ...]:
        if self._take(closing):
            return ()
        items = [self.expression()]
        while self._take(","):
            items.append(self.expression())
        self.expect("sign", closing)
        return tuple(items)

    def _take(self, *signs: str) -> str:
        kind, word, _ = self._tokens[self._next]
        if kind == "sign" and word in signs:
            self._next += 1
            return word
        return ""

"""Texts in JSON strings as rules of a grammar: regular expressions, formats, ranges of integers.

The rules are in the EBNF of GBNF, which xgrammar reads. A regular expression is parsed by Python's
own parser, so what Python does not know is refused; so is what a grammar of characters can't say
(look around, references back).
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

#: Python's own parser of expressions, by its name up to 3.10 and since.
_OLDER: Final = sys.version_info < (3, 11)
codes: Any = importlib.import_module("sre_constants" if _OLDER else "re._constants")
parser: Any = importlib.import_module("sre_parse" if _OLDER else "re._parser")


#: The rule for one character of a JSON string.
CHAR: Final = "char"
#: A repetition without an end in the expression has none here either.
_MAXREPEAT: Final = int(codes.MAXREPEAT)
#: A higher count would only make the grammar large.
REPEAT_MAX: Final = 10_000
_CLASSES: Final = {
    "CATEGORY_DIGIT": [(48, 57)],
    "CATEGORY_WORD": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "CATEGORY_SPACE": [(9, 13), (32, 32)],
}
_LAST_CHARACTER: Final = 0x10FFFF
#: Halves of pairs, which no text in UTF-8 has.
_SURROGATES: Final = (0xD800, 0xDFFF)
#: Characters of one length in UTF-8, and how many of them have one first byte.
_LENGTHS: Final = (
    (0, 0x7F, 0x80), (0x80, 0x7FF, 0x40), (0x800, 0xFFFF, 0x1000), (0x10000, 0x10FFFF, 0x40000),
)  # fmt: skip
#: Characters that a JSON string has in escaped form only.
_ESCAPED: Final = (*range(32), 34, 92)

_DATE: Final = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME: Final = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME: Final = r"[A-Za-z0-9_%+-]{1,32}"
_BYTE: Final = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
#: Formats of strings, each narrower than or equal to its standard (RFC 3339, 4122, 5321, 3986).
FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": r"P(\d{1,9}D(T\d{1,9}H)?|T\d{1,9}[HMS]|\d{1,9}[WMY])",
    "email": rf"{_NAME}(\.{_NAME}){{0,2}}@({_HOST}\.){{1,4}}[A-Za-z]{{2,12}}",
    "hostname": rf"{_HOST}(\.{_HOST}){{0,6}}",
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
    "ipv6": r"[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "uri": r"https?://[A-Za-z0-9.-]{1,253}(:\d{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@%?/#-]*)?",
}  # fmt: skip


class PatternRefused(ValueError):
    """The expression has no grammar; the message completes "the pattern"."""


def literal(text: str) -> str:
    """A text of the grammar."""
    return json.dumps(text, ensure_ascii=False)


def pattern_rule(pattern: str) -> str:
    """The inside of a JSON string in which `pattern` is found. Raises PatternRefused."""
    try:
        tree = list(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternRefused(f"can't be read: {error}") from None
    begun = bool(tree) and tree[0] == (codes.AT, codes.AT_BEGINNING)
    inside = _sequence(tree[1:] if begun else tree, last=True)
    before = "" if begun else f"{CHAR}* "
    after = "" if _ends(tree) else f" {CHAR}*"
    return f"{before}{inside}{after}"


def _ends(tree: list[Any]) -> bool:
    """Whether the expression says where the text ends."""
    if not tree:
        return False
    kind, value = tree[-1]
    if kind is codes.AT:
        return value in (codes.AT_END, codes.AT_END_STRING)
    if kind is codes.BRANCH:
        ends = [_ends(list(each)) for each in value[1]]
        if any(ends) and not all(ends):
            raise PatternRefused("ends some of its alternatives with $ and not others")
        return all(ends)
    return kind is codes.SUBPATTERN and _ends(list(value[-1]))


def _sequence(tree: Iterable[Any], *, last: bool) -> str:
    """`last`: nothing follows, so it may say that the text ends here."""
    nodes = list(tree)
    parts = []
    for at, node in enumerate(nodes):
        parts.append(_node(*node, last=last and at == len(nodes) - 1))
    return " ".join(part for part in parts if part) or '""'


def _node(kind: Any, value: Any, *, last: bool) -> str:
    if kind is codes.LITERAL:
        return _ranges([(value, value)])
    if kind is codes.NOT_LITERAL:
        return _ranges(_others([(value, value)]))
    if kind is codes.ANY:
        return _ranges(_others([(10, 10)]))
    if kind is codes.IN:
        return _ranges(_set(value))
    if kind is codes.BRANCH:
        return "(" + " | ".join(_sequence(each, last=last) for each in value[1]) + ")"
    if kind is codes.SUBPATTERN:
        if value[1] or value[2]:
            raise PatternRefused("has flags")
        return "(" + _sequence(value[-1], last=last) + ")"
    if kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        low, high, repeated = value
        return _repeated(_sequence(repeated, last=False), int(low), int(high))
    if kind is codes.AT and last and value in (codes.AT_END, codes.AT_END_STRING):
        return ""
    raise PatternRefused(f"has {str(kind).lower()}, which no grammar can say")


def _repeated(rule: str, low: int, high: int) -> str:
    if low > REPEAT_MAX or REPEAT_MAX < high < _MAXREPEAT:
        raise PatternRefused(f"repeats more than {REPEAT_MAX} times")
    return f"({rule}){counted(low, None if high >= _MAXREPEAT else high)}"


def counted(low: int, high: int | None) -> str:
    """How often what is before it stands."""
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if short is not None:
        return short
    return f"{{{low},{'' if high is None else high}}}"


Range = tuple[int, int]


def _set(members: Iterable[Any]) -> list[Range]:
    found: list[Range] = []
    negated = False
    for kind, value in members:
        if kind is codes.NEGATE:
            negated = True
        elif kind is codes.LITERAL:
            found.append((value, value))
        elif kind is codes.RANGE:
            found.append(value)
        elif kind is codes.CATEGORY:
            name = str(value)
            plain = _CLASSES.get(name.replace("_NOT_", "_"))
            if plain is None:
                raise PatternRefused(f"has {name.lower()}, which no grammar can say")
            found += _others(plain) if "_NOT_" in name else plain
    return _others(found) if negated else found


def _others(ranges: list[Range]) -> list[Range]:
    """All characters but these."""
    found, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= _LAST_CHARACTER:
        found.append((at, _LAST_CHARACTER))
    return found


def _ranges(ranges: list[Range]) -> str:
    """One character of these ranges, as a JSON string has it."""
    escaped = [code for code in _ESCAPED if any(low <= code <= high for low, high in ranges)]
    plain = _common(ranges, _others([*((at, at) for at in _ESCAPED), _SURROGATES]))
    choices = []
    blocks = [block for low, high in plain for block in _whole_blocks(low, high)]
    if blocks:
        choices.append("[" + "".join(_span(low, high) for low, high in blocks) + "]")
    choices += [literal(json.dumps(chr(code))[1:-1]) for code in escaped]
    if not choices:
        raise PatternRefused("has a set without characters")
    return choices[0] if len(choices) == 1 else "(" + " | ".join(choices) + ")"


def _common(one: list[Range], other: list[Range]) -> list[Range]:
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return [(low, high) for low, high in pairs if low <= high]


def _whole_blocks(low: int, high: int) -> list[Range]:
    """The range in parts that begin and end with blocks of one first byte in UTF-8.

    xgrammar lets a part that ends within another block go on with any byte, and from then on it
    holds the answer to nothing.
    """
    found = []
    for begin, end, size in _LENGTHS:
        first, last = max(low, begin), min(high, end)
        while first <= last:
            stop = min(last, first | (size - 1))
            if first % size == 0 and stop < last:  # whole blocks together
                stop = max(stop, (last + 1) // size * size - 1)
            found.append((first, stop))
            first = stop + 1
    return found


def _span(low: int, high: int) -> str:
    return _code(low) if low == high else f"{_code(low)}-{_code(high)}"


def _code(code: int) -> str:
    char = chr(code)
    if char.isascii() and char.isalnum():
        return char
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


#: An integer of more digits is no number that JSON's readers agree on.
DIGITS_MAX: Final = 15


def integer_rule(low: int | None, high: int | None) -> str:
    """Integers from `low` to `high`; None: as far as `DIGITS_MAX` digits reach."""
    most = 10**DIGITS_MAX - 1
    low, high = max(-most, -most if low is None else low), min(most, most if high is None else high)
    choices = []
    if low < 0:
        choices += [f'"-" {each}' for each in _naturals(max(1, -high), -low)]
    if high >= 0:
        choices += _naturals(max(0, low), high)
    if not choices or low > high:
        raise PatternRefused(f"leaves no integer from {low} to {high}")
    return "(" + " | ".join(choices) + ")"


def _naturals(low: int, high: int) -> list[str]:
    """Numbers of equal length together, and those that are not 0 without a 0 before them."""
    found = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = 0 if length == 1 else 10 ** (length - 1)
        first, last = max(low, least), min(high, 10**length - 1)
        found += _digits(str(first), str(last))
    return found


def _digits(low: str, high: str) -> list[str]:
    """Numbers with as many digits as both ends have."""
    if not low:
        return ['""']
    rest = len(low) - 1
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        return [f"[{low[0]}-{high[0]}]" + (f" [0-9]{{{rest},{rest}}}" if rest else "")]
    if low[0] == high[0]:
        return [f'"{low[0]}" {each}' for each in _digits(low[1:], high[1:])]
    lowest = [f'"{low[0]}" {each}' for each in _digits(low[1:], "9" * rest)]
    highest = [f'"{high[0]}" {each}' for each in _digits("0" * rest, high[1:])]
    between = []
    if int(low[0]) + 1 <= int(high[0]) - 1:
        between = _digits(f"{int(low[0]) + 1}{'0' * rest}", f"{int(high[0]) - 1}{'9' * rest}")
    return [*lowest, *between, *highest]


def char_rule() -> str:
    """Any character of a JSON string, as it stands or escaped."""
    plain = _ranges(_others([*((at, at) for at in _ESCAPED)]))
    return rf'{plain} | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{{4,4}})'

"""Says of a regular expression whether matching it can take more than linear time.

Glushkov's automaton of the expression is built from Python's own parse tree. A repetition is where
time is lost: a text that can go on within it in two ways, or go on and leave it, has very many ways
to be read, and a matcher that fails tries them all. So within a repetition every character must
decide what comes next ("one-unambiguous" in Brüggemann-Klein and Wood, 1998). A choice that is made
once costs once. What is not of that kind is refused, though some of it would be fast: telling which
needs a proof, not a test.
"""

from __future__ import annotations

import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from dataclasses import dataclass, field
from typing import Any

#: Characters are told apart up to here; one number beyond stands for all others.
CODES = 0x180
BEYOND = CODES
ALL = frozenset(range(CODES + 1))
#: From so many times on, a repetition with a bound counts as one without.
MANY = 100


@dataclass(eq=False, slots=True)
class Place:
    """One character of the expression."""

    characters: frozenset[int]
    repeated: bool = False  #: within a repetition without a bound
    follow: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    nullable: bool
    first: list[Place]
    last: list[Place]


class Automaton:
    """Places and what follows them. The two verdicts are `why_not...`."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._flags = pattern.flags
        self._bytes = isinstance(pattern.pattern, bytes)
        self.places: list[Place] = []
        self.unread: list[str] = []  #: constructs that are not understood: never linear
        tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self.whole = self._sequence(list(tree), repeated=False)

    def why_not(self) -> str:
        """Empty for an expression that takes linear time from one starting point."""
        if self.unread:
            return f"{self.unread[0]} can't be judged"
        for place in self.places:
            if not place.repeated:
                continue
            for at, one in enumerate(place.follow):
                for other in place.follow[at + 1 :]:
                    both = one.characters & other.characters
                    if both and (_leads(one, place) or _leads(other, place)):
                        return f"within a repetition there are two ways to read {_shown(min(both))}"
        return ""

    def why_not_searched(self) -> str:
        """Empty if it may also start at every character: no repetition runs through a start."""
        reason = self.why_not()
        if reason:
            return reason
        inside = [place for place in self.places if place.repeated]
        if self.whole.nullable and inside:
            return "it matches nothing too, and is tried at each character"
        for start in self.whole.first:
            for place in inside:
                ends = place is start and start in self.whole.last  # it can't fail once begun
                if start.characters & place.characters and not ends:
                    return "what it begins with can also stand within a repetition"
        return ""

    def _sequence(self, items: list[tuple[Any, Any]], *, repeated: bool) -> Part:
        whole = Part(True, [], [])
        for item in items:
            part = self._part(item, repeated=repeated)
            for place in whole.last:
                _add(place.follow, part.first)
            whole = Part(
                whole.nullable and part.nullable,
                whole.first + part.first if whole.nullable else whole.first,
                whole.last + part.last if part.nullable else part.last,
            )
        return whole

    def _part(self, item: tuple[Any, Any], *, repeated: bool) -> Part:
        kind, value = item
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            place = Place(self._characters(kind, value), repeated)
            self.places.append(place)
            return Part(False, [place], [place])
        if kind is sre.AT or _looks_back_one(kind, value):
            return Part(True, [], [])
        if kind is sre.SUBPATTERN:
            return self._sequence(list(value[3]), repeated=repeated)
        if kind is sre.BRANCH:
            parts = [self._sequence(list(one), repeated=repeated) for one in value[1]]
            if sum(part.nullable for part in parts) > 1:
                self.unread.append("a choice of nothing and nothing")
            return Part(
                any(part.nullable for part in parts),
                [place for part in parts for place in part.first],
                [place for part in parts for place in part.last],
            )
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, body = value
            part = self._sequence(list(body), repeated=repeated or most >= MANY)
            if most > 1:
                for place in part.last:
                    if any(after in place.follow for after in part.first):
                        self.unread.append("a repetition of a repetition")
                    _add(place.follow, part.first)
            return Part(part.nullable or least == 0, part.first, part.last)
        self.unread.append(str(kind))
        return Part(True, [], [])

    def _characters(self, kind: Any, value: Any) -> frozenset[int]:
        if kind is sre.ANY:
            return ALL if self._flags & re.DOTALL else ALL - {10}
        if kind is sre.LITERAL:
            return self._cased(frozenset({min(value, BEYOND)}))
        if kind is sre.NOT_LITERAL:
            return ALL - ({value} if value < BEYOND else set())
        members: set[int] = set()
        negated = False
        for name, content in value:
            if name is sre.NEGATE:
                negated = True
            elif name is sre.LITERAL:
                members.add(min(content, BEYOND))
            elif name is sre.RANGE:
                low, high = content
                members |= set(range(min(low, BEYOND), min(high, BEYOND) + 1))
            else:
                members |= self._category(content)
        cased = self._cased(frozenset(members))
        return ALL - cased if negated else cased

    def _category(self, name: Any) -> set[int]:
        classes = {"SPACE": r"\s", "DIGIT": r"\d", "WORD": r"\w"}
        kind = str(name).removeprefix("CATEGORY_").removeprefix("NOT_")
        flags = re.ASCII if self._flags & re.ASCII or self._bytes else 0
        tester = re.compile(classes[kind], flags)
        members = {code for code in range(CODES) if tester.match(chr(code))}
        if not flags:
            members.add(BEYOND)
        return set(ALL) - (members - {BEYOND}) if "NOT_" in str(name) else members

    def _cased(self, members: frozenset[int]) -> frozenset[int]:
        if not self._flags & re.IGNORECASE:
            return members
        both = set(members)
        for code in members - {BEYOND}:
            for text in (chr(code).lower(), chr(code).upper()):
                both.add(min(ord(text[0]), BEYOND))
        return frozenset(both)


def _looks_back_one(kind: Any, value: Any) -> bool:
    """Reads one character that was read before: costs one step."""
    return kind in (sre.ASSERT, sre.ASSERT_NOT) and value[0] < 0 and len(value[1]) == 1


def _leads(start: Place, goal: Place) -> bool:
    """Whether `goal` can come after `start`, or is it."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        place = waiting.pop()
        if place is goal:
            return True
        for after in place.follow:
            if id(after) not in seen:
                seen.add(id(after))
                waiting.append(after)
    return False


def _add(follow: list[Place], places: list[Place]) -> None:
    follow += [place for place in places if place not in follow]


def _shown(code: int) -> str:
    return "a character beyond Latin" if code == BEYOND else repr(chr(code))

"""Who goes next of those that wait: literal lines and turns."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.waiting_lines import BLOCKS, GONE, STAYS, WaitingLines

Lines = WaitingLines[str, str]


def standing(*requests: tuple[str, str], ahead: Iterable[tuple[str, str]] = ()) -> Lines:
    """Requests by name and line, in the order in which they came; then those ahead."""
    lines = Lines()
    for request, line in requests:
        lines.add(request, line)
    for request, line in ahead:
        lines.add(request, line, ahead=True)
    return lines


def looked_at(lines: Lines, *, stay: str = "", block: str = "") -> list[str]:
    """Those that had a turn. All but those named go."""
    turns: list[str] = []

    def turn(ticket: int, request: str) -> str:
        turns.append(request)
        if request in stay:
            return STAYS
        if request in block:
            return BLOCKS
        assert lines.remove(ticket)
        return GONE

    lines.look(turn)
    lines.check_invariants()
    return turns


def test_the_one_that_waited_longest_goes_first_whichever_line_it_stands_in() -> None:
    lines = standing(("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))
    assert looked_at(lines) == ["a", "b", "c", "d"]
    assert (len(lines), list(lines.lines())) == (0, [])


def test_nobody_behind_one_that_finds_no_place_is_tried() -> None:
    lines = standing(("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))
    assert looked_at(lines, block="a") == ["a", "b", "d"]
    assert lines.all() == ["a", "c"]


def test_one_that_stays_is_in_nobody_s_way_and_keeps_its_place() -> None:
    lines = standing(("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"))
    assert looked_at(lines, stay="bc") == ["a", "b", "c", "d"]
    lines.add("e", "x")
    assert looked_at(lines, stay="b", block="e") == ["b", "c", "e"]
    assert list(lines.line("x")) == ["b", "e"]


def test_lines_ahead_go_before_all_others() -> None:
    lines = standing(("a", "x"), ("b", "y"), ahead=[("c", "y"), ("d", "x")])
    assert list(lines.lines()) == [("x", False), ("y", False), ("y", True), ("x", True)]
    assert list(lines.line("x")) == ["a"]
    assert looked_at(lines) == ["c", "d", "a", "b"]


def test_who_comes_during_a_look_has_its_turn_in_the_next_one() -> None:
    lines = standing(("a", "x"))

    def turn(ticket: int, request: str) -> str:
        assert lines.remove(ticket)
        assert request in "ab"
        if request == "a":
            lines.add("b", "x")
        return GONE

    lines.look(turn)
    assert lines.all() == ["b"]
    lines.look(turn)
    assert len(lines) == 0


def test_who_left_during_a_look_has_no_turn() -> None:
    lines = standing(("a", "x"), ("b", "y"), ("c", "x"))
    turns = []

    def turn(ticket: int, request: str) -> str:
        turns.append(request)
        for one in (1, 2, 3):
            lines.remove(one)
        return GONE

    lines.look(turn)
    assert turns == ["a"]


def test_who_left_a_line_where_one_stays_has_no_turn() -> None:
    lines = standing(("a", "x"), ("b", "x"), ("c", "x"))
    turns = []

    def turn(ticket: int, request: str) -> str:
        turns.append(request)
        lines.remove(2)
        return STAYS

    lines.look(turn)
    assert turns == ["a", "c"]


def test_a_request_is_found_and_removed_once() -> None:
    lines = standing(("a", "x"))
    assert lines.find(1) == "a"
    assert lines.remove(1)
    assert not lines.remove(1)

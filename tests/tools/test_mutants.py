"""`make mutants`: what is changed, which tests are run, and what is reported."""

from __future__ import annotations

from tools.mutants.changes import mutants_of
from tools.mutants.tests_of import ROOT, SOURCE, TESTS_OF, covered_modules


def test_every_module_whose_rules_are_held_has_its_tests_named() -> None:
    assert sorted(TESTS_OF) == covered_modules()


def test_every_test_that_is_named_is_there() -> None:
    named = {test for tests in TESTS_OF.values() for test in tests}
    assert [test for test in sorted(named) if not (ROOT / "tests" / test).is_file()] == []
    assert [module for module in TESTS_OF if not (SOURCE / module).is_file()] == []


def _changes(source: str) -> list[tuple[int, str, str]]:
    return [(one.line, one.words, one.change) for one in mutants_of(source)]


def test_what_a_guard_can_suffer() -> None:
    source = """\
def f(x, y=2):
    if x < 0 and not y:
        return 0
    return min(x, y)
"""
    head, guard = "if x < 0 and (not y): -> ", "if x <= 0 and (not y):"
    assert _changes(source) == [
        (1, "another constant", "def f(x, y=2): -> def f(x, y=3):"),
        (1, "another constant", "def f(x, y=2): -> def f(x, y=1):"),
        (2, "condition negated", head + "if not (x < 0 and (not y)):"),
        (2, "guard left out", head + "(left out)"),
        (2, "and/or swapped", head + "if x < 0 or not y:"),
        (2, "the comparison's edge", head + guard),
        (2, "`not` left out", head + "if x < 0 and (not not y):"),
        (2, "another constant", head + "if x < 1 and (not y):"),
        (3, "return left out", "return 0 -> (left out)"),
        (3, "another constant", "return 0 -> return 1"),
        (4, "min/max, any/all swapped", "return min(x, y) -> return max(x, y)"),
    ]


def test_a_change_is_compiled_without_a_trace_in_the_others() -> None:
    one, other = mutants_of("def f(x):\n    return x + 1\n")[:2]
    spaces: list[dict[str, object]] = [{}, {}, {}]
    exec(one.code("f.py"), spaces[0])
    exec(other.code("f.py"), spaces[1])
    exec(one.code("f.py"), spaces[2])
    values = [space["f"](10) for space in spaces]  # type: ignore[operator]
    assert values == [9, 10, 9]


def test_assertions_logs_and_texts_are_left_alone() -> None:
    source = '''\
"""A module of 1 or 2 things."""
def f(x):
    """At most 3."""
    assert x < 4
    log.info("%d", 5)
    raise ValueError(f"not {x + 6}")
'''
    assert _changes(source) == []

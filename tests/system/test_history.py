"""The checker of histories finds each kind of wrong history, and none in a right one."""

from __future__ import annotations

import pytest
from tests.kit.history import Fact, Window, problems

KILLED = Window(5.0, 7.0, "kill", frozenset({"stream-broken"}), frozenset({"stream"}))


def fact(at: float, kind: str, *detail: str, ident: str = "r1", door: str = "stream") -> Fact:
    return Fact(at, ident, kind, door, detail)


ASKED = fact(1.0, "invoke", "r1-0", "r1-1")


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param([ASKED, fact(2.0, "ok", "r1-0", "r1-1")], id="whole"),
        pytest.param(
            [ASKED, fact(1.5, "piece", "r1-0"), fact(1.6, "piece", "r1-1"), fact(2.0, "ok")],
            id="in-pieces",
        ),
        pytest.param(
            [ASKED, fact(1.5, "piece", "r1-0"), fact(5.5, "fail", "stream-broken")],
            id="a-fault-that-may-show",
        ),
        pytest.param([fact(18.0, "invoke", "r1-0")], id="still-on-its-way"),
    ],
)
def test_right_histories_pass(facts: list[Fact]) -> None:
    assert problems(facts, [KILLED], deadline_s=10.0, ended_at=20.0) == []


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        pytest.param([ASKED], "no outcome", id="lost"),
        pytest.param([fact(1.0, "ok")], "begin", id="an-answer-to-nothing"),
        pytest.param([ASKED, ASKED], "begin", id="one-id-twice"),
        pytest.param(
            [ASKED, fact(2.0, "ok", "r1-0", "r1-1"), fact(2.1, "ok", "r1-0", "r1-1")],
            "2 outcomes",
            id="answered-twice",
        ),
        pytest.param(
            [ASKED, fact(5.5, "fail", "stream-broken"), fact(5.6, "ok", "r1-0", "r1-1")],
            "2 outcomes",
            id="an-answer-behind-an-error",
        ),
        pytest.param(
            [ASKED, fact(5.5, "fail", "stream-broken"), fact(5.6, "piece", "r1-0")],
            "behind its outcome",
            id="a-piece-behind-an-error",
        ),
        pytest.param([ASKED, fact(2.0, "ok", "r2-0", "r2-1")], "should be", id="of-another"),
        pytest.param([ASKED, fact(2.0, "ok", "r1-0")], "should be", id="half"),
        pytest.param(
            [ASKED, fact(1.5, "piece", "r1-1"), fact(5.5, "fail", "stream-broken")],
            "beginning",
            id="out-of-order",
        ),
        pytest.param(
            [
                ASKED,
                fact(1.5, "piece", "r1-0"),
                fact(1.6, "piece", "r1-0"),
                fact(2.0, "ok", "r1-1"),
            ],
            "beginning",
            id="a-piece-twice",
        ),
        pytest.param([ASKED, fact(12.0, "ok", "r1-0", "r1-1")], "after 11.0 s", id="late"),
        pytest.param([ASKED, fact(3.0, "fail", "stream-broken")], "allowed", id="before-the-fault"),
        pytest.param([ASKED, fact(5.5, "fail", "internal")], "allowed", id="another-error"),
        pytest.param([ASKED, fact(5.5, "unknown")], "allowed", id="cut"),
        pytest.param(
            [fact(7.5, "invoke", "x"), fact(7.6, "fail", "stream-broken")],
            "allowed",
            id="begun-behind-the-fault",
        ),
        pytest.param(
            [
                fact(1.0, "invoke", "x", door="plain"),
                fact(5.5, "fail", "stream-broken", door="plain"),
            ],
            "allowed",
            id="at-a-door-that-may-not-show-it",
        ),
    ],
)
def test_each_wrong_history_is_found(facts: list[Fact], word: str) -> None:
    lines = problems(facts, [KILLED], deadline_s=10.0, ended_at=20.0)
    assert word in lines[0]

"""The checker of histories itself: what it must accept, and what it must not."""

from __future__ import annotations

import pytest
from tests.control.linearizable import UNKNOWN, Done, is_linearizable


def done(call: str, began: float, ended: float, outcome: str = "ok", generation: int = 0) -> Done:
    return Done(call, began, ended, outcome, generation)


RIGHT = {
    "nothing": [],
    "one after the other": [
        done("create", 0, 1),
        done("update", 2, 3, generation=2),
        done("describe", 4, 5, generation=2),
        done("delete", 6, 7),
        done("describe", 8, 9, "not-found"),
        done("create", 10, 11),
    ],
    "a reader beside a writer sees either": [
        done("create", 0, 1),
        done("update", 2, 9, generation=2),
        done("describe", 3, 4, generation=1),
        done("describe", 5, 6, generation=2),
    ],
    "one that is being deleted is still there, or is not": [
        done("create", 0, 1),
        done("delete", 2, 3),
        done("create", 4, 5, "exists"),
        done("describe", 6, 7, generation=1),
        done("create", 8, 9),
    ],
    "an unknown outcome that came to pass, late": [
        done("create", 0, 1),
        done("update", 2, 3, UNKNOWN),
        done("describe", 4, 5, generation=1),
        done("describe", 6, 7, generation=2),
    ],
    "an unknown outcome that never came to pass": [
        done("create", 0, 1, UNKNOWN),
        done("describe", 2, 3, "not-found"),
        done("create", 4, 5),
    ],
    "busy with what somebody else has asked for": [
        done("create", 0, 1),
        done("update", 2, 3, "busy"),
        done("describe", 4, 5, generation=1),
    ],
}
WRONG = {
    "lost": [done("create", 0, 1), done("describe", 2, 3, "not-found")],
    "lost update": [
        done("create", 0, 1),
        done("update", 2, 3, generation=2),
        done("describe", 4, 5, generation=1),
    ],
    "done twice": [
        done("create", 0, 1),
        done("update", 2, 3, generation=2),
        done("describe", 4, 5, generation=3),
    ],
    "two updates, one generation": [
        done("create", 0, 1),
        done("update", 2, 5, generation=2),
        done("update", 3, 4, generation=2),
    ],
    "an unknown update that was done twice": [
        done("create", 0, 1),
        done("update", 2, 3, UNKNOWN),
        done("describe", 4, 5, generation=3),
    ],
    "two created at once": [done("create", 0, 5), done("create", 1, 4)],
    "seen, then not yet there": [
        done("create", 0, 9),
        done("describe", 1, 2, generation=1),
        done("describe", 3, 4, "not-found"),
    ],
    "back from the dead": [
        done("create", 0, 1),
        done("delete", 2, 3),
        done("describe", 4, 5, "not-found"),
        done("describe", 6, 7, generation=1),
    ],
    "an unknown deletion before it began": [
        done("create", 0, 1),
        done("describe", 2, 3, "not-found"),
        done("delete", 4, 5, UNKNOWN),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_can_have_been_is_accepted(name: str) -> None:
    assert is_linearizable(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_have_been_is_found(name: str) -> None:
    assert not is_linearizable(WRONG[name])

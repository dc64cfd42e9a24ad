"""What a scorer is asked, and what its answer says: `core/rollout/scorer.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.rollout.scorer import SAID_MAX, question, scored
from penstock.errors import ModelError


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b'{"inputs": [1, 2]}', {"inputs": [1, 2]}),
        (b" 0.5\n", 0.5),
        (b"null", None),
        (b"", ""),
        (b'one, "two"\n', 'one, "two"\n'),
        ("schön".encode(), "schön"),
        (b"\xff\xd8\xff", {"base64": "/9j/"}),
        ("0.5".encode("utf-16"), {"base64": "//4wAC4ANQA="}),
        (b"[NaN]", "[NaN]"),
        (b"[-Infinity]", "[-Infinity]"),
        (b'{"torn": ', '{"torn": '),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_a_body_is_json_or_else_a_text_or_else_base64(body: bytes, member: Any) -> None:
    """NaN is no JSON: a scorer that is not written in Python could not read the request."""
    asked = question(body, b"1", b"2")
    assert json.loads(asked) == {"request": member, "old": 1, "new": 2}
    assert json.loads(question(b"1", body, b"2")) == {"request": 1, "old": member, "new": 2}
    assert json.loads(question(b"1", b"2", body)) == {"request": 1, "old": 2, "new": member}


def test_a_body_that_is_json_is_passed_on_as_it_came() -> None:
    assert question(b'{"a":1e2,"a":2}', b"1", b"2") == (
        b'{"request": {"a":1e2,"a":2}, "old": 1, "new": 2}'
    )
    text = "schön".encode()
    assert b'"' + text + b'"' in question(text, b"1", b"2"), "no longer than it came"


@pytest.mark.parametrize(
    ("answer", "yes"),
    [
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        (0.5, True),
        (0.4999, False),
        ({"agree": True, "score": 0.1}, True),
        ({"agree": 0.2}, False),
        ({"score": 0.9, "why": "the same"}, True),
        ({"score": False}, False),
        ([True], True),
        ([0.1], False),
        ([[0.9]], True),
        ([{"agree": False}], False),
        ([[{"score": 1}]], True),
    ],
)
def test_what_an_answer_says(answer: Any, yes: bool) -> None:
    assert scored(json.dumps(answer).encode()) is yes


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"yes", b'"true"', b"null", b"1.001", b"-0.1", b"NaN", b"[]", b"[true, true]",
        b"[[[true]]]", b"{}", b'{"agree": null, "score": 0.9}', b'{"agree": "yes"}',
        b'{"label": "same", "probability": 0.9}', b"\xff", b"[" * 10_000,
    ],
)  # fmt: skip
def test_anything_else_is_the_scorers_failure(answer: bytes) -> None:
    with pytest.raises(ModelError) as raised:
        scored(answer)
    assert raised.value.code == "scorer-answer-invalid"
    assert raised.value.message.startswith("the scorer answered '")
    assert len(raised.value.message) < 250
    assert '"agree"' in raised.value.hint


def test_an_answer_that_is_no_verdict_by_its_length_is_not_read() -> None:
    padded = b"true".ljust(SAID_MAX)
    assert scored(padded)
    with pytest.raises(ModelError, match="the scorer answered 65537 bytes"):
        scored(padded + b" ")

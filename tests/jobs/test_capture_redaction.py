"""What captured calls are rid of: `jobs/capture/redaction.py`."""

from __future__ import annotations

import pytest

from penstock.errors import CallerError
from penstock.jobs.capture.redaction import redaction


def test_each_match_of_each_pattern_is_replaced() -> None:
    redact = redaction([r"\b[\w.+-]+@[\w-]+\.[\w.]+\b", r"\b(?:\d[ -]?){13,19}\b", "é+"])
    assert redact is not None
    text = "mail a.b+c@d.org, pay 4111-1111-1111-1111, or 42, caféé".encode()
    assert redact(text) == b"mail [redacted], pay [redacted], or 42, caf[redacted]"
    assert redact(b"\xff\x00") == b"\xff\x00"
    assert redaction([]) is None


def test_no_body_takes_more_than_linear_time() -> None:
    """Python's own expressions would take longer than anybody waits."""
    redact = redaction([r"(a+)+$", r"[\w.+-]+@[\w-]+\.[\w.]+"])
    assert redact is not None
    assert redact(b"a" * 1_000_000 + b"!") == b"a" * 1_000_000 + b"!"


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "RE2 can't read it: missing )"),
        ("(?=a)", "RE2 can't read it: invalid perl operator"),
        ("x*", "it matches where there is nothing"),
    ],
)
def test_what_can_not_be_a_pattern_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(CallerError) as caught:
        redaction([pattern])
    assert caught.value.code == "config-invalid"
    assert says in caught.value.message

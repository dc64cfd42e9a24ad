"""What fails in a loop is counted by the loop, and logged by the item, once in a while."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import CallerError, NotNowError
from penstock.metrics import item_failures
from penstock.metrics.item_failures import ItemFailures, apart, readable


def test_an_item_that_fails_again_and_again_is_counted_each_time_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = ItemFailures()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            failures.note("alarms", "busy", ZeroDivisionError("division by zero"))
            failures.note("alarms", "idle", CallerError("expression-invalid", "It is none."))
        failures.note("jobs", "busy", KeyError("x"))
    assert failures.counts() == {"alarms": 6, "jobs": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "alarms: busy failed; the others go on",
        "alarms: idle: expression-invalid: It is none.",
        "jobs: busy failed; the others go on",
    ]
    assert caplog.records[0].exc_info is not None


def test_as_many_items_as_there_are_take_no_more_memory_than_a_thousand() -> None:
    failures = ItemFailures()
    for number in range(1_500):
        failures.note("alarms", f"a{number}", CallerError("x", "y"))
    assert failures.counts() == {"alarms": 1_500}
    assert len(failures._logged) == 1_000


def test_what_concerns_all_is_raised() -> None:
    before = item_failures.counts().get("test", 0)
    with apart("test", "one", but=(NotNowError,)):
        raise ValueError("one's own")
    with pytest.raises(NotNowError), apart("test", "one", but=(NotNowError,)):
        raise NotNowError("database-unreachable", "It is away.")
    assert item_failures.counts()["test"] == before + 1


def test_rows_that_can_be_read_are() -> None:
    assert readable("test", ["1", "x", "3"], int, str) == [1, 3]
    with pytest.raises(OSError, match="disk"):
        readable("test", ["1"], lambda row: (_ for _ in ()).throw(OSError("disk")), str)

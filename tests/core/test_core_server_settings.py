"""Triton's log and trace settings in this server's terms."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.core.request.server_settings import (
    check_trace,
    log_level_after,
    log_settings,
    trace_settings,
)
from penstock.errors import CallerError

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


@pytest.mark.parametrize("level", [DEBUG, INFO, WARNING, ERROR, logging.CRITICAL])
def test_settings_that_were_read_can_be_written_back(level: int) -> None:
    assert log_level_after(level, log_settings(level)) == level
    assert log_level_after(level, {}) == level


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        (INFO, {"log_verbose_level": 1}, DEBUG),
        (DEBUG, {"log_verbose_level": 0}, INFO),
        (INFO, {"log_info": False}, WARNING),
        (INFO, {"log_info": False, "log_warning": False}, ERROR),
        (INFO, dict.fromkeys(("log_info", "log_warning", "log_error"), False), logging.CRITICAL),
        (ERROR, {"log_warning": True, "log_info": True}, INFO),
        (INFO, {"log_file": None, "log_info": None}, INFO),
        (INFO, {"log_file": "", "log_format": "default"}, INFO),
    ],
)
def test_switches_are_read_as_a_level(before: int, given: dict[str, Any], after: int) -> None:
    assert log_level_after(before, given) == after


@pytest.mark.parametrize(
    ("before", "name", "given"),
    [
        (INFO, "log_file", {"log_file": "/tmp/log"}),
        (INFO, "log_format", {"log_format": "ISO8601"}),
        (INFO, "log_verbose_level", {"log_verbose_level": 2}),
        (INFO, "log_verbose_level", {"log_verbose_level": -1}),
        (INFO, "log_verbose_level", {"log_verbose_level": True}),
        (INFO, "log_info", {"log_info": 1}),
        (INFO, "log_riddle", {"log_riddle": 1}),
        (DEBUG, "log_verbose_level", {"log_info": False}),
        (INFO, "log_warning", {"log_error": False}),
    ],
)
def test_what_the_log_does_not_have_is_refused_by_name(
    before: int, name: str, given: dict[str, Any]
) -> None:
    with pytest.raises(CallerError) as caught:
        log_level_after(before, given)
    assert caught.value.message.startswith(f"{name} ")
    assert caught.value.hint


def test_traces_are_what_the_operator_set() -> None:
    shown = trace_settings(0.01)
    assert shown["trace_level"] == ["TIMESTAMPS"]
    assert (shown["trace_rate"], shown["trace_count"]) == ("100", "-1")
    assert trace_settings(0.9)["trace_rate"] == "1"
    none = trace_settings(0.0)
    assert (none["trace_level"], none["trace_rate"], none["trace_count"]) == (["OFF"], "0", "0")


@pytest.mark.parametrize(
    "given", [{}, trace_settings(0.01), {"trace_rate": None}, {"trace_level": []},
              {"trace_level": "TIMESTAMPS", "trace_rate": 100}],
)  # fmt: skip
def test_settings_of_traces_that_change_nothing_pass(given: dict[str, Any]) -> None:
    check_trace(0.01, given)


@pytest.mark.parametrize(
    "given", [{"trace_level": ["OFF"]}, {"trace_level": ["TIMESTAMPS", "TENSORS"]},
              {"trace_rate": "1"}, {"trace_file": "/tmp/x"}, {"log_frequency": "5"}],
)  # fmt: skip
def test_other_settings_of_traces_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(CallerError, match=f"^{next(iter(given))} "):
        check_trace(0.01, given)

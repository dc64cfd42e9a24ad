"""Logs that are followed: nothing is lost or told twice, whatever becomes of the files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.api.admin.logs import since, tails, tails_and_cursor
from penstock.cli.server.logs import by_time
from penstock.errors import CallerError
from penstock.fleet.log_file import put_aside


def write(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


class Follower:
    def __init__(self, *paths: Path) -> None:
        self.paths = list(paths)
        self.cursor = ""

    def read(self) -> list[str]:
        call: Any = since(self.paths, self.cursor) if self.cursor else None
        found, self.cursor = asyncio.run(call or tails_and_cursor(self.paths, 100))
        return [line for log in found for line in log["lines"]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "all-1-0.log"


def test_a_line_is_told_once_and_when_it_is_whole(log: Path) -> None:
    write(log, "one\n")
    follower = Follower(log)
    assert follower.read() == ["one"]
    write(log, "two\nthr")
    assert follower.read() == ["two"]
    write(log, "ee\n")
    assert follower.read() == ["three"]
    assert follower.read() == []


def test_a_log_that_is_copied_aside_loses_nothing(log: Path) -> None:
    write(log, "one\n")
    follower = Follower(log)
    follower.read()
    write(log, "two\n")
    put_aside(log)
    write(log, "three\n")
    assert follower.read() == ["two", "three"]


def test_a_log_that_is_moved_aside_loses_nothing(log: Path) -> None:
    write(log, "one\n")
    follower = Follower(log)
    follower.read()
    write(log, "two\n")
    log.replace(log.with_name(log.name + ".1"))
    write(log, "three, and longer than what was read\n")
    assert follower.read() == ["two", "three, and longer than what was read"]


def test_the_log_of_a_new_instance_is_read_from_its_beginning(log: Path) -> None:
    follower = Follower(log)
    assert follower.read() == []
    later = log.with_name("all-1-1.log")
    follower.paths.append(later)
    write(later, "first\n")
    assert follower.read() == ["first"]


def test_a_tail_goes_back_into_what_was_put_aside(log: Path) -> None:
    write(log, "one\ntwo\n")
    put_aside(log)
    write(log, "three\n")
    (found,) = asyncio.run(tails([log], 2))
    assert found["lines"] == ["two", "three"]


@pytest.mark.parametrize("cursor", ["x", "bm9uZQ==", "W10="])
def test_what_is_no_cursor_is_refused(log: Path, cursor: str) -> None:
    with pytest.raises(CallerError):
        asyncio.run(since([log], cursor))


def test_lines_of_several_logs_are_told_in_the_order_of_their_times() -> None:
    first = ["2026-03-02 10:00:01,000 INFO a", "its own line", "2026-03-02 10:00:03,000 INFO c"]
    second = ["2026-03-02 10:00:02,000 INFO b"]
    found = by_time([{"log": "i-1", "lines": first}, {"log": "i-2", "lines": second}])
    assert [line[-6:] for _, line in found] == ["INFO a", "n line", "INFO b", "INFO c"]

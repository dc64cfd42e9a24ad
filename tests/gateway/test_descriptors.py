"""The limit on open files of the process itself."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from penstock.gateway.http.listener_state import limit_now, raise_limit


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 300));"
        "from penstock.gateway.http.listener_state import limit_now, raise_limit;"
        "print(limit_now(), raise_limit(), limit_now())"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert printed.stdout.split() == [b"100", b"300", b"300"]


def test_a_limit_that_is_infinite_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert limit_now() is None


class Limits:
    """In place of the operating system's: (soft, hard), of which a change may be refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, may: bool) -> None:
        self.now, self.may = (soft, hard), may
        self.asked: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: self.set(limits))

    def set(self, limits: tuple[int, int]) -> None:
        self.asked.append(limits)
        if not self.may:
            raise ValueError("not allowed")
        self.now = limits


def test_all_that_may_be_had_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 100, 300, may=True)
    assert (limit_now(), raise_limit(), limit_now()) == (100, 300, 300)
    assert raise_limit() == 300
    assert limits.asked == [(300, 300)]


def test_where_no_more_is_given_the_limit_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 100, 300, may=False)
    assert (raise_limit(), limit_now()) == (100, 100)
    assert limits.asked == [(300, 300)]

"""The limit on open files of the process itself."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from penstock.gateway.descriptors import limit_now


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 300));"
        "from penstock.gateway.descriptors import limit_now, raise_limit;"
        "print(limit_now(), raise_limit(), limit_now())"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert printed.stdout.split() == [b"100", b"300", b"300"]


def test_a_limit_that_is_infinite_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert limit_now() is None

"""A figure says what it was measured on: the instruction set in force is part of the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from bench.report import hardware

from penstock.runtimes.processor import LIMITS, instruction_set_here

ASK = "from bench.report import hardware; import json; print(json.dumps(hardware()))"


def test_the_instruction_set_is_named_and_no_limit_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    found = hardware()
    assert found["instruction_set"] == instruction_set_here().name
    assert "instruction_set_limit" not in found


@pytest.mark.skipif(not instruction_set_here().x86, reason="the limit is one of x86 processors")
def test_a_limited_machine_says_what_limits_it() -> None:
    """A process of its own, as a bench is: the variable is read when it starts."""
    run = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"instruction_set": "SSE41"' in run.stdout
    assert '"instruction_set_limit": "SSE41"' in run.stdout

"""A figure says what it was measured on: the instruction set in force is part of the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from bench.machine import program_name
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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("/venv/bin/python -m penstock up --port 8080", "gateway"),
        ("/venv/bin/python -m penstock.instance", "instance"),
        ("python -m penstock.runtimes.confinement.confined 25 penstock.runtimes.python.worker 22",
         "worker"),
        ("/opt/bin/tritonserver --grpc-port=1", "tritonserver"),
        ("", "kernel"),
    ],
)  # fmt: skip
def test_a_process_is_named_by_what_it_runs(arguments: str, name: str) -> None:
    assert program_name(arguments.split(" ")) == name

"""What tests of commands share: a command line that runs in the test's process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from penstock.cli import main


@pytest.fixture
def penstock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line: (exit status, standard output, standard error)."""
    for variable in ("PENSTOCK_URL", "PENSTOCK_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run

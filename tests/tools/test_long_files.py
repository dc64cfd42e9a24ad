"""Files that take long begin first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.long_files import SECONDS

ROOT = Path(__file__).resolve().parents[2]
SHORT, LONG = "tests/tools/test_long_files.py", "tests/tune/test_tune_procedure.py"


def test_each_of_them_is_there() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_they_are_collected_before_others() -> None:
    assert LONG in SECONDS
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*argv, SHORT, LONG], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    assert list(dict.fromkeys(files)) == [LONG, SHORT]

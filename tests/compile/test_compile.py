"""The compiler's tests, run by the interpreter that has its libraries.

Each file `inside/check_*.py` is one test here; its own output is shown where it fails.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CHECKS = sorted(HERE.glob("inside/check_*.py"))

_spec = importlib.util.spec_from_file_location("compile_set_up", HERE / "set_up.py")
assert _spec is not None
assert _spec.loader is not None
set_up = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(set_up)


@pytest.mark.integration
@pytest.mark.timeout(420)
@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.stem)
def test_in_the_environment_with_pytorch(check: Path) -> None:
    if not set_up.interpreter().exists():
        reason = "no compile environment: run tests/compile/set_up.py (make test does)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    run = subprocess.run(
        [
            str(set_up.interpreter()),
            *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
            *("-o", "python_files=check_*.py", "-W", "ignore"),
            *("--timeout", "240", str(check)),
        ],
        cwd=set_up.ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(set_up.ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-12_000:] + run.stderr[-2_000:]

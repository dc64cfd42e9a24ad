"""The compiler's tests, `inside/check_*.py`, run by the interpreter that has its libraries.

They are one test here, for importing PyTorch takes longer than most of them; their own output is
shown where one fails.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

_spec = importlib.util.spec_from_file_location("compile_set_up", HERE / "set_up.py")
assert _spec is not None
assert _spec.loader is not None
set_up = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(set_up)


@pytest.mark.integration
@pytest.mark.timeout(1800)  # some minutes on idle cores; each of them has 240 s of its own
def test_the_compiler_in_the_environment_with_pytorch() -> None:
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
            *("-p", "no:logging", "--timeout", "240", str(HERE / "inside")),
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

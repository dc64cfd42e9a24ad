"""With CI=true a test that skips fails, unless what it lacks is no package and no environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import skip_allowed

ROOT = Path(__file__).resolve().parents[2]

CASES = """
import pytest
from tests.kit.environments import python_of

def test_package():
    pytest.importorskip("not_there", reason="not_there is not installed")

def test_environment(monkeypatch, tmp_path):
    monkeypatch.setattr("tools.environments.VENVS", tmp_path)
    python_of("client-openai")

@pytest.mark.skipif(True, reason="because")
def test_marked(): ...

@pytest.fixture
def lacking():
    pytest.skip("a fixture lacks something")

def test_fixture(lacking): ...

def test_gpu():
    pytest.skip("needs a CUDA device")

@pytest.mark.xfail(reason="known")
def test_expected():
    assert False
"""
WHOLE = """
import pytest
pytest.importorskip("not_there", reason="not_there is not installed")

def test_nothing(): ...
"""


@pytest.mark.parametrize(
    ("ci", "seen"),
    [
        ("", "5 skipped, 1 xfailed"),
        ("true", "2 failed, 1 skipped, 1 xfailed, 2 errors"),
    ],
)
def test_a_skip_that_a_package_could_mend_fails_in_ci(tmp_path: Path, ci: str, seen: str) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    run = ran(tmp_path, ci)
    assert run.stdout.splitlines()[-1].startswith(seen), run.stdout
    assert ("not_there is not installed\n(CI=true" in run.stdout) == bool(ci)


@pytest.mark.parametrize(("ci", "status"), [("", 5), ("true", 2)])
def test_so_does_a_module_that_skips_as_a_whole(tmp_path: Path, ci: str, status: int) -> None:
    """5: no tests; 2: they could not be collected."""
    (tmp_path / "test_whole.py").write_text(WHOLE)
    run = ran(tmp_path, ci)
    assert run.returncode == status, run.stdout
    assert ("not_there is not installed\n(CI=true" in run.stdout) == bool(ci)


def test_what_is_allowed_is_allowed_in_full() -> None:
    assert skip_allowed("this kernel has no Landlock: files are not hidden from models")
    assert skip_allowed("no environment vllm: python -m tools.environments vllm makes it")
    assert not skip_allowed("no environment compile: python -m tools.environments compile makes it")
    assert not skip_allowed("needs a CUDA device and a package")


def ran(folder: Path, ci: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*argv, "-c", "/dev/null", f"--rootdir={folder}", str(folder)],
        cwd=folder, env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

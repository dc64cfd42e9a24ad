"""The rules of the tree that a linter of imports cannot see."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
CORE = sorted((SOURCE / "core").rglob("*.py"))

#: What a decision must not reach for: the clock, chance, I/O, the event loop, logs.
FORBIDDEN_IN_CORE = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "secrets",
    "select", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip

RUNTIMES = {"openvino", "onnxruntime", "torch", "tokenizers", "grpc", "sqlalchemy", "botocore"}


def _imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_a_decision_reads_no_clock_no_chance_and_no_outside_world(path: Path) -> None:
    assert _imports(ast.parse(path.read_text())) & FORBIDDEN_IN_CORE == set()


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_randomness_in_core_is_always_passed_in(path: Path) -> None:
    """`random.Random` may be named as a type; `random.choice` and its like are global state."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
    }
    assert used <= {"Random"}


def test_importing_the_package_imports_no_runtime_and_no_server() -> None:
    script = "import sys, penstock; print(' '.join(sorted(m.split('.')[0] for m in sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & RUNTIMES == set()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_every_module_that_holds_code_says_what_it_serves(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), f"{path.relative_to(SOURCE)} has no module docstring"


def test_every_ray_call_is_in_one_file() -> None:
    users = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "ray" in _imports(ast.parse(path.read_text()))
    ]
    assert users == ["fleet/ray/cluster.py"]

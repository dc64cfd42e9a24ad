"""`make run` says what it is doing while it installs: large downloads and counts, not pip's log."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "tools" / "install.py"


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("install", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_large_downloads_are_named_and_small_ones_are_not() -> None:
    said = _module().steps(
        [
            "Obtaining file:///somewhere/penstock\n",
            "  Installing build dependencies: started\n",
            "Collecting botocore>=1.44.5 (from penstock==0.1.0)\n",
            "  Downloading botocore-1.44.9-py3-none-any.whl (16.6 MB)\n",
            "Collecting orjson>=3.10 (from penstock==0.1.0)\n",
            "  Downloading orjson-3.11.4-cp311-cp311-manylinux_2_17_x86_64.whl (136 kB)\n",
            "Collecting openvino>=2025.0 (from penstock==0.1.0)\n",
            "  Using cached openvino-2026.4.1-cp311-cp311-manylinux2014_x86_64.whl (59.1 MB)\n",
            "Installing collected packages: orjson, botocore, openvino, penstock\n",
            "Successfully installed botocore-1.44.9\n",
        ]
    )
    assert list(said) == [
        "looking up packages",
        "fetching botocore (16.6 MB)",
        "fetching openvino (59.1 MB)",
        "unpacking 4 packages",
    ]


def test_what_pip_said_is_shown_where_it_fails(tmp_path: Path) -> None:
    missing = tmp_path / "not-there"
    run = subprocess.run(
        [sys.executable, str(FILE), "the thing", "--no-index", str(missing)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert run.stdout.startswith("installing the thing;")
    assert "not-there" in run.stderr
    assert run.stderr.endswith("the thing could not be installed: pip's last lines are above\n")

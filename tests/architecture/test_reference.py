"""docs/reference is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[2] / "docs" / "generate.py"


def test_the_reference_pages_are_current() -> None:
    """`python docs/generate.py` brings them up to date."""
    spec = importlib.util.spec_from_file_location("generate_reference", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.stale() == []

"""The reference of model.yaml: each key has a meaning and an example, and the examples are read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from penstock.artifacts.description import model_yaml

GENERATOR = Path(__file__).resolve().parents[2] / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_model_yaml", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_read_as_a_server_reads_it(generator: ModuleType) -> None:
    texts = generator._example_files()
    assert len(texts) > 5
    for text in texts:
        model_yaml.parse(text)


def test_every_key_has_a_meaning_and_an_example(generator: ModuleType) -> None:
    """A new key gets its example in docs/model_yaml_examples.yaml."""
    rows = [line for line in generator.model_yaml().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    examples = generator.model_examples()
    lacking = []
    for row in rows:
        key, _, _, _, meaning = row.removeprefix("| ").removesuffix(" |").split(" | ")
        if not meaning.strip() or key.strip("`") not in examples:
            lacking.append(key)
    assert lacking == []


def test_every_setting_has_a_meaning(generator: ModuleType) -> None:
    rows = [line for line in generator.settings().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []

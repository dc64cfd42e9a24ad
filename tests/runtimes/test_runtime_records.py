"""What records say of their runtimes, and that nobody else knows the names."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.models.memory_need import ModelFacts, estimated
from penstock.runtimes import registry
from penstock.runtimes.record import EngineRules, Interface, RuntimeRecord, imported

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
MIB = 2**20
LIBRARIES = {"openvino", "openvino_genai", "onnxruntime", "torch", "vllm", "tokenizers", "numpy"}


@pytest.mark.parametrize(
    ("runtime", "suffix", "file_mib", "measured_mib"),
    [
        ("openvino", ".onnx", 400, 863),
        ("openvino", ".xml", 400, 456),
        ("openvino", ".xml", 200, 255),
        ("openvino", ".xml", 3, 122),
        ("onnxruntime", ".onnx", 400, 771),
        ("seq2seq", ".xml", 5, 134),
        ("openvino_genai", ".xml", 6, 109),
    ],
)
def test_measured_models_are_within_their_estimates(
    runtime: str, suffix: str, file_mib: int, measured_mib: int
) -> None:
    """What the rules were made from: MiB at the height of load and first runs."""
    record = registry.record(runtime)
    rule = record.memory_of.get(suffix, record.memory)
    need = estimated(ModelFacts(library=runtime, rule=rule, file_bytes=file_mib * MIB))
    assert measured_mib * MIB <= need.memory_bytes <= 1.5 * measured_mib * MIB


def test_records_are_read_without_a_library_of_models() -> None:
    script = (
        "import sys, penstock.runtimes.registry, penstock.artifacts.detection.detect\n"
        "print(' '.join(sorted(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & LIBRARIES == set()


@pytest.mark.parametrize("record", registry.records(), ids=lambda record: record.name)
def test_what_a_record_names_is_there_and_agrees(record: RuntimeRecord) -> None:
    places = [*record.loaders.values(), record.first_import, record.trial]
    for place in filter(None, places):
        assert callable(imported(place)), place
    assert record.has(Interface.ENGINE) or record.engine == EngineRules()
    assert record.in_threads != record.in_processes
    assert set(record.memory_of) <= set(record.suffixes)


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) that a runtime is compared with, or that a description is made with."""
    for node in ast.walk(tree):
        texts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(ast.unparse(side).split(".")[-1] == "runtime" for side in sides):
                texts = sides
        elif isinstance(node, ast.keyword) and node.arg == "runtime":
            texts = [node.value]
        for text in texts:
            for part in ast.walk(text):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_a_runtime_is_known_by_its_record_and_not_by_its_name() -> None:
    """Who needs to know something of a runtime asks its record, or names the record itself."""
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not (path.name == "record.py" and path.parent.parent == SOURCE / "runtimes")
        for line, text in compared(ast.parse(path.read_text()))
        if text in registry.names()
    ]
    assert found == []

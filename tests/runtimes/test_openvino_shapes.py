"""Shapes that come often get a graph of their own; answers stay the general graph's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.polling import wait_until

from penstock.artifacts.detection.detect import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime
from penstock.runtimes.openvino.shapes import (
    GraphMemory,
    ShapeGraphs,
    bytes_max,
    graph_bytes,
    weights_bytes,
    worth_it,
)

MIB = 1 << 20


def runtime_of(folder: Path, *, lanes: int = 1, memory_bytes_max: int = 0) -> OpenVinoRuntime:
    detected = detect(folder)
    return OpenVinoRuntime(
        LoadContext(
            model_dir=detected.root,
            description=detected.description,
            endpoint_name="e",
            variant_name="v",
            cores=1.0,
            memory_bytes_max=memory_bytes_max,
        )
    )


def wait_shapes(runtime: OpenVinoRuntime, count: int) -> list[Any]:
    assert runtime._graphs is not None
    wait_until(lambda: len(runtime._graphs.snapshot()) >= count, "a graph")
    return [each["shape"] for each in runtime._graphs.snapshot()]


def test_a_frequent_shape_gets_a_graph_that_answers_as_the_general_one(tmp_path: Path) -> None:
    runtime = runtime_of(model_files.affine(tmp_path / "m"))
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    general = runtime.run(0, {"x": rows})["y"]
    for _ in range(32):
        runtime.run(0, {"x": rows})
    assert wait_shapes(runtime, 1) == [[[2, 4]]]
    assert runtime.run(0, {"x": rows})["y"].tolist() == general.tolist()
    assert runtime.run(0, {"x": rows[:1]})["y"].tolist() == general[:1].tolist()
    runtime.close()


def test_an_answer_stays_as_it_is_when_the_graph_runs_again(tmp_path: Path) -> None:
    runtime = runtime_of(model_files.affine(tmp_path / "m"))
    eye = np.eye(4, dtype=np.float32)
    for _ in range(33):
        runtime.run(0, {"x": eye})
    wait_shapes(runtime, 1)
    first = runtime.run(0, {"x": eye})["y"]
    kept = first.tolist()
    runtime.run(0, {"x": np.zeros((4, 4), dtype=np.float32)})
    assert first.tolist() == kept
    runtime.close()


def test_a_model_too_large_for_the_instance_keeps_to_its_general_graph(tmp_path: Path) -> None:
    runtime = runtime_of(model_files.affine(tmp_path / "m"), memory_bytes_max=128 * MIB)
    for _ in range(100):
        runtime.run(0, {"x": np.eye(4, dtype=np.float32)})
    assert runtime._graphs is None
    runtime.close()


@pytest.mark.parametrize(
    ("memory", "expected"), [(0, 256 * MIB), (2048 * MIB, 256 * MIB), (512 * MIB, 128 * MIB)]
)
def test_graphs_take_a_quarter_of_the_memory_at_most(memory: int, expected: int) -> None:
    assert bytes_max(memory) == expected


def test_a_graph_takes_its_weights_twice_and_12_mib() -> None:
    assert graph_bytes(3 * MIB) == 18 * MIB


@pytest.mark.parametrize(
    ("weights", "expected"), [(3 * MIB, True), (26 * MIB, True), (27 * MIB, False)]
)
def test_only_models_of_which_four_graphs_fit_get_any(weights: int, expected: bool) -> None:
    assert worth_it(graph_bytes(weights), 256 * MIB) is expected


def test_weights_beside_the_graph_count(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_bytes(b"12345")
    (tmp_path / "model.bin").write_bytes(b"1234567")
    assert weights_bytes(tmp_path / "model.xml") == 12


def read(folder: Path) -> Any:
    import openvino

    return openvino.Core().read_model(str(model_files.affine(folder) / "model.onnx"))


def ask(graphs: ShapeGraphs, rows: int) -> Any:
    """Runs a shape until it had its chance; the request of its own graph, if it got one."""
    for _ in range(40):
        graphs.request(0, ((rows, 4),))
        graphs.wait_built()
    return graphs.request(0, ((rows, 4),))


def test_a_shape_that_does_not_compile_is_left_to_the_general_graph(tmp_path: Path) -> None:
    def refuses(shaped: Any) -> list[Any]:
        raise RuntimeError("no")

    memory = GraphMemory()
    graphs = ShapeGraphs(read(tmp_path / "m"), refuses, size=10, limit=10, memory=memory)
    assert ask(graphs, 2) is None
    assert graphs.snapshot() == []
    assert memory.take(10, 10), "what it would have taken is free again"
    graphs.close()


def test_models_of_one_process_share_the_memory_for_graphs(tmp_path: Path) -> None:
    memory, model = GraphMemory(), read(tmp_path / "m")
    first = ShapeGraphs(model, lambda shaped: ["first"], size=10, limit=25, memory=memory)
    second = ShapeGraphs(model, lambda shaped: ["second"], size=10, limit=25, memory=memory)
    assert ask(first, 1) == "first"
    assert ask(second, 1) == "second"
    assert ask(first, 2) is None
    first.close()
    assert ask(second, 2) == "second"
    second.close()
    assert memory.take(25, 25), "all was given back"

"""Shapes that come often get a graph of their own; answers stay the general graph's."""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import gc
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files
from tests.kit.polling import wait_until

from penstock.artifacts.detection.detect import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino import runtime as openvino_runtime
from penstock.runtimes.openvino import shape_compiler
from penstock.runtimes.openvino.runtime import OpenVinoRuntime
from penstock.runtimes.openvino.shape_blobs import ShapeBlobs, ShapeCompiler
from penstock.runtimes.openvino.shapes import (
    GraphMemory,
    ShapeGraphs,
    bytes_max,
    graph_bytes,
    weights_bytes,
    worth_it,
)

MIB = 1 << 20


def runtime_of(
    folder: Path,
    *,
    cache: Path | None = None,
    lanes: int = 1,
    memory_bytes_max: int = 0,
    log: Callable[[str], None] = lambda line: None,
) -> OpenVinoRuntime:
    detected = detect(folder)
    return OpenVinoRuntime(
        LoadContext(
            model_dir=detected.root,
            description=dataclasses.replace(detected.description, lanes=lanes),
            cache_dir=cache or folder.with_name(f"{folder.name}-cache"),
            endpoint_name="e",
            variant_name="v",
            cores=1.0,
            memory_bytes_max=memory_bytes_max,
            log=log,
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


@pytest.mark.parametrize("built", [True, False])
def test_a_model_says_when_its_lanes_are_the_slow_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    monkeypatch.setattr(openvino_runtime, "native_lane", lambda: object if built else None)
    lines: list[str] = []
    runtime_of(model_files.affine(tmp_path / "m"), log=lines.append).close()
    assert len(lines) == (0 if built else 1)
    assert all("install a C compiler" in line for line in lines)


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


def test_a_lane_has_a_run_under_way_and_one_ahead_and_a_third_is_the_general_graphs(
    tmp_path: Path,
) -> None:
    runtime = runtime_of(model_files.affine(tmp_path / "m"))
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert runtime.native_run(((2, 4),)) is None
    for _ in range(33):
        general = runtime.run(0, {"x": rows})["y"]
    wait_shapes(runtime, 1)
    first, second = (runtime.native_run(((2, 4),)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert runtime.native_run(((2, 4),)) is None
    assert runtime.run(0, {"x": rows})["y"].tolist() == general.tolist()
    first.give_back()
    again = runtime.native_run(((2, 4),))
    assert again is first
    again.set([rows])
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(again.function)(again.argument) == 0
    assert again.outputs()["y"].tolist() == general.tolist()
    runtime.close()


def test_the_memory_of_a_graph_goes_at_once_with_its_last_user(tmp_path: Path) -> None:
    """Without the collector of circles, which an instance lets run seldom."""
    graphs = ShapeGraphs(
        blobs_of(tmp_path / "m", tmp_path / "cache"),
        lanes=1, size=10, limit=10, memory=GraphMemory(),
    )  # fmt: skip
    ask(graphs, 2)
    used, idle = (graphs.take(((2, 4),)) for _ in range(2))
    assert used is not None
    assert idle is not None
    gone = [weakref.ref(each) for each in (used, idle, used._graph)]
    idle.give_back()
    del idle
    gc.disable()
    try:
        graphs.close()
        assert [each() is None for each in gone] == [False, True, False]
        used.give_back()
        del used
        assert [each() for each in gone] == [None] * 3
    finally:
        gc.enable()


def test_a_graph_whose_answer_has_no_size_of_its_own_gets_none(tmp_path: Path) -> None:
    """How many are not zero is known after the run: views of its memory would lie."""
    folder = tmp_path / "m"
    folder.mkdir()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    job = {
        "file": str(folder / "model.onnx"),
        "rows_max": 0,
        "config": {},
        "folder": str(tmp_path),
        "packed": False,
    }
    assert not shape_compiler.Maker(job).make(((2, 4),))
    assert list(tmp_path.glob("*.graph")) == []


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


def test_a_graph_takes_its_weights_and_10_mib() -> None:
    assert graph_bytes(3 * MIB) == 13 * MIB


@pytest.mark.parametrize(
    ("weights", "expected"), [(3 * MIB, True), (54 * MIB, True), (55 * MIB, False)]
)
def test_only_models_of_which_four_graphs_fit_get_any(weights: int, expected: bool) -> None:
    assert worth_it(graph_bytes(weights), 256 * MIB) is expected


def test_weights_beside_the_graph_count(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_bytes(b"12345")
    (tmp_path / "model.bin").write_bytes(b"1234567")
    assert weights_bytes(tmp_path / "model.xml") == 12


def blobs_of(folder: Path, cache: Path, **config: Any) -> ShapeBlobs:
    file = model_files.affine(folder) / "model.onnx"
    return ShapeBlobs(
        file, cache, rows_max=32, config={"NUM_STREAMS": 1, **config},
        inputs=[np.dtype(np.float32)], outputs={"y": np.dtype(np.float32)},
    )  # fmt: skip


def ask(graphs: ShapeGraphs, rows: int, columns: int = 4) -> Any:
    """Runs a shape until it had its chance; a run of its own graph, if it got one."""
    for _ in range(40):
        taken(graphs, rows, columns)
    graphs.wait_built()
    return taken(graphs, rows, columns)


def taken(graphs: ShapeGraphs, rows: int, columns: int = 4) -> Any:
    """A run that was given back."""
    run = graphs.take(((rows, columns),))
    if run is not None:
        run.give_back()
    return run


def test_a_copy_that_is_loaded_later_has_all_graphs_before_its_first_run(tmp_path: Path) -> None:
    first = runtime_of(model_files.affine(tmp_path / "m"), cache=tmp_path / "cache", lanes=2)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    general = first.run(0, {"x": rows})["y"].tolist()
    for _ in range(32):
        first.run(0, {"x": rows})
    wait_shapes(first, 1)
    first.close()

    second = runtime_of(tmp_path / "m", cache=tmp_path / "cache", lanes=2)
    assert second._graphs is not None
    assert second._graphs.snapshot() == [{"shape": [[2, 4]], "runs": 0}]
    assert [second.run(lane, {"x": rows})["y"].tolist() for lane in (0, 1)] == [general, general]
    second.close()


def test_a_blob_that_is_none_is_removed_and_made_again(tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    graphs = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=GraphMemory())
    assert ask(graphs, 2) is not None
    graphs.close()
    (blob,) = (tmp_path / "cache").rglob("*.graph")
    blob.write_bytes(b"nonsense")
    again = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=GraphMemory())
    assert again.snapshot() == []
    assert not blob.exists()
    assert ask(again, 2) is not None
    again.close()


def test_blobs_of_other_settings_are_not_found(tmp_path: Path) -> None:
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    graphs = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=GraphMemory())
    ask(graphs, 2)
    graphs.close()
    assert blobs.made() == [((2, 4),)]
    other = blobs_of(tmp_path / "m", tmp_path / "cache", INFERENCE_PRECISION_HINT="f32")
    assert other.made() == []


def test_a_shape_that_does_not_fit_is_left_to_the_general_graph(tmp_path: Path) -> None:
    memory = GraphMemory()
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    graphs = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=memory)
    assert ask(graphs, 2, columns=5) is None
    assert graphs.snapshot() == []
    assert memory.take(10, 10), "what it would have taken is free again"
    graphs.close()


def test_models_of_one_process_share_the_memory_for_graphs(tmp_path: Path) -> None:
    memory = GraphMemory()
    first, second = (
        ShapeGraphs(
            blobs_of(tmp_path / name, tmp_path / f"cache-{name}"),
            lanes=1, size=10, limit=25, memory=memory,
        )
        for name in ("a", "b")
    )  # fmt: skip
    assert ask(first, 1) is not None
    assert ask(second, 1) is not None
    assert ask(first, 2) is None
    first.close()
    assert ask(second, 2) is not None
    second.close()
    assert memory.take(25, 25), "all was given back"


def test_expected_graphs_are_shared_equally_and_the_rarest_go_where_one_more_model_comes(
    tmp_path: Path,
) -> None:
    memory = GraphMemory()
    shapes = [((rows, 4),) for rows in (1, 2, 3, 4, 5)]
    first, second = (
        ShapeGraphs(
            blobs_of(tmp_path / name, tmp_path / f"cache-{name}"),
            lanes=1, size=10, limit=40, count_min=1, memory=memory,
        )
        for name in ("a", "b")
    )  # fmt: skip

    def made(graphs: ShapeGraphs) -> list[Any]:
        graphs.wait_built()
        return [each for each in shapes if graphs.is_made(each)]

    first.join()
    first.expect(shapes)
    assert made(first) == shapes[:4], "all that there is room for"
    second.join()
    assert made(first) == shapes[:2], "the most expected stay"
    second.expect(shapes)
    assert made(second) == shapes[:2]
    second.close()
    first.expect(shapes)
    assert made(first) == shapes[:4], "its share has grown again"
    first.close()
    first.close()
    assert memory.take(40, 40), "all was given back"


def test_a_model_has_its_least_number_of_graphs_however_many_share(tmp_path: Path) -> None:
    memory = GraphMemory()
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    many = [
        ShapeGraphs(blobs, lanes=1, size=10, limit=40, count_min=2, memory=memory)
        for _ in range(4)
    ]  # fmt: skip
    for graphs in many:
        graphs.join()
    many[0].expect([((rows, 4),) for rows in (1, 2, 3)])
    many[0].wait_built()
    assert len(many[0].snapshot()) == 2
    for graphs in many:
        graphs.close()


def test_a_compiler_is_a_guest_at_first_and_ends_at_once(tmp_path: Path) -> None:
    compiler = blobs_of(tmp_path / "m", tmp_path / "cache").compiler()
    assert compiler is not None
    assert os.getsid(compiler.pid) == compiler.pid
    wait_until(lambda: os.sched_getscheduler(compiler.pid) == os.SCHED_IDLE, "a guest")
    compiler.end()
    assert not Path(f"/proc/{compiler.pid}").exists()
    assert not compiler.compile(((4, 4),))
    compiler.end()


def test_where_no_time_is_left_over_another_compiler_takes_a_tenth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is held still, as on a machine whose cores are all busy."""
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    begun: list[ShapeCompiler] = []

    def begin(*, as_guest: bool = True) -> ShapeCompiler | None:
        compiler = ShapeBlobs.compiler(blobs, as_guest=as_guest)
        assert compiler is not None
        begun.append(compiler)
        if as_guest:
            os.kill(compiler.pid, signal.SIGSTOP)
        else:
            assert os.getpriority(os.PRIO_PROCESS, compiler.pid) == 10
        return compiler

    monkeypatch.setattr(blobs, "compiler", begin)
    graphs = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=GraphMemory())
    assert ask(graphs, 2) is not None
    assert [each.as_guest for each in begun] == [True, False]
    assert not any(Path(f"/proc/{each.pid}").exists() for each in begun)
    graphs.close()


def test_a_compilation_under_way_holds_up_no_end(tmp_path: Path) -> None:
    """The compiler is held still; a load that waited for it would not end."""
    blobs = blobs_of(tmp_path / "m", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    folder = blobs._folder
    folder.mkdir()
    graphs = ShapeGraphs(blobs, lanes=1, size=10, limit=10, memory=GraphMemory())
    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(32):
            taken(graphs, 2)
        wait_until(lambda: graphs._compiler is not None, "the compiler")
        graphs.close()
    assert blobs.made() == []


def test_one_who_gets_no_time_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock, as a compiler does that the kernel never lets go on."""
    monkeypatch.setattr(shape_compiler, "_LOCK_S_MAX", 0.2)
    file = model_files.affine(tmp_path / "m") / "model.onnx"
    job = {
        "file": str(file),
        "rows_max": 32,
        "config": {},
        "folder": str(tmp_path),
        "packed": False,
    }
    with open(tmp_path / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shape_compiler.Maker(job).make(((2, 4),))
    assert (tmp_path / "2x4.graph").is_file()

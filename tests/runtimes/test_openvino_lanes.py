"""Which lanes of a model share a graph, and who frees it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.kit.model_files import affine

from penstock.artifacts.detection.detect import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino import runtime as runtime_module
from penstock.runtimes.openvino.runtime import OpenVinoRuntime


def loaded(folder: Path, *, offline: bool, lanes: int = 2) -> OpenVinoRuntime:
    found = detect(folder)
    return OpenVinoRuntime(
        LoadContext(
            model_dir=found.root,
            description=dataclasses.replace(found.description, lanes=lanes, threads_per_lane=1),
            endpoint_name="e",
            variant_name="v",
            cores=2.0,
            memory_bytes_max=1 << 30,
            offline=offline,
        )
    )


def compiled(runtime: OpenVinoRuntime) -> int:
    """Graphs that its lanes run."""
    return len(runtime._compiled)


def answers(runtime: OpenVinoRuntime) -> list[np.ndarray]:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return [runtime.run(lane, {"x": x})["y"] for lane in range(runtime.lanes)]


def test_a_small_model_of_a_job_has_a_graph_for_each_lane_and_all_answer_alike(
    tmp_path: Path,
) -> None:
    """It runs on the lane's thread then, and hands nothing over to another one."""
    folder = affine(tmp_path)
    offline = loaded(folder, offline=True)
    assert compiled(offline) == 2
    first, second = answers(offline)
    assert np.array_equal(first, second)
    assert np.array_equal(first, answers(loaded(folder, offline=True, lanes=1))[0])
    offline.release_memory()
    assert np.array_equal(first, answers(offline)[1])


def test_online_and_where_memory_is_short_lanes_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = affine(tmp_path)
    assert compiled(loaded(folder, offline=False)) == 1
    monkeypatch.setattr(runtime_module, "bytes_max", lambda memory_bytes_max: 1 << 20)
    assert compiled(loaded(folder, offline=True)) == 1


class _Held:
    """Says when it goes."""

    def __init__(self, name: str, gone: list[str]) -> None:
        self._name, self._gone = name, gone

    def __del__(self) -> None:
        self._gone.append(self._name)


def test_requests_go_after_their_graphs() -> None:
    """The last that goes frees the graph: a request does so without the interpreter's lock."""
    gone: list[str] = []
    runtime = OpenVinoRuntime.__new__(OpenVinoRuntime)
    runtime._packed = runtime._graphs = runtime._pack = None
    runtime._compiled = [_Held("graph", gone)]
    runtime._requests = [_Held("request", gone), _Held("request", gone)]
    runtime.close()
    assert gone == ["graph", "request", "request"]

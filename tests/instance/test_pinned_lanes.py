"""`pinned: true` in a real instance: the lane's thread stays on a core that the loop leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.instance.engines.lane_threads import CoreClaims

CORES = frozenset(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core: none can be set apart")


def pinned_model(folder: Path, lanes: int = 1) -> Path:
    model_files.affine(folder)
    (folder / "model.yaml").write_text(
        f"schema: 1\nruntime: openvino\nfile: model.onnx\nlanes: {lanes}\n"
        "threads_per_lane: 1\npinned: true\n"
    )
    return folder


def cores_of_threads(running: InstanceProcess) -> list[frozenset[int]]:
    tasks = os.listdir(f"/proc/{running.process.pid}/task")
    return [frozenset(os.sched_getaffinity(int(task))) for task in tasks]


def cores_of_loop(running: InstanceProcess) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(running.process.pid))


def a_core_is_free() -> bool:
    """Whoever else runs on this machine may have one for itself."""
    claims = CoreClaims()
    free = bool(claims.claim(1, 1))
    claims.close()
    return free


def test_a_pinned_lane_has_a_core_until_it_is_unloaded(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        wait_until(a_core_is_free, "a core is free")
        assert client.load(1, pinned_model(tmp_path / "m"))["ok"]
        assert client.invoke(1, b"[[1, 0, 0, 2]]").json == {"predictions": [[9.0, 10.5, 12.0]]}
        (own,) = CORES - cores_of_loop(running)
        assert frozenset({own}) in cores_of_threads(running)
        assert client.control(op="unload", copy=1) == {"ok": True, "found": True}
        assert cores_of_loop(running) == CORES
        assert client.load(2, pinned_model(tmp_path / "again"))["ok"]
        assert CORES - cores_of_loop(running) == {own}


def test_where_too_few_cores_are_free_the_model_is_served_all_the_same(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        assert client.load(1, pinned_model(tmp_path / "m", lanes=len(CORES)))["ok"]
        assert client.invoke(1, b"[[1, 0, 0, 0]]").json == {"predictions": [[0.0, 0.5, 1.0]]}
        assert cores_of_loop(running) == CORES
        assert f"pinned: {len(CORES)} cores are not free" in running.log.read_text()

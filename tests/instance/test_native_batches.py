"""Batches of tensors whose shape has a graph run without the interpreter, and answer the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.played_lanes import played

from penstock.artifacts.detection.detect import detect
from penstock.instance.codecs.base import CodecModel
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.engines.tensor import TensorEngine
from penstock.instance.request import Item
from penstock.runtimes.base import LoadContext
from penstock.runtimes.native import native_lane
from penstock.runtimes.openvino.runtime import OpenVinoRuntime

pytestmark = pytest.mark.skipif(native_lane() is None, reason="built without a C compiler")


def runtime_of(folder: Path) -> OpenVinoRuntime:
    found = detect(model_files.affine(folder))
    return OpenVinoRuntime(
        LoadContext(
            model_dir=found.root, description=found.description,
            cache_dir=folder.with_name("cache"), endpoint_name="e", variant_name="v",
            cores=1.0, memory_bytes_max=0,
        )
    )  # fmt: skip


def item(first: int, rows: int) -> Item:
    array = np.arange(first, first + 4 * rows, dtype=np.float32).reshape(rows, 4)
    return Item(None, {"x": array}, rows)


def expected(items: list[Item]) -> list[Any]:
    return [(each.data["x"] @ model_files.weights()).tolist() for each in items]


def test_each_item_of_a_batch_has_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_of(tmp_path / "m")
    for rows in (1, 3):
        for _ in range(33):
            runtime.run(0, {"x": np.zeros((rows, 4), dtype=np.float32)})
        runtime.wait_compiled()
    model = CodecModel(
        name="m", version="1", inputs=runtime.inputs, outputs=runtime.outputs, batched=True
    )

    async def play(threads: LaneThreads) -> None:
        engine = TensorEngine(runtime, model, threads)

        async def answers(items: list[Item]) -> list[Any]:
            got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            engine.run(0, items, 0, got.set_result)
            return [result["y"].tolist() for result in await got]

        unknown = [item(0, 2), item(100, 2)]
        assert await answers(unknown) == expected(unknown), "no graph has four rows"
        monkeypatch.setattr(runtime, "run", None)  # the lane's thread of Python's would fail
        alone, together = [item(0, 1)], [item(0, 1), item(100, 2)]
        assert await asyncio.gather(answers(alone), answers(together)) == [
            expected(alone),
            expected(together),
        ]

    played(play)
    runtime.close()

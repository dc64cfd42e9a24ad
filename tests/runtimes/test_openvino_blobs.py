"""Compiled blobs: the second load of a file reads no graph, and is right."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from penstock.artifacts.description.description import Batching, ModelDescription
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino import runtime as runtime_module
from penstock.runtimes.openvino.runtime import OpenVinoRuntime

#: So little that no graphs of single shapes are worth their memory: those read the graph again.
MEMORY_BYTES = 1000


def write(folder: Path, weight: float, *, rows: int = -1) -> Path:
    """`x` FP32 [rows, 64] -> `y`, its product with a table of `weight`."""
    folder.mkdir(exist_ok=True)
    x = ops.parameter([rows, 64], ov.Type.f32, "x")
    table = ops.constant(np.full((1, 64), weight, dtype=np.float32))
    model = ov.Model([ops.result(ops.multiply(x, table), "y")], [x], "m")
    model.inputs[0].get_tensor().set_names({"x"})
    model.outputs[0].get_tensor().set_names({"y"})
    ov.serialize(model, folder / "model.xml")
    return folder


def load(folder: Path, cache: Path | None, *, rows_max: int = 8, lanes: int = 1) -> OpenVinoRuntime:
    return OpenVinoRuntime(
        LoadContext(
            model_dir=folder,
            description=ModelDescription(
                runtime="openvino",
                file="model.xml",
                batching=Batching(rows_max=rows_max),
                lanes=lanes,
            ),
            endpoint_name="e",
            variant_name="v",
            cores=1,
            memory_bytes_max=MEMORY_BYTES,
            cache_dir=cache,
        )
    )


def answer(runtime: OpenVinoRuntime, rows: int = 2) -> float:
    """The one value that all of the answer has."""
    try:
        y = runtime.run(0, {"x": np.ones((rows, 64), dtype=np.float32)})["y"]
    finally:
        runtime.close()
    assert y.shape == (rows, 64)
    assert np.unique(y).size == 1
    return float(y[0, 0])


def test_the_second_load_reads_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "m", 2.0)
    assert answer(load(folder, tmp_path / "cache")) == 2.0

    def unexpected(*_: object) -> None:
        raise AssertionError("the graph was read again")

    monkeypatch.setattr(runtime_module, "read_model", unexpected)
    assert answer(load(folder, tmp_path / "cache")) == 2.0
    assert answer(load(folder, tmp_path / "cache", lanes=2)) == 2.0


def test_other_weights_beside_the_same_graph_are_another_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", 2.0)
    before = (folder / "model.xml").stat()
    assert answer(load(folder, tmp_path / "cache")) == 2.0
    write(tmp_path / "other", 3.0)
    (tmp_path / "other/model.bin").rename(folder / "model.bin")
    os.utime(folder / "model.xml", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert answer(load(folder, tmp_path / "cache")) == 3.0


def test_a_model_of_a_fixed_batch_size_takes_any_the_second_time_as_well(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", 2.0, rows=1)
    for rows in (3, 5):
        assert answer(load(folder, tmp_path / "cache"), rows) == 2.0
    # As it is in the file, where nothing is to be joined.
    assert answer(load(folder, tmp_path / "cache", rows_max=0), 1) == 2.0
    assert answer(load(folder, tmp_path / "cache"), 4) == 2.0


def test_a_damaged_blob_is_made_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", 2.0)
    assert answer(load(folder, tmp_path / "cache")) == 2.0
    (blob,) = (tmp_path / "cache").glob("files/*/*.blob")
    content = blob.read_bytes()
    blob.chmod(0o600)
    blob.write_bytes(content[: len(content) // 2])
    assert answer(load(folder, tmp_path / "cache")) == 2.0
    blob.write_bytes(b"")
    assert answer(load(folder, tmp_path / "cache")) == 2.0


def test_a_blob_that_is_used_again_is_young_again(tmp_path: Path) -> None:
    """The oldest blobs are the first to go where their disk is full."""
    folder = write(tmp_path / "m", 2.0)
    load(folder, tmp_path / "cache").close()
    (blob,) = (tmp_path / "cache").glob("files/*/*.blob")
    os.utime(blob, (1.0, 1.0))
    load(folder, tmp_path / "cache").close()
    assert blob.stat().st_mtime > 1.0


def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", 2.0)
    assert answer(load(folder, None)) == 2.0
    assert sorted(path.name for path in folder.iterdir()) == ["model.bin", "model.xml"]


def test_a_file_that_is_none_is_an_error_with_and_without_blobs(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", 2.0)
    load(folder, tmp_path / "cache").close()
    (folder / "model.xml").write_text("<net")
    with pytest.raises(ModelError, match=r"model\.xml"):
        load(folder, tmp_path / "cache")

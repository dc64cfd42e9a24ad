"""A model file that crashes its library costs a child process, not the instance."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from tests.kit import model_files

from penstock.artifacts.detection.detect import Detected, detect
from penstock.core.deployment.slot_retries import is_permanent
from penstock.errors import ModelError, NotNowError
from penstock.runtimes import probe, registry
from penstock.runtimes.probe import graph_key


def tried(found: Detected, tmp_path: Path) -> None:
    record, file = registry.record(found.description.runtime), found.description.file
    probe.probe(
        found.root / file, file, library=record.library, trial=record.trial,
        cache_dir=tmp_path / "cache", timeout_s=30.0,
    )  # fmt: skip


def ended_by(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelError:
    """What a probe is that this signal ends."""
    ends = tmp_path / "ends"
    ends.write_text(f"#!/bin/sh\nkill -{name} $$\n")
    ends.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ends))
    found = detect(model_files.affine(tmp_path / "m"))
    with pytest.raises(ModelError) as caught:
        tried(found, tmp_path)
    return caught.value


def test_a_crash_names_the_file_and_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ended_by("SEGV", tmp_path, monkeypatch)
    assert (error.code, is_permanent(error)) == ("model-crashes-runtime", True)
    assert "model.onnx" in error.message
    assert "SIGSEGV" in error.message


def test_a_probe_that_is_killed_from_outside_says_nothing_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ended_by("KILL", tmp_path, monkeypatch)
    assert (error.code, is_permanent(error)) == ("process-killed", False), "it is tried again"


def test_a_file_that_went_well_is_not_probed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    tried(found, tmp_path)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    tried(found, tmp_path)
    assert len(list((tmp_path / "cache" / "probed").iterdir())) == 1


def test_a_changed_file_is_probed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    tried(found, tmp_path)
    (found.root / "model.onnx").write_bytes(b"changed")
    crasher = tmp_path / "crasher"
    crasher.write_text("#!/bin/sh\nkill -ABRT $$\n")
    crasher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crasher))
    with pytest.raises(ModelError, match="SIGABRT"):
        tried(found, tmp_path)


def test_a_file_that_is_refused_in_good_order_is_left_to_the_runtime(tmp_path: Path) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    (found.root / "model.onnx").write_bytes(b"not a model")
    tried(found, tmp_path)
    assert not (tmp_path / "cache" / "probed").exists()


def ir(folder: Path, *, weight: float = 1.0, axis: int = 1, tail: int = 0) -> Path:
    """x FP32 [n, 128] -> its sum over `axis`, times a table of weights."""
    folder.mkdir()
    x = ops.parameter([-1, 128], ov.Type.f32, "x")
    table = ops.constant(np.full((1, 128), weight, dtype=np.float32))
    total = ops.reduce_sum(ops.multiply(x, table), ops.constant(np.array([axis], dtype=np.int64)))
    model = ov.Model([ops.result(total, "y")], [x], "m")
    model.inputs[0].get_tensor().set_names({"x"})
    model.outputs[0].get_tensor().set_names({"y"})
    for at, node in enumerate(model.get_ordered_ops()):
        node.set_friendly_name(f"n{at}")
    ov.serialize(model, folder / "model.xml")
    with open(folder / "model.bin", "ab") as weights:
        weights.write(bytes(tail))
    return folder


def test_models_of_one_graph_with_other_weights_are_probed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of customers' models have one shape, and a probe takes longer than a load."""
    first = detect(ir(tmp_path / "a"))
    tried(first, tmp_path)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    second = detect(ir(tmp_path / "b", weight=2.0))
    tried(second, tmp_path)
    for other in (ir(tmp_path / "c", axis=0), ir(tmp_path / "d", tail=1)):
        found = detect(other)
        with pytest.raises(NotNowError, match="no process"):
            tried(found, tmp_path)


def test_a_graph_whose_weights_are_not_all_there_is_like_no_other(tmp_path: Path) -> None:
    whole = ir(tmp_path / "a") / "model.xml"
    assert graph_key(whole) is not None
    cut = ir(tmp_path / "b")
    (cut / "model.bin").write_bytes((cut / "model.bin").read_bytes()[:-8])
    assert graph_key(cut / "model.xml") is None
    (cut / "model.bin").unlink()
    assert graph_key(cut / "model.xml") is None
    (cut / "model.xml").write_text("<net><data offset='x' size='1'/></net>")
    (cut / "model.bin").write_bytes(b"1")
    assert graph_key(cut / "model.xml") is None


def test_a_table_is_no_table_where_its_shape_says_more_than_its_bytes(tmp_path: Path) -> None:
    """The shape is a word of the file: one that is longer than its bytes hides nothing."""
    keys = set()
    for value in (b"\0" * 8, b"\1" * 8):
        (tmp_path / "m.xml").write_text(
            "<net><data element_type='f32' shape='1000' offset='0' size='8'/></net>"
        )
        (tmp_path / "m.bin").write_bytes(value)
        keys.add(graph_key(tmp_path / "m.xml"))
    assert len(keys) == 2


@pytest.mark.parametrize(("elements", "keys"), [(7, 2), (8, 1)])
def test_a_bias_for_each_head_is_weights_and_factors_for_each_axis_are_not(
    tmp_path: Path, elements: int, keys: int
) -> None:
    """Each fine-tuned T5 has such a bias of its own: eight numbers, and it was like no other."""
    found = set()
    for value in (b"\0", b"\1"):
        (tmp_path / "m.xml").write_text(
            f"<net><data element_type='f32' shape='1, 1, {elements}' offset='0' "
            f"size='{4 * elements}'/></net>"
        )
        (tmp_path / "m.bin").write_bytes(value * 4 * elements)
        found.add(graph_key(tmp_path / "m.xml"))
    assert len(found) == keys

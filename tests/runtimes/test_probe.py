"""A model file that crashes its library costs a child process, not the instance."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.fakes import model_files

from penstock.artifacts.detect import detect
from penstock.errors import ModelError
from penstock.runtimes import probe


def test_a_crash_names_the_file_and_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crasher = tmp_path / "crasher"
    crasher.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crasher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crasher))
    found = detect(model_files.affine(tmp_path / "m"))
    with pytest.raises(ModelError) as caught:
        probe.probe(found.root, found.description, tmp_path / "cache", 30.0)
    assert caught.value.code == "model-crashes-runtime"
    assert "model.onnx" in caught.value.message
    assert "SIGSEGV" in caught.value.message


def test_a_file_that_went_well_is_not_probed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    probe.probe(found.root, found.description, tmp_path / "cache", 30.0)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    probe.probe(found.root, found.description, tmp_path / "cache", 30.0)
    assert len(list((tmp_path / "cache" / "probed").iterdir())) == 1


def test_a_changed_file_is_probed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    probe.probe(found.root, found.description, tmp_path / "cache", 30.0)
    (found.root / "model.onnx").write_bytes(b"changed")
    crasher = tmp_path / "crasher"
    crasher.write_text("#!/bin/sh\nkill -ABRT $$\n")
    crasher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crasher))
    with pytest.raises(ModelError, match="SIGABRT"):
        probe.probe(found.root, found.description, tmp_path / "cache", 30.0)


def test_a_file_that_is_refused_in_good_order_is_left_to_the_runtime(tmp_path: Path) -> None:
    found = detect(model_files.affine(tmp_path / "m"))
    (found.root / "model.onnx").write_bytes(b"not a model")
    probe.probe(found.root, found.description, tmp_path / "cache", 30.0)
    assert not (tmp_path / "cache" / "probed").exists()

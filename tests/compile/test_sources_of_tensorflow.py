"""What TensorFlow and Keras save is not compiled: the error says what serves it, and what to do."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from penstock.compile.source.source import HUGGING_FACE, open_source
from penstock.errors import CallerError


def keras_file(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", "")
    return path


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_of_keras_is_named(tmp_path: Path, inside: bool) -> None:
    path = keras_file(tmp_path / "model.keras")
    with pytest.raises(CallerError, match="a model of Keras, which is not compiled") as caught:
        open_source(tmp_path if inside else path, trust=False)
    assert caught.value.code == "source-unknown"
    assert "penstock deploy" in caught.value.hint
    assert "tf2onnx.convert --keras" in caught.value.hint


def test_a_saved_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(CallerError, match="a SavedModel, which is not compiled") as caught:
        open_source(tmp_path, trust=False)
    assert "tf2onnx.convert --saved-model" in caught.value.hint


def test_beside_weights_of_hugging_face_they_change_nothing(tmp_path: Path) -> None:
    keras_file(tmp_path / "tf_model.keras")
    (tmp_path / "saved_model.pb").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "model.safetensors").write_bytes(content)
    assert open_source(tmp_path, trust=False).kind == HUGGING_FACE


def test_other_files_are_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_text("no archive")
    with pytest.raises(CallerError, match="none of the kinds that are understood"):
        open_source(tmp_path / "model.keras", trust=False)

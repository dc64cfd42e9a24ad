"""The record of the runtime "keras", and its detection of a model that Keras saved."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.detection import keras_files
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord


def _is_keras(path: Path) -> bool:
    return bool(keras_files.kind_of(path))


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    keras_files.check(root / file, trusted=trusted)
    return FileFacts()


RECORD: Final = RuntimeRecord(
    name="keras",
    title="Keras models (*.keras, *.h5), by Keras in a worker process",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=3.0, each_bytes=512 * 2**20),
    process_per_lane=True,
    understood="a Keras model (*.keras, *.h5)",
    suffixes=(".keras", ".h5", ".hdf5"),
    recognises=_is_keras,
    check=_check,
    framework=("keras>=3", "tensorflow-cpu"),
    handler="penstock.runtimes.keras.handler",
)

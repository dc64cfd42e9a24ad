"""Compiles graphs of single shapes for other processes, and keeps them in the machine's cache.

`python -m penstock.runtimes.openvino.shape_compiler`: the first line of standard input is the job
(`file`, `rows_max`, `config`, `folder`, `packed`), each further one a shape, or the wish for a
packed graph's layout, and each of these is answered by a line: `made` or `failed`. One process per
folder compiles at a time; what another one has made meanwhile is not made again. It ends with its
input.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from penstock.core.batching.hot_shapes import Shape
from penstock.runtimes.openvino.packing import NotPacked, PackedModel, packed, verify
from penstock.runtimes.openvino.runtime import read_model, shared_core
from penstock.runtimes.openvino.shape_blobs import layout_place, place_of
from penstock.runtimes.packed_rows import layout_bytes

_LOCK_S_MAX: Final = 10.0  #: some fifty times what a graph takes
_LOOK_S: Final = 0.05


class Maker:
    """Reads its model, and imports OpenVINO for it, when something is to be made that nobody else
    has made: where many copies begin at once, one process works, and the others look on."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._config = job["config"]
        self._folder = Path(job["folder"])
        self._file, self._rows_max = Path(job["file"]), job["rows_max"]
        self._packs = job["packed"]
        self._packed: PackedModel | None = None
        self._general: Any = None

    def make(self, shape: Shape) -> bool:
        """Whether the blob is there now."""
        place = place_of(self._folder, shape)
        return self._made(place, lambda: self._compiled(shape))

    def lay_out(self) -> bool:
        """Whether it is written what a packed graph takes and gives, or why there is none."""
        return self._made(layout_place(self._folder), self._layout)

    def _made(self, place: Path, make: Callable[[], bytes]) -> bool:
        with open(self._folder / "lock", "wb") as lock:
            _lock_or_wait(lock)
            if place.is_file():
                return True
            try:
                self._write(place, make())
            except (OSError, RuntimeError, ValueError, NotPacked):  # OpenVINO's are RuntimeErrors
                return False
        return True

    def _layout(self) -> bytes:
        try:
            verify(self._read(), self._as_packed(), self._config)
        except (NotPacked, RuntimeError, ValueError) as error:
            return layout_bytes(None, str(error))
        return layout_bytes(self._as_packed().layout, "")

    def _compiled(self, shape: Shape) -> bytes:
        model = self._model().clone()
        model.reshape(dict(zip(model.inputs, map(list, shape), strict=True)))
        if any(port.get_partial_shape().is_dynamic for port in model.outputs):
            raise ValueError("the shape of an output depends on the inputs' values")
        blob = shared_core().compile_model(model, "CPU", self._config).export_model()
        return bytes(blob.read() if hasattr(blob, "read") else blob)

    def _model(self) -> Any:
        if self._packs:
            return self._as_packed().model
        if self._general is None:
            self._general = self._read()
        return self._general

    def _as_packed(self) -> PackedModel:
        """Raises NotPacked."""
        if self._packed is None:
            self._packed = packed(self._read())
        return self._packed

    def _read(self) -> Any:
        return read_model(self._file, self._rows_max)[0]

    @staticmethod
    def _write(place: Path, blob: bytes) -> None:
        """Nobody sees a part of it."""
        made = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            made.write_bytes(blob)
            made.replace(place)
        finally:
            made.unlink(missing_ok=True)


def _lock_or_wait(lock: BinaryIO) -> None:
    """Locks, or gives up waiting: whoever has the lock may get no time at all, and a blob that is
    made twice does no harm."""
    until = time.monotonic() + _LOCK_S_MAX
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= until:
                return None
        time.sleep(_LOOK_S)


def main() -> int:
    read = iter(sys.stdin.buffer.readline, b"")
    first = next(read, b"")
    if not first:
        return 0
    maker = Maker(orjson.loads(first))
    for line in read:
        asked = orjson.loads(line)
        if "shape" in asked:
            made = maker.make(tuple(tuple(sizes) for sizes in asked["shape"]))
        else:
            made = maker.lay_out()
        sys.stdout.write("made\n" if made else "failed\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

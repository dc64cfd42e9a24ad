"""Compiled graphs of one shape, in the cache of a machine: made once, used by all copies.

A blob is made by a process of its own (`shape_compiler.py`). At first it is a guest of the machine:
it gets the time that nobody else wants. Where there is none, a second one gets a tenth: a server
that has all its cores busy needs its graphs most. What was made for another version of OpenVINO,
another processor or other settings is not found.
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from penstock import guests, scheduling
from penstock.core.batching.hot_shapes import Shape
from penstock.runtimes.openvino.fixed_graphs import FixedGraph, FixedRun
from penstock.runtimes.processor import instruction_set_here

_PROGRAM: Final = "penstock.runtimes.openvino.shape_compiler"
_SUFFIX: Final = ".graph"
#: What a blob holds; another form has another name
_FORM: Final = "2: all shapes fixed"
#: The same for packed graphs: what `packing` makes
PACKED_FORM: Final = 1


class ShapeBlobs:
    """The graphs of one model file. `folder`: for all that was compiled from this file.

    `rows_max`: the model's, as it changes the graph. `config`: OpenVINO's properties. `inputs` and
    `outputs`: the dtypes of the graph's, in its order. `packed`: graphs of texts side by side
    (`packing.py`), whose `inputs` are those of the layout.
    """

    def __init__(
        self,
        file: Path,
        folder: Path,
        *,
        rows_max: int,
        config: Mapping[str, Any],
        inputs: Sequence[np.dtype[Any]],
        outputs: Mapping[str, np.dtype[Any]],
        packed: bool = False,
    ) -> None:
        import openvino

        self._inputs, self._outputs = tuple(inputs), dict(outputs)
        self._config = dict(config)
        facts = [_FORM, openvino.get_version(), str(instruction_set_here()), str(rows_max)]
        facts += [f"{name}={value}" for name, value in sorted(config.items())]
        key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        self._folder = folder / (f"packed-{PACKED_FORM}-{key}" if packed else f"shapes-{key}")
        self._job = {
            "file": str(file), "rows_max": rows_max, "config": self._config, "packed": packed,
        }  # fmt: skip

    def take_inputs(self, inputs: Sequence[np.dtype[Any]]) -> None:
        """The dtypes of the inputs, where they are known only now."""
        self._inputs = tuple(inputs)

    def layout(self) -> bytes | None:
        """What is known of the packed graph (`packed_rows.layout_of`); None: nothing yet."""
        try:
            return layout_place(self._folder).read_bytes()
        except OSError:
            return None

    def made(self) -> list[Shape]:
        """Those that there are, the last used first."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError, ValueError):  # removed just now
                found.append((path.stat().st_mtime_ns, _shape_of(path.stem)))
        return [shape for _, shape in sorted(found, reverse=True)]

    def has(self, shape: Shape) -> bool:
        return self._path(shape).is_file()

    def load(self, shape: Shape, count: int) -> list[FixedRun] | None:
        """`count` requests of one graph, each of which has run once. None: there is no such blob,
        or it can't be used; then it is removed."""
        path = self._path(shape)
        try:
            os.utime(path)
            graph = FixedGraph(path, self._config)
            return [FixedRun(graph, self._inputs, self._outputs) for _ in range(count)]
        except OSError:
            return None
        except (RuntimeError, ValueError):  # not a graph, or not this one's
            with suppress(OSError):
                path.unlink()
            return None

    def compiler(self, *, as_guest: bool = True) -> ShapeCompiler | None:
        """A process that makes blobs; None: it can't be started. The caller must end it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return ShapeCompiler({**self._job, "folder": str(self._folder)}, as_guest=as_guest)
        except OSError:
            return None

    def _path(self, shape: Shape) -> Path:
        return place_of(self._folder, shape)


def layout_place(folder: Path) -> Path:
    """The file with a packed graph's layout."""
    return folder / "layout.json"


def place_of(folder: Path, shape: Shape) -> Path:
    """The file of a blob: `8x16+8x16.graph` for two inputs of 8 rows and 16 tokens."""
    return folder / ("+".join("x".join(map(str, sizes)) for sizes in shape) + _SUFFIX)


def _shape_of(name: str) -> Shape:
    """Raises ValueError."""
    return tuple(
        tuple(int(size) for size in sizes.split("x") if sizes) for sizes in name.split("+")
    )


class ShapeCompiler:
    """Use: `compile`, any number of times, and `end`. Where this process ends, it ends, too, with
    its work."""

    def __init__(self, job: Mapping[str, Any], *, as_guest: bool) -> None:
        """Raises OSError."""
        argv = (sys.executable, "-m", _PROGRAM)
        self.as_guest = as_guest
        self._process = subprocess.Popen(
            guests.command(argv) if as_guest else argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # OpenVINO's words about a shape that does not fit
            bufsize=0,
            # A group of its own for the kernel, whose weight is set as a whole
            start_new_session=True,
        )
        self._asking = threading.Lock()  #: a pipe is not closed below who reads it
        if not as_guest:
            scheduling.give_a_tenth(self._process.pid)
        self._tell(job)

    @property
    def pid(self) -> int:
        return self._process.pid

    def compile(self, shape: Shape, *, s_max: float | None = None) -> bool:
        """Waits until the blob is made. False: the shape does not fit, or the process has ended.
        Raises TimeoutError; then the process is of no more use."""
        return self._made({"shape": shape}, s_max)

    def lay_out(self, *, s_max: float | None = None) -> bool:
        """The same for the layout of a packed graph."""
        return self._made({"layout": True}, s_max)

    def _made(self, wish: Mapping[str, Any], s_max: float | None) -> bool:
        out = self._process.stdout
        assert out is not None
        with self._asking:
            if out.closed:  # by `end`
                return False
            self._tell(wish)
            readable, _, _ = select.select([out], [], [], s_max)
            if not readable:
                raise TimeoutError
            return out.readline() == b"made\n"

    def end(self) -> None:
        """At once, on any thread; whoever waits for an answer gets the pipe's end. Idempotent."""
        if self._process.poll() is None:
            guests.end(self._process.pid)
            self._process.wait()
        with self._asking:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _tell(self, words: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, which the answer's end says
            self._process.stdin.write(orjson.dumps(words) + b"\n")

"""Tries a native model file in a process of its own before the instance loads it.

A damaged file can crash a native library; then only the probe dies, and the instance returns a
clear error. A library may also refuse a whole file, mostly for an operator that it has not. Then
another one may take it (`loader.with_runtime`), so the refusal is returned with the library's
words. Each artifact is probed once per machine and library version: a marker beside the compiled
blobs says that it succeeded, or names the operators that are missing. Any other refusal may have
come from a lack of memory, so the file is probed again. Models of one graph with different weights
need only one probe (`graph_key`). `python -m penstock.runtimes.probe TRIAL FILE` is the child;
TRIAL is the "module:function" that a runtime's record names.

`graph_key` is equal for OpenVINO files with the same graph and different weights. Hundreds of
customers' models have one shape. Whether a library survives reading such a file depends on its
graph, its sizes and the numbers that give lengths and positions; tables of weights have no
influence. So the key covers the graph's text and all constants except large tables of
floating-point numbers and of small integers (quantised weights).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from penstock.core.blame.crashed_instances import is_crash
from penstock.errors import ModelError, NotNowError
from penstock.runtimes.base import OperatorsMissingError
from penstock.runtimes.environment import for_models
from penstock.runtimes.record import imported

#: Element types of weights -> the number of elements from which a constant is a table of them.
#: Shapes, axes and indices have other types or are shorter: floating-point numbers that give a
#: length (factors of a resize) are one for each axis. The bias for each head of a T5 has eight.
_TABLES: Final = {
    **dict.fromkeys(("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f4e2m1", "nf4"), 8),
    **dict.fromkeys(("i8", "u8", "i4", "u4"), 4096),
}


_REASON_MAX: Final = 600  #: characters of a library's words


def graph_key(xml: Path) -> str | None:
    """A digest; None where the file is no IR with whole weights beside it, or can't be read."""
    try:
        text = xml.read_bytes()
        with open(xml.with_suffix(".bin"), "rb") as weights:
            digest = hashlib.sha256(text)
            size = weights.seek(0, 2)
            digest.update(b"\0%d" % size)
            # Entities can't be expanded from outside, and expat bounds their growth.
            for element in ElementTree.fromstring(text).iter("data"):  # noqa: S314
                begin, count = element.get("offset"), element.get("size")
                if begin is None or count is None:
                    continue
                if int(begin) + int(count) > size:
                    return None
                if not _is_table(element):
                    weights.seek(int(begin))
                    digest.update(weights.read(int(count)))
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    return digest.hexdigest()


def _is_table(constant: ElementTree.Element) -> bool:
    least = _TABLES.get(constant.get("element_type", ""))
    if least is None:
        return False
    elements = 1
    for length in constant.get("shape", "").split(","):
        elements *= int(length) if length.strip() else 1
    # The file itself states the shape; every type takes at least a byte per two elements.
    return elements >= least and int(constant.get("size", "0")) * 2 >= elements


@dataclass(frozen=True, slots=True)
class FileRefusal:
    """A library does not take a file, and said so."""

    reason: str  #: its words, or the operators' names
    operators: tuple[str, ...] = ()  #: those that it lacks, as domain.name


def probe(
    path: Path, file: str, *, library: str, trial: str, cache_dir: Path | None, timeout_s: float
) -> FileRefusal | None:
    """Blocks (call it on a thread). Returns why the library does not take the file; None: it does.
    Raises ModelError if the file crashes its library.

    Args:
        file: the name of `path` in errors.
        library: the library that reads it; its version is part of the marker.
        trial: "module:function" that is called with the path, and may raise or crash.
    """
    marker = _marker(path, library, cache_dir)
    if marker is not None and marker.exists():
        return _refusal(marker.read_bytes())
    alike = _marker_alike(path, library, cache_dir)
    if marker is not None and alike is not None and alike.exists():
        marker.touch()
        return None
    ours = str(Path(__file__).resolve().parents[2])
    try:
        child = subprocess.run(
            [sys.executable, "-m", "penstock.runtimes.probe", trial, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            env={**for_models(), "PYTHONPATH": ours},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            "load-timeout", f"{file} could not be read within {timeout_s:g} s"
        ) from None
    except OSError as error:
        raise NotNowError("no-process", f"no process can be started: {error}") from None
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        if not is_crash(child.returncode):
            raise ModelError(
                "process-killed",
                f"{file}: the process that tries it was ended by {name}",
                hint="It says nothing of the file, which is tried again; mostly memory ran out.",
            )
        raise ModelError(
            "model-crashes-runtime",
            f"{file}: reading it ended {library} with {name}",
            hint="Compare the file with the original: a damaged one does this. If it is whole, "
            f"{library} has a fault: export it with another opset, or name another runtime.",
        )
    if child.returncode == 0:
        for good in filter(None, (marker, alike)):
            good.parent.mkdir(parents=True, exist_ok=True)
            good.touch()
        return None
    told = child.stdout.splitlines()[-1:]
    refusal = _refusal(told[0] if told else b"")
    if refusal is None:
        return FileRefusal(f"the process that tries it ended with status {child.returncode}")
    if refusal.operators and marker is not None:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_bytes(told[0])
    return refusal


def _refusal(told: bytes) -> FileRefusal | None:
    """What the child printed, or left in a marker; None: nothing, or what can't be read."""
    try:
        value = json.loads(told)
        return FileRefusal(str(value["reason"]), tuple(map(str, value["operators"])))
    except (ValueError, KeyError, TypeError):
        return None


def _marker(path: Path, library: str, cache_dir: Path | None) -> Path | None:
    """Artifacts never change in their cache, so path, size and time identify the content."""
    if cache_dir is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return _named(f"{path}\0{status.st_size}\0{status.st_mtime_ns}", library, cache_dir)


def _marker_alike(path: Path, library: str, cache_dir: Path | None) -> Path | None:
    """The marker for all files with the same graph."""
    if cache_dir is None or path.suffix != ".xml":
        return None
    key = graph_key(path)
    return None if key is None else _named(f"graph {key}", library, cache_dir)


def _named(key: str, library: str, cache_dir: Path) -> Path:
    version = importlib.metadata.version(library)
    name = hashlib.sha256(f"{key}\0{library}\0{version}".encode()).hexdigest()
    return cache_dir / "probed" / name


def main(trial: str, file: str) -> int:
    """Exits 0 if the library accepts the file, 1 if it refuses it; the last line says why."""
    try:
        imported(trial)(file)
    except Exception as error:
        reason = " ".join(str(error).split())[:_REASON_MAX] or type(error).__name__
        operators = error.operators if isinstance(error, OperatorsMissingError) else ()
        print(json.dumps(asdict(FileRefusal(reason, operators))), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2]))  # no cleanup: the result is known already

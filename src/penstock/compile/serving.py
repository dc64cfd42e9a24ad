"""Compiles models that are deployed uncompiled: once per content, into a cache.

An instance calls this with an unpacked Hugging Face directory. A separate process compiles, so that
no server imports PyTorch, under a lock per content, so that ten copies of a model compile it once.
Entries appear by one rename and never change.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock import __version__
from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.generation_layout import is_language_model
from penstock.compile.libraries import missing
from penstock.compile.source.source import open_source
from penstock.compile.targets import AUTO, target_of
from penstock.core.blame.crashed_instances import is_crash
from penstock.distribution import install_command
from penstock.durable_files import try_lock
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, from_dict
from penstock.runtimes.processor import instruction_set_here

_POLL_S = 0.1

_children: set[int] = set()


def compiling_pids() -> tuple[int, ...]:
    """Processes of the compiles that this process runs now: their memory is not the instance's."""
    return tuple(_children)


def needs_compiling(root: Path) -> bool:
    """Whether `root` has weights, but nothing that a runtime can load."""
    root = _step_into(root)
    served = (model_yaml.FILE_NAME, "code/inference.py", "config.pbtxt")
    if any((root / name).exists() for name in served):
        return False
    if any(next(root.glob(pattern), None) for pattern in ("*.xml", "*.onnx")):
        return False
    described = (root / "config.json").is_file() or (root / "modules.json").is_file()
    return described and next(root.rglob("*.safetensors"), None) is not None


def compile_for_serving(
    root: Path,
    cache_dir: Path,
    *,
    digest: str = "",
    target: str = AUTO,
    timeout_s: float = 3600.0,
    cancelled: threading.Event | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Path:
    """The artifact that `root` compiles to, from the cache if it was compiled before.

    Blocks, for minutes with a large model: call it on a thread.

    Args:
        root: an unpacked Hugging Face directory.
        cache_dir: a folder for this function alone, shared by all processes of the machine.
        digest: of the content of `root`, if known; "" reads all of it.
        target: as for `penstock compile`. "auto" is a rule here, because measuring would take time
            and the cores of served models: the CPU's BF16 where it has it, else FP32, and INT8
            weights for language models, whose speed is that of reading the weights.
        cancelled: once it is set, the compile soon stops.
        log: called on a thread with each line that the compile prints.

    Raises CallerError (`compile-not-installed`, and those of the compile, `parity-failed` among
    them), NotNowError (`compile-timeout`, `compile-cancelled`), ModelError (`compile-crashed`).
    """
    root = _step_into(root)
    if target == AUTO:
        target = "cpu-int8" if is_language_model(root) else target_of(AUTO).name
    digest = digest or open_source(root, trust=False).digest
    # the proof holds for this instruction set only
    chosen = [target, __version__, instruction_set_here().name]
    made_by = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()
    key = f"{digest}-{made_by[:12]}"  # housekeeping reads the digest from the name
    entry = cache_dir / key
    if (entry / model_yaml.FILE_NAME).is_file():
        os.utime(entry)  # marks the time of last use
        return entry
    lacking = missing()
    if lacking:
        raise CallerError(
            "compile-not-installed",
            "the model is Hugging Face weights, which must be compiled before they are served, "
            f"and {', '.join(lacking)} are not installed here",
            hint="Run 'penstock compile' elsewhere and deploy what it makes, or install them here: "
            + install_command("compile"),
        )
    until = time.monotonic() + timeout_s
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _locked(cache_dir / f".{key}.lock", until, cancelled):
        if not (entry / model_yaml.FILE_NAME).is_file():
            _compile_in_child(root, entry, target, until, cancelled, log)
    return entry


def _step_into(root: Path) -> Path:
    """The single folder around everything, as `tar -czf model.tar.gz my_model` makes it, or
    `root`."""
    entries = list(root.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else root


def _compile_in_child(
    root: Path,
    entry: Path,
    target: str,
    until: float,
    cancelled: threading.Event | None,
    log: Callable[[str], None],
) -> None:
    try:
        child = start_child([str(root), str(entry), target])
    except OSError as error:
        raise NotNowError("no-process", f"no process can be started: {error}") from None
    _children.add(child.pid)
    with child:
        # Read on a thread: a child would block when it has printed more than a pipe holds.
        output: list[str] = []

        def read() -> None:
            for line in child.stdout or ():
                output.append(line)
                if not line.startswith("{"):  # an error for this process
                    log(line.rstrip())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while child.poll() is None:
                _check(until, cancelled, "compiling the model")
                time.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            _children.discard(child.pid)
        reader.join(timeout=10.0)
    if child.returncode != 0:
        raise child_failure(child.returncode, output)


@contextmanager
def _locked(path: Path, until: float, cancelled: threading.Event | None) -> Iterator[None]:
    # Never deleted: two processes could then lock two files under one name.
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not try_lock(lock):
            _check(until, cancelled, "another process compiles this model, which")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(lock)


def _check(until: float, cancelled: threading.Event | None, what: str) -> None:
    if cancelled is not None and cancelled.is_set():
        raise NotNowError("compile-cancelled", "nobody waits for the compile any more")
    if time.monotonic() >= until:
        raise NotNowError(
            "compile-timeout",
            f"{what} took longer than it may",
            hint="Compile it once with 'penstock compile' and deploy what it makes.",
        )


_WORDS_CHARS_MAX = 2000


def start_child(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts `penstock.compile` with these arguments. Raises OSError."""
    sources = str(Path(__file__).resolve().parents[2])
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.compile", *arguments],
        stdin=subprocess.PIPE,  # the child ends when this closes with our process
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": sources, **(environment or {})},
    )


def child_failure(code: int, output: Sequence[str]) -> PenstockError:
    """The error: the last line of output as JSON, unless the process died in another way."""
    try:
        return from_dict(json.loads(output[-1]))
    except (ValueError, IndexError, AttributeError):
        words = "".join(output)[-_WORDS_CHARS_MAX:].strip()
        story = f"compiling ended with status {code}: {words or 'no output'}"
        if not is_crash(code):
            hint = "It is tried again where somebody waits for the model; mostly memory ran out."
            return ModelError("process-killed", story, hint=hint)
        return ModelError(
            "compile-crashed", story, hint="Run 'penstock compile' on the model by hand."
        )

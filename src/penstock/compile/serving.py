"""Compiles models that are deployed uncompiled: once per content, into a cache.

An instance calls this with an unpacked Hugging Face directory. A separate process compiles, so that
no server imports PyTorch, under a lock per content, so that ten copies of a model compile it once.
Where the server's Python has no libraries for it, it runs in an environment of its own
(`environment`). Entries appear by one rename and never change.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock import __version__
from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.generation_layout import is_language_model
from penstock.compile.child import child_failure, start_child, start_walled, status_of
from penstock.compile.libraries import missing
from penstock.compile.source.source import open_source
from penstock.compile.targets import AUTO, target_of
from penstock.distribution import install_command
from penstock.durable_files import try_lock
from penstock.errors import CallerError, NotNowError
from penstock.runtimes.confinement.walls import make_scratch, remove_scratch
from penstock.runtimes.environments.store import EnvironmentLease, EnvironmentMade
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
    environment: Callable[[], EnvironmentLease] | None = None,
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
        environment: gives one to compile in, where the server's own Python can't; None: there is
            none.

    Raises CallerError (`compile-not-installed`, and those of the compile, `parity-failed` among
    them), NotNowError (`compile-timeout`, `compile-cancelled`), ModelError (`compile-crashed`), and
    what `environment` raises.
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
    until = time.monotonic() + timeout_s
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _libraries(environment) as made, _locked(cache_dir / f".{key}.lock", until, cancelled):
        if not (entry / model_yaml.FILE_NAME).is_file():
            _compile_in_child(root, entry, target, made, until, cancelled, log)
    return entry


@contextmanager
def _libraries(
    environment: Callable[[], EnvironmentLease] | None,
) -> Iterator[EnvironmentMade | None]:
    """The environment to compile in, held meanwhile; None: the server's own has what it takes."""
    lacking = missing()
    if not lacking:
        yield None
        return
    if environment is None:
        raise CallerError(
            "compile-not-installed",
            "the model is Hugging Face weights, which must be compiled before they are served, "
            f"and {', '.join(lacking)} are not installed here",
            hint="Run 'penstock compile' elsewhere and deploy what it makes, set "
            "control.environments to on, or install them here: " + install_command("compile"),
        )
    with closing(environment()) as lease:
        yield lease.made


def _step_into(root: Path) -> Path:
    """The single folder around everything, as `tar -czf model.tar.gz my_model` makes it, or
    `root`."""
    entries = list(root.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else root


def _compile_in_child(
    root: Path,
    entry: Path,
    target: str,
    made: EnvironmentMade | None,
    until: float,
    cancelled: threading.Event | None,
    log: Callable[[str], None],
) -> None:
    scratch = make_scratch()
    try:
        arguments = [str(root), str(entry), target]
        if made is None:
            child = start_child(arguments)
        else:
            child = start_walled(arguments, made, read=root, write=entry.parent, scratch=scratch)
    except OSError as error:
        remove_scratch(scratch)
        raise NotNowError("no-process", f"no process can be started: {error}") from None
    try:
        status, output = _followed(child, until, cancelled, log)
    finally:
        remove_scratch(scratch)
    if status != 0:
        raise child_failure(status if made is None else status_of(status), output)


def _followed(
    child: subprocess.Popen[str],
    until: float,
    cancelled: threading.Event | None,
    log: Callable[[str], None],
) -> tuple[int, list[str]]:
    """The exit status, and what was printed. The child has ended, whatever is raised."""
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
    return child.returncode, output


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

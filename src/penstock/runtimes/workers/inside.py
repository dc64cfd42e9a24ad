"""The frame of every worker process: reads INIT, loads, serves, and ends with its instance.

`import_code` makes an artifact's Python file a module of the process.

Imports the standard library, `errors`, `stacks` and modules that do the same: an engine may run in
another interpreter than the instance's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from penstock import stacks
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.confinement.parent_death import die_with_parent
from penstock.runtimes.workers import wire
from penstock.runtimes.workers.failures import LOG_HINT, error_bytes, log_traceback, model_error

Model = TypeVar("Model")


def main(serve: Callable[[socket.socket], None]) -> NoReturn:
    """Serves on the descriptor that the first argument names. The process ends when the socket
    does.

    The process also dies with its instance if it hangs (PR_SET_PDEATHSIG).
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server
    stacks.write_when_asked()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.setblocking(True)
    status = 0
    try:
        serve(channel)
    except OSError:
        pass  # the instance is gone
    except BaseException as error:
        log_traceback(error)
        status = 1
    with contextlib.suppress(BaseException):  # a model may have closed or replaced them
        sys.stdout.flush()
        sys.stderr.flush()
    # A model's threads must not keep the process alive, and libraries may crash at exit
    os._exit(status)


def explain(error: BaseException, init: dict[str, Any]) -> PenstockError:
    """The error, with a hint, for any exception or exit of a model's code while it loads."""
    hint = LOG_HINT
    if isinstance(error, ImportError) and init.get("requirements"):
        hint = (
            f"{init['requirements']} is not installed by itself: install what it names into "
            "the server's Python environment."
        )
    return model_error(error, where=init["file"], hint=hint)


def loaded(
    channel: socket.socket,
    load: Callable[[dict[str, Any]], Model],
    *,
    explain: Callable[[BaseException, dict[str, Any]], PenstockError] = explain,
    about: Callable[[Model], dict[str, Any]] = lambda model: {},
) -> tuple[Model, dict[str, Any], Iterator[tuple[int, int, bytes]]] | None:
    """Answers INIT with READY and the result of `about`, or with FAILED and returns None.

    Returns the model, the content of INIT, and the messages that follow.
    """
    messages = wire.read_messages(channel.makefile("rb", buffering=1 << 16))
    kind, _, payload = next(messages, (0, 0, b""))
    if kind != wire.INIT:
        return None  # the instance is gone
    init = json.loads(payload)
    try:
        model = load(init)
    except BaseException as error:
        if not isinstance(error, PenstockError):
            log_traceback(error)
        channel.sendall(wire.message(wire.FAILED, error_bytes(explain(error, init))))
        return None
    channel.sendall(wire.message(wire.READY, json.dumps(about(model)).encode()))
    return model, init, messages


def import_code(path: Path) -> ModuleType:
    """The model's file as a module; its folder comes first on sys.path, as the toolkits do."""
    sys.path.insert(0, str(path.parent))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError("model-code-failed", f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

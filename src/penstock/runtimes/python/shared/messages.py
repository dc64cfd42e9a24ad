"""Messages between an instance and a shared worker, and which models may share one.

Each job is two messages: FOR names the model and the job's number, the next one is the job itself:
LOAD, UNLOAD, or a BATCH as for any Python worker. Jobs are done one after the other, in order, and
answered with one message each:

    FOR          model u32, number u32
    LOAD         JSON: content of `runtime.init_message`, its environment, where its output goes
    LOADED       JSON: growth_bytes, libraries_bytes, own_bytes; or NOT_LOADED, an error's bytes
    UNLOAD       nothing
    UNLOADED     JSON: own_bytes
    BATCH        answered by REPLIES (`batches`)

In memory that both processes share, the worker writes what it began last: job number, model and
item.

`may_share` and `kind_of` say which Python models may share a process; `of_process` and `of_model`
say which environment variables they share there.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.runtimes.base import LoadContext
from penstock.runtimes.workers.environment import worker_environment
from penstock.runtimes.workers.wire import message

FOR: Final = 10
LOAD: Final = 11
LOADED: Final = 12
NOT_LOADED: Final = 13
UNLOAD: Final = 14
UNLOADED: Final = 15

_FOR = struct.Struct("<II")
_BUSY = struct.Struct("<III")


def for_model(model: int, number: int) -> bytes:
    return message(FOR, _FOR.pack(model, number))


def read_for(payload: bytes) -> tuple[int, int]:
    """(model, number)."""
    model, number = _FOR.unpack(payload)
    return model, number


class Busy:
    """The memory that instance and worker share, at either end."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("I")

    def begin(self, number: int, model: int) -> None:
        self._words[2] = 0
        self._words[1] = model
        self._words[0] = number

    def item(self, index: int) -> None:
        self._words[2] = index

    def read(self) -> tuple[int, int, int]:
        """(number, model, item)."""
        number, model, item = _BUSY.unpack(self._memory[: _BUSY.size])
        return number, model, item


#: "false": the model gets a process of its own.
SHARED_WORKER = "PENSTOCK_SHARED_WORKER"

#: Variables about a model, which the worker sets before its code runs. Any other variable may
#: affect the whole process: a library reads it once, when the first model imports it.
_OF_MODELS = ("SAGEMAKER_", "SM_")

#: Replaces a worker's scratch folder in keys: it differs, and does not matter.
_SCRATCH = Path("/scratch")


def may_share(context: LoadContext) -> bool:
    """Whether a Python model may share a process: it does not ask for its own, and calls no other
    models. (It waits for their answers, and some might have to run in that very process.)"""
    given = {**context.description.environment, **context.environment}
    return context.models is None and given.get(SHARED_WORKER, "").strip().lower() != "false"


def kind_of(context: LoadContext) -> str:
    """A key; models with the same key may share a process.

    It contains the interpreter; the walls around it; accelerators; the content of requirements.txt,
    as models with other requirements should not import the same libraries; and every variable of
    the environment but SageMaker's own (SAGEMAKER_*, SM_*), the number of threads among them. A
    difference in any of these makes another key.
    """
    description = context.description
    requirements = context.model_dir / Path(description.file).parent / "requirements.txt"
    try:
        wanted = requirements.read_bytes()
    except OSError:
        wanted = b""
    facts = (
        sys.executable,
        context.isolated and not description.trusted,
        context.network_isolated,
        sorted(map(str, context.private_dirs)),
        context.accelerators,
        b"\n".join(sorted(line.strip() for line in wanted.splitlines() if line.strip())),
        sorted(of_process(worker_environment(context, _SCRATCH)).items()),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def of_process(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that all models of a process share."""
    return {key: value for key, value in environment.items() if not key.startswith(_OF_MODELS)}


def of_model(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set while one model's code runs."""
    return {key: value for key, value in environment.items() if key.startswith(_OF_MODELS)}

"""The list of all runtimes. Only this list and a runtime's own folder know its name."""

from __future__ import annotations

import importlib
from typing import Final

from penstock.errors import ModelError
from penstock.runtimes.record import Interface, RuntimeRecord

#: The order in which they are listed and asked whether they load a file: the first one does.
_FOLDERS: Final = (
    "openvino", "onnxruntime", "pytorch", "seq2seq", "openvino_genai", "vllm", "paced", "xgboost",
    "lightgbm", "catboost", "sklearn", "python", "torchscript", "keras", "foreign", "container",
    "pipeline",
)  # fmt: skip

_RECORDS: dict[str, RuntimeRecord] = {}


def add(package: str) -> None:
    """Adds the runtime in the folder `package`; its module `record` has the RECORD."""
    added: RuntimeRecord = importlib.import_module(f"{package}.record").RECORD
    assert added.name not in _RECORDS, f"there are two runtimes {added.name!r}"
    _RECORDS[added.name] = added


def find(name: str) -> RuntimeRecord | None:
    return _RECORDS.get(name)


def record(name: str) -> RuntimeRecord:
    """Raises ModelError (`unknown-runtime`)."""
    found = _RECORDS.get(name)
    if found is None:
        raise unknown(name)
    return found


def unknown(name: str) -> ModelError:
    return ModelError(
        "unknown-runtime",
        f"runtime {name!r} is not one of those that are served here: {', '.join(_RECORDS)}",
        hint="Compile the model for a target of this machine, for example cpu-bf16.",
    )


def records(*interfaces: Interface) -> tuple[RuntimeRecord, ...]:
    """The runtimes that have one of these interfaces; all, if none is given."""
    return tuple(each for each in _RECORDS.values() if not interfaces or each.has(*interfaces))


def names(*interfaces: Interface) -> tuple[str, ...]:
    return tuple(each.name for each in records(*interfaces))


for _folder in _FOLDERS:
    add(f"{__package__}.{_folder}")

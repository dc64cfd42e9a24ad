"""Triton's config.pbtxt as a `ModelDescription`.

Settings of tensors, batches and lanes are taken over. A setting that would change answers and is
not supported is refused by name. A setting that only tunes Triton itself (optimization, the
response cache) is ignored. Each field means what Triton's model_config.proto says.
`triton_models.py` reads the repository's folders; this module sees text only.

A sample of `model_warmup` becomes a request made of tensors, zero, random or from files in the
model's folder `warmup`. Its tensors have `batch_size` rows where the model batches; `count` is the
number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.artifacts.description.description import (
    WARM_UP_ELEMENTS_MAX,
    WARM_UP_TIMES_MAX,
    WARM_UPS_MAX,
    Batching,
    EnsembleStep,
    TensorSpec,
    WarmUp,
    WarmUpTensor,
)
from penstock.artifacts.description.sequences import SequenceBatching
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.triton import pbtxt
from penstock.artifacts.triton.ensemble import read_steps
from penstock.artifacts.triton.pbtxt import Fields
from penstock.artifacts.triton.refused_fields import (
    NO_EFFECT,
    NO_EFFECT_OF_GROUPS,
    REFUSED,
    REFUSED_OF_ENSEMBLES,
)
from penstock.artifacts.triton.sequences import read_sequences
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import RuntimeRecord

ENSEMBLE = "ensemble"

_DTYPES = {
    "TYPE_BOOL": "BOOL", "TYPE_UINT8": "UINT8", "TYPE_UINT16": "UINT16", "TYPE_UINT32": "UINT32",
    "TYPE_UINT64": "UINT64", "TYPE_INT8": "INT8", "TYPE_INT16": "INT16", "TYPE_INT32": "INT32",
    "TYPE_INT64": "INT64", "TYPE_FP16": "FP16", "TYPE_FP32": "FP32", "TYPE_FP64": "FP64",
    "TYPE_STRING": "BYTES", "TYPE_BF16": "BF16",
}  # fmt: skip
_FORMATS = ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")
_KINDS = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")
_LANES_MAX = 1024
#: Triton's parameter with the environment of a Python model, and its word for the model's folder.
_PACKED = "EXECUTION_ENV_PATH"
_MODEL_FOLDER = "$$TRITON_MODEL_DIRECTORY"
_PRIORITIES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonConfig:
    """The content of a config.pbtxt, in Penstock's terms."""

    name: str = ""  #: empty = the folder's name
    backend: str = ""  #: a key of `backends`, or ENSEMBLE; empty = decided by the model file
    file: str = ""  #: default_model_filename; empty = the backend's default
    versions: tuple[int, ...] = ()  #: allowed version folders; empty = any
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    label_file: str = ""  #: path below the model's folder
    batching: Batching = field(default_factory=Batching)
    lanes: int = 1
    parameters: dict[str, str] = field(default_factory=dict)
    packed_environment: str = ""  #: archive with a Python environment, below the model's folder
    warmup: tuple[WarmUp, ...] = ()
    decoupled: bool = False  #: a request has any number of responses
    steps: tuple[EnsembleStep, ...] = ()  #: an ensemble's steps; () for any other model
    sequences: SequenceBatching | None = None  #: None: the model has no state


def backends() -> dict[str, tuple[RuntimeRecord, str]]:
    """Backend or platform -> its runtime, and the file that Triton loads when none is named."""
    known = {word: (one, file) for one in registry.records() for word, file in one.triton.items()}
    return dict(sorted(known.items()))


def parse_config(text: str, *, where: str = "config.pbtxt") -> TritonConfig:
    """Reads a configuration.

    Raises `CallerError`: `pbtxt-invalid` (not the text format), `triton-config-invalid` (a field
    is wrong), `triton-config-unsupported` (it asks for what Penstock does not do).
    """
    top = Fields(pbtxt.parse(text, where=where), where=where)
    name = top.text("name")
    backend = _backend(top)
    rows_max = top.integer("max_batch_size", high=65_536)
    if backend == ENSEMBLE:
        _refuse_scheduling(top)
    label_files: list[str] = []
    parameters = _parameters(top)
    inputs = tuple(_tensor(item, rows_max, None) for item in top.messages("input"))
    outputs = tuple(_tensor(item, rows_max, label_files) for item in top.messages("output"))
    _refuse_duplicates(inputs, where, "input")
    _refuse_duplicates(outputs, where, "output")
    config = TritonConfig(
        name=name,
        backend=backend,
        file=top.text("default_model_filename"),
        versions=_versions(top),
        inputs=inputs,
        outputs=outputs,
        # Labels describe the model's one classification; with two label files there would be two.
        label_file=label_files[0] if len(label_files) == 1 else "",
        sequences=read_sequences(top, rows_max, _dtype),
        batching=_batching(top, rows_max),
        lanes=_lanes(top),
        parameters=parameters,
        packed_environment=_packed_environment(top, parameters),
        warmup=_warm_ups(top, rows_max),
        decoupled=_decoupled(top, backend),
        steps=_steps(top) if backend == ENSEMBLE else (),
    )
    _refuse_what_changes_answers(top)
    top.ignore(*NO_EFFECT)
    top.done()
    return config


def _backend(top: Fields) -> str:
    platform = top.text("platform")
    backend = top.text("backend") or platform
    if top.has("ensemble_scheduling"):
        backend = backend or ENSEMBLE
        if backend != ENSEMBLE:
            raise top.invalid("platform", backend, f'"{ENSEMBLE}" beside ensemble_scheduling')
    known = backends()
    if backend and backend not in (*known, ENSEMBLE):
        *others, last = [word for word, (one, _) in known.items() if word == next(iter(one.triton))]
        raise top.unsupported(
            "backend",
            f"there is no backend {backend!r}",
            hint=f"Penstock serves the backends {', '.join(others)} and {last}; export the model "
            "to ONNX, for example with torch.onnx.export.",
        )
    return backend


def _tensor(item: Fields, rows_max: int, label_files: list[str] | None) -> TensorSpec:
    name = item.text("name")
    if not name:
        raise item.invalid("name", name, "a tensor's name")
    dtype = _dtype(item)
    dims = item.integers("dims", low=-1)
    if not dims:
        raise item.invalid("dims", "missing", "at least one dimension, -1 for any size")
    if 0 in dims:
        raise item.invalid("dims", "0", "sizes above 0, or -1 for any")
    for flag in ("is_shape_tensor", "is_non_linear_format_io", "allow_ragged_batch", "optional"):
        if item.flag(flag):
            raise _unsupported(item, flag)
    _refuse(item, "reshape")
    # it says how to read the dims, and changes nothing
    item.choice("format", _FORMATS, "FORMAT_NONE")
    if label_files is not None:
        label_file = item.text("label_filename")
        if label_file:
            label_files.append(label_file)
    item.done()
    shape = (-1, *dims) if rows_max > 0 else dims
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def _dtype(tensor: Fields) -> str:
    named = tensor.choice("data_type", _DTYPES, "")
    if not named:
        raise tensor.invalid("data_type", "missing", f"one of {', '.join(_DTYPES)}")
    return _DTYPES[named]


def _refuse_scheduling(top: Fields) -> None:
    """An ensemble only passes tensors on: its models do the batching and have the lanes."""
    for name in ("dynamic_batching", "instance_group", "sequence_batching"):
        _refuse(top, name, REFUSED_OF_ENSEMBLES)


def _steps(top: Fields) -> tuple[EnsembleStep, ...]:
    _refuse(top, "default_model_filename", REFUSED_OF_ENSEMBLES)
    return read_steps(top)


def _versions(top: Fields) -> tuple[int, ...]:
    policy = top.message("version_policy")
    if policy is None:
        return ()
    versions: tuple[int, ...] = ()
    latest = policy.message("latest")
    if latest is not None:
        # only the highest version is served, whatever the number
        latest.integer("num_versions", 1, low=1)
        latest.done()
    every = policy.message("all")
    if every is not None:
        every.done()
    specific = policy.message("specific")
    if specific is not None:
        versions = specific.integers("versions", low=1)
        specific.done()
        if not versions:
            raise policy.invalid("specific.versions", "empty", "at least one version")
    policy.done()
    return versions


def _batching(top: Fields, rows_max: int) -> Batching:
    dynamic = top.message("dynamic_batching")
    if dynamic is None:
        # Triton then runs each request alone; a wait of 0 joins only requests that are queued
        # already.
        return Batching(rows_max=rows_max)
    if rows_max == 0:
        raise top.invalid("max_batch_size", 0, "above 0 where dynamic_batching is given")
    preferred = dynamic.integers("preferred_batch_size", low=1, high=rows_max)
    wait_us = dynamic.integer("max_queue_delay_microseconds", high=60_000_000)
    dynamic.flag("preserve_ordering")  # replies name their request, so their order is free
    priorities = dynamic.integer("priority_levels", high=_PRIORITIES_MAX)
    default_level = dynamic.integer("default_priority_level", high=_PRIORITIES_MAX)
    if default_level > 1:
        raise _unsupported(dynamic, "default_priority_level")
    _refuse(dynamic, "priority_queue_policy")
    queue_rows_max, queue_wait_s_max = _queue_policy(dynamic.message("default_queue_policy"))
    dynamic.done()
    return Batching(
        rows_max=rows_max,
        wait_s_max=wait_us / 1_000_000,
        rows_preferred=tuple(sorted(set(preferred))),
        queue_rows_max=queue_rows_max or Batching().queue_rows_max,
        queue_wait_s_max=queue_wait_s_max,
        priorities=max(1, priorities),
    )


def _queue_policy(policy: Fields | None) -> tuple[int, float | None]:
    """(rows waiting, 0 = our default; seconds waiting, None = no bound)"""
    if policy is None:
        return 0, None
    if policy.choice("timeout_action", ("REJECT", "DELAY"), "REJECT") == "DELAY":
        raise _unsupported(policy, "timeout_action")
    wait_us = policy.integer("default_timeout_microseconds", high=3_600_000_000)
    policy.flag("allow_timeout_override")  # a caller's own deadline always counts
    rows = policy.integer("max_queue_size", high=10_000_000)
    policy.done()
    return rows, wait_us / 1_000_000 if wait_us else None


def _lanes(top: Fields) -> int:
    groups = top.messages("instance_group")
    lanes = 0
    for group in groups:
        lanes += max(1, group.integer("count", 1, high=_LANES_MAX))
        group.choice("kind", _KINDS, "KIND_AUTO")  # the instance decides where a copy runs
        group.flag("passive")
        group.ignore(*NO_EFFECT_OF_GROUPS)
        group.done()
    if lanes > _LANES_MAX:
        raise top.invalid("instance_group", lanes, f"at most {_LANES_MAX} instances in all")
    return max(1, lanes)


def _parameters(top: Fields) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for item in top.messages("parameters"):
        key = item.text("key")
        value = item.message("value")
        text = "" if value is None else value.text("string_value")
        if value is not None:
            value.done()
        item.done()
        if not key or key in parameters:
            raise item.invalid("key", key, "a name that no other parameter has")
        parameters[key] = text
    return parameters


def _packed_environment(top: Fields, parameters: dict[str, str]) -> str:
    """The archive of a Python environment below the model's folder, which a parameter names."""
    place = parameters.get(_PACKED, "")
    file = place.removeprefix(f"{_MODEL_FOLDER}/")
    if place and (file == place or not file.endswith((".tar.gz", ".tgz", ".tar", ".zip"))):
        raise top.unsupported(
            f"parameters[{_PACKED}]",
            f"an environment is an archive in the model's own folder, and this is {place[:100]!r}",
            hint=f"Put it there and write {_MODEL_FOLDER}/env.tar.gz.",
        )
    return safe_path(file, where=f"parameters[{_PACKED}]")


def _decoupled(top: Fields, backend: str) -> bool:
    """Whether a request has any number of responses. Only code decides that while it runs."""
    transaction = top.message("model_transaction_policy")
    if transaction is None:
        return False
    decoupled = transaction.flag("decoupled")
    if decoupled and backend != "python":
        raise _unsupported(transaction, "decoupled")
    transaction.done()
    return decoupled


def _refuse_what_changes_answers(top: Fields) -> None:
    for name in ("batch_input", "batch_output"):
        _refuse(top, name)
    agents = top.message("model_repository_agents")
    if agents is not None:
        _refuse(agents, "agents")
        agents.done()


def _refuse(fields: Fields, name: str, table: Mapping[str, tuple[str, str]] = REFUSED) -> None:
    cause, hint = table[name]
    fields.refuse(name, cause, hint=hint)


def _unsupported(fields: Fields, name: str) -> CallerError:
    cause, hint = REFUSED[name]
    return fields.unsupported(name, cause, hint=hint)


def _refuse_duplicates(tensors: tuple[TensorSpec, ...], where: str, kind: str) -> None:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise CallerError(
                "triton-config-invalid",
                f"{where}: the {kind} {tensor.name!r} is given twice",
                hint="Each tensor has one entry.",
            )
        names.add(tensor.name)


def _warm_ups(top: Fields, rows_max: int) -> tuple[WarmUp, ...]:
    samples = top.messages("model_warmup")
    if len(samples) > WARM_UPS_MAX:
        raise top.invalid("model_warmup", len(samples), f"at most {WARM_UPS_MAX} samples")
    read = (_sample(item, rows_max) for item in samples)
    # A sample without inputs requests nothing.
    return tuple(sample for sample in read if sample.tensors)


def _sample(item: Fields, rows_max: int) -> WarmUp:
    name = item.text("name")
    rows = item.integer("batch_size", 0, high=65_536)
    if rows > rows_max:
        raise item.invalid("batch_size", rows, f"at most max_batch_size, {rows_max}")
    if rows_max > 0:
        rows = max(1, rows)
    times = max(1, item.integer("count", 1, high=WARM_UP_TIMES_MAX))
    tensors = tuple(_input(entry, rows) for entry in item.messages("inputs"))
    if sum(math.prod(tensor.shape) for tensor in tensors) > WARM_UP_ELEMENTS_MAX:
        raise item.invalid("inputs", "too large", f"of {WARM_UP_ELEMENTS_MAX} elements at most")
    item.done()
    return WarmUp(name=name, tensors=tensors, times=times)


def _input(entry: Fields, rows: int) -> WarmUpTensor:
    name = entry.text("key")
    value = entry.message("value")
    if not name or value is None:
        raise entry.invalid("key", name, "a tensor's name, with its value")
    dtype = _dtype(value)
    dims = value.integers("dims", low=0)
    zeros, random = value.flag("zero_data"), value.flag("random_data")
    file = value.text("input_data_file")
    if zeros + random + bool(file) != 1:
        raise value.invalid(
            "zero_data", "not alone", "given, or random_data, or input_data_file: one of them"
        )
    if file:
        file = safe_path(f"warmup/{file}", where="model_warmup, input_data_file")
    value.done()
    entry.done()
    return WarmUpTensor(
        name=name,
        dtype=dtype,
        shape=(rows, *dims) if rows else dims,
        fill="random" if random else "zeros",
        file=file,
    )

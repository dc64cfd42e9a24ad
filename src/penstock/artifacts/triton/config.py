"""Triton's config.pbtxt as a `ModelDescription`.

Settings of tensors, batches and lanes are taken over. A setting that would change answers and is
not supported is refused by name. A setting that only tunes Triton itself (optimization) is
ignored. Each field means what Triton's model_config.proto says.
`triton_models.py` reads the repository's folders; this module sees text only.

A sample of `model_warmup` becomes a request made of tensors, zero, random or from files in the
model's folder `warmup`. Its tensors have `batch_size` rows where the model batches; `count` is the
number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
from penstock.artifacts.triton.config_json import Config, config_of
from penstock.artifacts.triton.config_tensors import (
    ConfiguredTensor,
    read_dtype,
    read_tensors,
)
from penstock.artifacts.triton.ensemble import read_steps
from penstock.artifacts.triton.pbtxt import Fields
from penstock.artifacts.triton.refused_fields import (
    NO_EFFECT,
    NO_EFFECT_OF_GROUPS,
    REFUSED,
    REFUSED_OF_ENSEMBLES,
)
from penstock.artifacts.triton.sequences import read_sequences
from penstock.core.batching.spec import LevelPolicy
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import RuntimeRecord

ENSEMBLE = "ensemble"

_KINDS = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")
_LANES_MAX = 1024
#: Triton's parameter with the environment of a Python model, and its word for the model's folder.
_PACKED = "EXECUTION_ENV_PATH"
_MODEL_FOLDER = "$$TRITON_MODEL_DIRECTORY"
_PRIORITIES_MAX = 100
_PREFERRED_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonConfig:
    """The content of a config.pbtxt, in Penstock's terms."""

    name: str = ""  #: empty = the folder's name
    backend: str = ""  #: a key of `backends`, or ENSEMBLE; empty = decided by the model file
    file: str = ""  #: default_model_filename; empty = the backend's default
    versions: tuple[int, ...] = ()  #: allowed version folders; empty = any
    versions_max: int = 1  #: the highest of these are served; 0 = all
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    #: tensor -> its shape in the model, without rows, where that is not its dims
    reshapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()  #: inputs that a request may leave out
    #: output -> the file with the names of its classes, below the model's folder
    label_files: dict[str, str] = field(default_factory=dict)
    batching: Batching = field(default_factory=Batching)
    lanes: int = 1
    parameters: dict[str, str] = field(default_factory=dict)
    packed_environment: str = ""  #: archive with a Python environment, below the model's folder
    warmup: tuple[WarmUp, ...] = ()
    decoupled: bool = False  #: a request has any number of responses
    steps: tuple[EnsembleStep, ...] = ()  #: an ensemble's steps; () for any other model
    sequences: SequenceBatching | None = None  #: None: the model has no state
    whole: Config = field(default_factory=dict, compare=False)  #: all of it, as Triton's JSON


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
    parameters = _parameters(top)
    versions, versions_max = _versions(top)
    inputs = read_tensors(top, "input", rows_max, where, ragged=backend == "python")
    outputs = read_tensors(top, "output", rows_max, where)
    if backend == ENSEMBLE:
        _refuse_changed_tensors(where, inputs + outputs)
    config = TritonConfig(
        name=name,
        backend=backend,
        file=top.text("default_model_filename"),
        versions=versions,
        versions_max=versions_max,
        inputs=tuple(each.spec for each in inputs),
        outputs=tuple(each.spec for each in outputs),
        reshapes={
            each.spec.name: each.reshape for each in (*inputs, *outputs) if each.reshape is not None
        },
        optional=frozenset(each.spec.name for each in inputs if each.optional),
        label_files={each.spec.name: each.label_file for each in outputs if each.label_file},
        sequences=read_sequences(top, rows_max, read_dtype),
        batching=_batching(top, rows_max),
        lanes=_lanes(top),
        parameters=parameters,
        packed_environment=_packed_environment(top, parameters),
        warmup=_warm_ups(top, rows_max),
        decoupled=_decoupled(top, backend),
        steps=_steps(top) if backend == ENSEMBLE else (),
    )
    _refuse_what_changes_answers(top)
    _check_cache(top, config)
    top.ignore(*NO_EFFECT)
    top.done()
    return replace(config, whole=config_of(text, where=where))


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


def _refuse_scheduling(top: Fields) -> None:
    """An ensemble only passes tensors on: its models do the batching and have the lanes."""
    for name in ("dynamic_batching", "instance_group", "sequence_batching"):
        _refuse(top, name, REFUSED_OF_ENSEMBLES)


def _refuse_changed_tensors(where: str, tensors: tuple[ConfiguredTensor, ...]) -> None:
    """The same of tensors that it passes on: they are its models' own."""
    for each in tensors:
        for name, given in (("reshape", each.reshape is not None), ("optional", each.optional)):
            cause, hint = REFUSED_OF_ENSEMBLES[name]
            if given:
                raise CallerError(
                    "triton-config-unsupported",
                    f"{where}: {name} of {each.spec.name!r} is not supported: {cause}",
                    hint=hint,
                )


def _steps(top: Fields) -> tuple[EnsembleStep, ...]:
    _refuse(top, "default_model_filename", REFUSED_OF_ENSEMBLES)
    return read_steps(top)


def _versions(top: Fields) -> tuple[tuple[int, ...], int]:
    """(allowed versions, () = any; how many of them at most, 0 = all)"""
    policy = top.message("version_policy")
    if policy is None:
        return (), 1
    latest, every, specific = (policy.message(kind) for kind in ("latest", "all", "specific"))
    policy.done()
    if specific is not None:
        versions = specific.integers("versions", low=1)
        specific.done()
        if not versions:
            raise policy.invalid("specific.versions", "empty", "at least one version")
        return versions, 0
    if every is not None:
        every.done()
        return (), 0
    if latest is None:
        return (), 1
    count = latest.integer("num_versions", 1, low=-1)
    latest.done()
    return (), 1 if count == 0 else max(count, 0)


def _batching(top: Fields, rows_max: int) -> Batching:
    dynamic = top.message("dynamic_batching")
    if dynamic is None:
        # Triton then runs each request alone; a wait of 0 joins only requests that are queued
        # already.
        return Batching(rows_max=rows_max)
    # Without a batch dimension it joins nothing, and its queue has its bounds all the same.
    preferred = dynamic.integers("preferred_batch_size", low=1, high=rows_max or _PREFERRED_MAX)
    wait_us = dynamic.integer("max_queue_delay_microseconds", high=60_000_000)
    priorities = max(1, dynamic.integer("priority_levels", high=_PRIORITIES_MAX))
    default_level = dynamic.integer("default_priority_level", high=priorities)
    usual = _queue_policy(dynamic.message("default_queue_policy"))
    levels = _level_policies(dynamic, usual, priorities)
    preserves_order = dynamic.flag("preserve_ordering")
    if preserves_order and priorities > 1:
        raise dynamic.invalid("preserve_ordering", "true", "false with more than one level")
    if preserves_order and any(level.delays for level in (usual, *levels)):
        raise dynamic.invalid("preserve_ordering", "true", "false with timeout_action DELAY")
    dynamic.done()
    plain = all(level == usual and not level.delays for level in levels)
    return Batching(
        rows_max=rows_max,
        wait_s_max=wait_us / 1_000_000,
        rows_preferred=tuple(sorted(set(preferred))),
        queue_rows_max=(usual.rows_max if plain else 0) or Batching().queue_rows_max,
        queue_wait_s_max=usual.wait_s_max if plain else None,
        timeout_override=usual.timeout_override,
        preserves_order=preserves_order,
        priorities=priorities,
        priority_default=max(0, default_level - 1),
        levels=() if plain else levels,
    )


def _level_policies(
    dynamic: Fields, usual: LevelPolicy, priorities: int
) -> tuple[LevelPolicy, ...]:
    """The policy of each level: `usual`, unless `priority_queue_policy` has one for it."""
    levels = [usual] * priorities
    for entry in dynamic.messages("priority_queue_policy"):
        level = entry.integer("key", low=1, high=priorities)
        if not level:
            raise entry.invalid("key", 0, f"a level from 1 to {priorities}")
        levels[level - 1] = _queue_policy(entry.message("value"))
        entry.done()
    return tuple(levels)


def _queue_policy(policy: Fields | None) -> LevelPolicy:
    if policy is None:
        return LevelPolicy()
    delays = policy.choice("timeout_action", ("REJECT", "DELAY"), "REJECT") == "DELAY"
    wait_us = policy.integer("default_timeout_microseconds", high=3_600_000_000)
    override = policy.flag("allow_timeout_override")
    rows = policy.integer("max_queue_size", high=10_000_000)
    policy.done()
    wait_s_max = wait_us / 1_000_000 if wait_us else None
    return LevelPolicy(
        rows_max=rows,
        wait_s_max=wait_s_max,
        delays=delays and wait_s_max is not None,
        timeout_override=override,
    )


def _lanes(top: Fields) -> int:
    groups = top.messages("instance_group")
    lanes = 0
    for group in groups:
        count = max(1, group.integer("count", 1, high=_LANES_MAX))
        kind = group.choice("kind", _KINDS, "KIND_AUTO")
        if group.integers("gpus", low=0) and kind in ("KIND_CPU", "KIND_MODEL"):
            raise group.invalid("gpus", "given", f"left out where kind is {kind}")
        # No request goes to a passive instance.
        lanes += 0 if group.flag("passive") else count
        group.ignore(*NO_EFFECT_OF_GROUPS)
        group.done()
    if lanes > _LANES_MAX:
        raise top.invalid("instance_group", lanes, f"at most {_LANES_MAX} instances in all")
    if groups and not lanes:
        raise top.unsupported(
            "instance_group",
            "all instances are passive, so no request could be answered",
            hint="Leave passive out of one group.",
        )
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


def _check_cache(top: Fields, config: TritonConfig) -> None:
    """Triton's rule. The cache itself is made by who loads the model."""
    cache = top.message("response_cache")
    if cache is None:
        return
    enabled = cache.flag("enable")
    cache.done()
    if enabled and (config.sequences is not None or config.decoupled):
        kind = "sequence_batching" if config.sequences is not None else "decoupled responses"
        raise top.invalid("response_cache", "enabled", f"left out of a model with {kind}")


def _refuse(fields: Fields, name: str, table: Mapping[str, tuple[str, str]] = REFUSED) -> None:
    cause, hint = table[name]
    fields.refuse(name, cause, hint=hint)


def _unsupported(fields: Fields, name: str) -> CallerError:
    cause, hint = REFUSED[name]
    return fields.unsupported(name, cause, hint=hint)


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
    dtype = read_dtype(value)
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

"""`sequence_batching` of config.pbtxt as a `SequenceBatching`.

Each field means what Triton's model_config.proto says. What would need another kind of model
(iterative sequences, which send a request to the model again and again) is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.artifacts.description.sequences import (
    CORRID,
    END,
    FLAG_FIELDS,
    IDLE_S,
    READY,
    START,
    ControlInput,
    SequenceBatching,
    StateTensor,
)
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.triton.pbtxt import Fields
from penstock.artifacts.triton.refused_fields import REFUSED

DtypeOf = Callable[[Fields], str]

_KINDS = {f"CONTROL_SEQUENCE_{kind}": kind for kind in (START, READY, END, CORRID)}
_CORRID_DTYPES = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")
_SLOTS_MAX = 65_536
_HOUR_US = 3_600_000_000


def read_sequences(top: Fields, rows_max: int, dtype_of: DtypeOf) -> SequenceBatching | None:
    """None where the model has none. `dtype_of`: reads `data_type`. Raises CallerError."""
    batching = top.message("sequence_batching")
    if batching is None:
        return None
    if top.has("dynamic_batching"):
        raise top.invalid("sequence_batching", "beside dynamic_batching", "without it")
    for name in ("iterative_sequence", "generative_sequence"):
        if batching.flag(name):
            cause, hint = REFUSED[name]
            raise batching.unsupported(name, cause, hint=hint)
    idle_us = batching.integer("max_sequence_idle_microseconds", high=24 * _HOUR_US)
    direct, oldest = batching.message("direct"), batching.message("oldest")
    if direct is not None and oldest is not None:
        raise batching.invalid("oldest", "beside direct", "given, or direct: one of them")
    rows = max(1, rows_max)
    slots, wait_us, utilization = rows, 0, 0.0
    preferred: tuple[int, ...] = ()
    if oldest is not None:
        slots = oldest.integer("max_candidate_sequences", high=_SLOTS_MAX) or rows
        preferred = oldest.integers("preferred_batch_size", low=1, high=rows)
        wait_us = oldest.integer("max_queue_delay_microseconds", high=_HOUR_US)
        oldest.flag("preserve_ordering")  # replies name their request, so their order is free
        oldest.done()
    if direct is not None:
        wait_us = direct.integer("max_queue_delay_microseconds", high=_HOUR_US)
        utilization = _utilization(direct)
        direct.done()
        wait_us = wait_us if utilization else 0
    controls = tuple(_control(item, dtype_of) for item in batching.messages("control_input"))
    states = tuple(_state(item, dtype_of) for item in batching.messages("state"))
    _refuse_twice(batching, controls, states)
    batching.done()
    return SequenceBatching(
        idle_s_max=idle_us / 1e6 if idle_us else IDLE_S,
        direct=oldest is None,
        slots=slots,
        rows_preferred=tuple(sorted(set(preferred))),
        wait_s_max=wait_us / 1e6,
        utilization_min=utilization,
        controls=controls,
        states=states,
    )


def _utilization(direct: Fields) -> float:
    values = direct.numbers("minimum_slot_utilization")
    value = values[-1] if values else 0.0
    if not 0.0 <= value <= 1.0:
        raise direct.invalid("minimum_slot_utilization", value, "a number from 0 to 1")
    return value


def _control(item: Fields, dtype_of: DtypeOf) -> ControlInput:
    name = item.text("name")
    if not name:
        raise item.invalid("name", name, "an input's name")
    told = item.messages("control")
    if len(told) != 1:
        raise item.invalid("control", f"given {len(told)} times", "given once for each input")
    control = told[0]
    item.done()
    kind = _KINDS[control.choice("kind", _KINDS, "CONTROL_SEQUENCE_START")]
    if kind == CORRID:
        dtype = dtype_of(control)
        if dtype not in _CORRID_DTYPES:
            allowed = "an integer type of 32 or 64 bits, or TYPE_STRING"
            raise control.invalid("data_type", dtype, allowed)
        control.done()
        return ControlInput(name=name, kind=kind, dtype=dtype)
    given = [(dtype, field) for dtype, field in FLAG_FIELDS.items() if control.has(field)]
    if len(given) != 1:
        allowed = "one of int32_false_true, fp32_false_true and bool_false_true"
        raise control.invalid("kind", f"{kind} with {len(given)} pairs of values", allowed)
    dtype, field = given[0]
    values = control.flags(field) if dtype == "BOOL" else control.numbers(field)
    if len(values) != 2 or (dtype == "INT32" and any(one != int(one) for one in values)):
        raise control.invalid(field, list(values), "two values, the false one first")
    false, true = (float(one) if dtype == "FP32" else int(one) for one in values)
    control.ignore("data_type")  # the values say it
    control.done()
    return ControlInput(name=name, kind=kind, dtype=dtype, false_true=(false, true))


def _state(item: Fields, dtype_of: DtypeOf) -> StateTensor:
    input, output = item.text("input_name"), item.text("output_name")
    if not input or not output:
        raise item.invalid("input_name", input, "a name, as output_name")
    dtype = dtype_of(item)
    dims = item.integers("dims", low=-1)
    # how Triton lays the tensors out in its memory
    item.ignore("use_same_buffer_for_input_output", "use_growable_memory")
    given = item.messages("initial_state")
    item.done()
    if len(given) > 1:
        raise item.invalid("initial_state", f"given {len(given)} times", "given once")
    initial, file = tuple(1 if size == -1 else size for size in dims), ""
    if given:
        initial, file = _initial(given[0], dtype, dims, dtype_of)
    return StateTensor(
        input=input, output=output, dtype=dtype, shape=dims, initial_shape=initial,
        initial_file=file,
    )  # fmt: skip


def _initial(
    item: Fields, dtype: str, dims: tuple[int, ...], dtype_of: DtypeOf
) -> tuple[tuple[int, ...], str]:
    """(shape, file) of a state's first value."""
    if not item.text("name"):
        raise item.invalid("name", "", "a name for the initial state")
    found = dtype_of(item)
    if found != dtype:
        raise item.invalid("data_type", found, f"the state's own, {dtype}")
    shape = item.integers("dims", low=0)
    fits = len(shape) == len(dims) and all(
        want in (-1, size) for want, size in zip(dims, shape, strict=True)
    )
    if not fits:
        raise item.invalid("dims", list(shape), f"sizes of the state's dims, {list(dims)}")
    file = item.text("data_file")
    if bool(file) == item.has("zero_data"):
        raise item.invalid("zero_data", "not alone", "given, or data_file: one of them")
    item.ignore("zero_data")  # Triton asks only whether it is there
    item.done()
    if file:
        file = safe_path(f"initial_state/{file}", where="sequence_batching, data_file")
    return shape, file


def _refuse_twice(
    batching: Fields, controls: tuple[ControlInput, ...], states: tuple[StateTensor, ...]
) -> None:
    for field, names in (
        ("control_input", [one.kind for one in controls]),
        ("control_input", [one.name for one in controls] + [one.input for one in states]),
        ("state", [one.output for one in states]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise batching.invalid(field, f"{twice} twice", "given once for each kind and tensor")

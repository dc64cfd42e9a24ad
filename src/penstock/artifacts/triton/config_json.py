"""A model configuration as Triton's JSON, which `/v2/models/M/config` and Python models show.

The JSON has protobuf's names and every field of a message that is given, defaults included. Numbers
of 64 bits are numbers, and not strings as in protobuf's own mapping: Triton writes them so.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import json_format, text_format

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import CallerError
from penstock.wire.oip_messages import MESSAGES

Config = dict[str, Any]
_ENSEMBLE = "ensemble"
#: "All versions" as some write it: the field has no sign.
_EVERY = re.compile(r"(\bnum_versions\s*:\s*)-1\b")
#: Backend -> the platform that Triton shows for it; the others have none.
_PLATFORMS = {
    _ENSEMBLE: _ENSEMBLE,
    "onnxruntime": "onnxruntime_onnx",
    "onnxruntime_onnx": "onnxruntime_onnx",
}


def config_of(text: str, *, where: str) -> Config:
    """The JSON of a config.pbtxt. Raises CallerError (`pbtxt-invalid`)."""
    message = MESSAGES["ModelConfig"]()
    try:
        text_format.Parse(_EVERY.sub(rf"\g<1>{2**32 - 1}", text), message)
    except (text_format.ParseError, UnicodeError) as error:
        raise CallerError(
            "pbtxt-invalid",
            f"{where}: {' '.join(str(error).split())[:300]}",
            hint="Check the file against Triton's model configuration format.",
        ) from None
    return json_of(message)


def whole_config(config: Config, *, name: str, backend: str, file: str) -> Config:
    """The configuration with what Triton derives of a model's folder and backend."""
    made = {**config, "name": name, "platform": _PLATFORMS.get(backend, "")}
    made["backend"] = "" if backend == _ENSEMBLE else backend.partition("_")[0]
    made["default_model_filename"] = file.partition("/")[2]
    made.setdefault("version_policy", {"latest": {"num_versions": 1}})
    groups = list(made.get("instance_group") or ())
    if not groups and backend != _ENSEMBLE:
        groups = [json_of(MESSAGES["ModelInstanceGroup"](name=name))]
    made["instance_group"] = [_group(group, f"{name}_{at}") for at, group in enumerate(groups)]
    return made


def renamed(config: Config, name: str) -> Config:
    """A whole configuration under another name, which its groups have of it."""
    before = config["name"]
    groups = []
    for at, group in enumerate(config.get("instance_group") or ()):
        own = {before: name, f"{before}_{at}": f"{name}_{at}"}
        groups.append({**group, "name": own.get(group["name"], group["name"])})
    return {**config, "name": name, "instance_group": groups}


def _group(group: Config, name: str) -> Config:
    return {**group, "name": group["name"] or name, "count": group["count"] or 1}


def json_of(message: Any) -> Config:
    given = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_numbers(given, message.DESCRIPTOR)


def _with_numbers(given: Config, descriptor: Any) -> Config:
    return {
        name: _with_number(value, descriptor.fields_by_name[name]) for name, value in given.items()
    }


def _with_number(value: Any, field: Any) -> Any:
    if isinstance(value, list):
        return [_with_number(each, field) for each in value]
    kind = field.message_type
    if kind is not None:
        if kind.GetOptions().map_entry:
            of_value = kind.fields_by_name["value"]
            return {key: _with_number(each, of_value) for key, each in value.items()}
        return _with_numbers(value, kind)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) and isinstance(value, str):
        return int(value)
    return value


def config_from(given: Config) -> Config:
    """A configuration that a model's code has made, whole. Raises ValueError."""
    try:
        return json_of(json_format.ParseDict(given, MESSAGES["ModelConfig"]()))
    except (json_format.ParseError, TypeError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None


def specs_of(tensors: list[Config], rows_max: int) -> tuple[TensorSpec, ...]:
    """Tensors of a configuration as requests have them. Raises ValueError."""
    specs = []
    for each in tensors:
        dtype = each["data_type"].removeprefix("TYPE_")
        dims = tuple(each["dims"])
        if dtype == "INVALID" or not dims or any(size == 0 or size < -1 for size in dims):
            raise ValueError(f"{each['name']!r} has the type {dtype} and the dims {list(dims)}")
        specs.append(
            TensorSpec(
                name=each["name"],
                dtype="BYTES" if dtype == "STRING" else dtype,
                shape=(-1, *dims) if rows_max else dims,
            )
        )
    return tuple(specs)


def completed_json(
    config: Config,
    *,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    rows_max: int,
    scalars: frozenset[str],
) -> Config:
    """The configuration with the tensors that it left out, its maximum of rows, and, as Triton
    completes it, a dynamic batcher where that is several and no scheduler is named.

    Args:
        scalars: of the tensors that it left out, those whose `dims` of one element the model has
            without any dimension.
    """
    made = {**config, "max_batch_size": rows_max}
    for side, specs in (("input", inputs), ("output", outputs)):
        if not config.get(side):
            made[side] = [_tensor(side, spec, rows_max, spec.name in scalars) for spec in specs]
    whole = all(config.get(side) for side in ("input", "output"))
    if rows_max > 1 and not whole and not {"dynamic_batching", "sequence_batching"} & made.keys():
        made["dynamic_batching"] = json_of(MESSAGES["ModelDynamicBatching"]())
    return made


def _tensor(side: str, spec: TensorSpec, rows_max: int, scalar: bool) -> Config:
    message = MESSAGES["ModelInput" if side == "input" else "ModelOutput"](
        name=spec.name,
        data_type="TYPE_STRING" if spec.dtype == "BYTES" else f"TYPE_{spec.dtype}",
        dims=spec.shape[1:] if rows_max else spec.shape,
    )
    if scalar:
        message.reshape.SetInParent()
    return json_of(message)

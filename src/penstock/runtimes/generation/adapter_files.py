"""A LoRA adapter's files, in PEFT's format: read and checked before anything loads them.

    adapter_config.json         kind, rank, scale, modules
    adapter_model.safetensors   two matrices for each adapted layer: lora_A [rank, in], lora_B
                                [out, rank]; the layer's output grows by scale * B A x

The files are not trusted: every number has a bound, no offset leads out of the file, and nothing in
them is a program (adapter_model.bin is a pickle, and refused). Only the engine knows the base
model's layers. Imports the standard library alone: the engine process may be another interpreter.
Source of the algorithm: Hu et al., 2021, "LoRA"; the scale of rank-stabilised adapters:
Kalajdzievski, 2023.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.errors import CallerError, plain

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
PICKLE: Final = "adapter_model.bin"

_CONFIG_BYTES_MAX: Final = 1 << 20
_HEADER_BYTES_MAX: Final = 16 << 20
_TENSORS_MAX: Final = 20_000
#: A higher rank is no small change any more; vLLM's own bound is 512.
RANK_MAX: Final = 512
_SCALE_MAX: Final = 1e6
_WIDTHS: Final = {"F32": 4, "F16": 2, "BF16": 2}
_PREFIX: Final = "base_model.model."


@dataclass(frozen=True, slots=True)
class Matrix:
    """One tensor in the file."""

    dtype: str  #: F32 | F16 | BF16
    rows: int
    columns: int
    begin: int  #: offset of its first byte in the file
    end: int


@dataclass(frozen=True, slots=True)
class Layer:
    """What the adapter does to one layer of its base."""

    module: str  #: its name in the base: model.layers.0.self_attn.q_proj
    down: Matrix  #: lora_A [rank, in]
    up: Matrix  #: lora_B [out, rank]
    scale: float


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter whose files are complete and valid; it is not loaded yet."""

    root: Path
    layers: tuple[Layer, ...]  #: sorted by module
    rank_max: int
    base_model: str  #: the base that its configuration names; may be empty
    size_bytes: int


def looks_like_adapter(root: Path) -> bool:
    return (root / CONFIG).is_file()


def read_adapter(root: Path) -> AdapterFiles:
    """Raises CallerError: `adapter-incomplete`, `adapter-unsupported`, `adapter-damaged`,
    `artifact-untrusted`."""
    if not looks_like_adapter(root):
        raise CallerError(
            "adapter-incomplete",
            f"the adapter's artifact has no {CONFIG}",
            hint=f"Pack {CONFIG} and {WEIGHTS}, as PEFT's save_pretrained writes them, at its top.",
        )
    config = _config(root / CONFIG)
    path = root / WEIGHTS
    if not path.is_file():
        raise _without_weights(root)
    matrices = _matrices(path)
    layers = tuple(_layers(matrices, config))
    if not layers:
        raise _damaged(WEIGHTS, "it adapts no layer")
    return AdapterFiles(
        root=root,
        layers=layers,
        rank_max=max(layer.down.rows for layer in layers),
        base_model=plain(config.get("base_model_name_or_path") or "", 200),
        size_bytes=path.stat().st_size,
    )


# adapter_config.json


def _config(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _CONFIG_BYTES_MAX:
        raise _damaged(CONFIG, f"it has more than {_CONFIG_BYTES_MAX} bytes")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _damaged(CONFIG, f"not JSON: {plain(error, 200)}") from None
    if not isinstance(config, dict):
        raise _damaged(CONFIG, "not a JSON object")
    kind = str(config.get("peft_type", "")).upper()
    if kind != "LORA":
        raise _unsupported(f"peft_type is {plain(config.get('peft_type'), 40)!r}, not LORA")
    for key, told in (
        ("use_dora", "its layers are scaled by magnitude (DoRA)"),
        ("modules_to_save", "it replaces whole modules of its base (modules_to_save)"),
        ("fan_in_fan_out", "its matrices are transposed (fan_in_fan_out)"),
        ("lora_bias", "it has biases of its own (lora_bias)"),
        ("trainable_token_indices", "it replaces embeddings of tokens (trainable_token_indices)"),
    ):
        if config.get(key):
            raise _unsupported(told)
    if config.get("bias", "none") != "none":
        raise _unsupported(f"it replaces biases of its base (bias {plain(config['bias'], 20)!r})")
    return config


def _scale(module: str, rank: int, config: dict[str, Any]) -> float:
    """alpha divided by the rank, or by the rank's square root; the matrices give the rank."""
    alpha = config.get("lora_alpha")
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise _damaged(CONFIG, "alpha_pattern is no object")
    for pattern, value in patterns.items():
        if not all(char.isalnum() or char in "._" for char in pattern):
            # A regular expression from the file could run for ever.
            raise _unsupported(f"alpha_pattern {plain(pattern, 60)!r} is not a name of modules")
        if module == pattern or module.endswith(f".{pattern}"):
            alpha = value
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise _damaged(CONFIG, f"lora_alpha of {module} is {plain(alpha, 40)!r}, not a number")
    try:
        scale = float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)
    except OverflowError:  # JSON has integers that no float can hold
        scale = math.inf
    if not abs(scale) <= _SCALE_MAX:  # also refuses NaN
        raise _damaged(CONFIG, f"lora_alpha of {module} gives a scale of {scale:g}")
    return scale


# adapter_model.safetensors


def _matrices(path: Path) -> dict[str, Matrix]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_BYTES_MAX):
            raise _damaged(WEIGHTS, f"its {size} bytes can't hold a header of {length}")
        head = file.read(length)
    try:
        header = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise _damaged(WEIGHTS, f"its header can't be read: {plain(error, 200)}") from None
    if not isinstance(header, dict) or len(header) > _TENSORS_MAX:
        raise _damaged(WEIGHTS, f"its header is no object of at most {_TENSORS_MAX} tensors")
    header.pop("__metadata__", None)
    begin = 8 + length
    found = {str(name): _matrix(str(name), told, begin, size) for name, told in header.items()}
    at = begin
    for name, one in sorted(found.items(), key=lambda item: (item[1].begin, item[1].end)):
        if one.begin != at:
            raise _damaged(WEIGHTS, f"bytes of {plain(name, 120)} are another's, or nobody's")
        at = one.end
    if at != size:
        raise _damaged(WEIGHTS, f"its header tells of {at} bytes, and it has {size}")
    return found


def _matrix(name: str, told: Any, begin: int, size: int) -> Matrix:
    shown = plain(name, 120)
    try:
        dtype, shape, (first, last) = told["dtype"], told["shape"], told["data_offsets"]
        numbers = [first, last, *shape]
    except (TypeError, KeyError, ValueError):
        raise _damaged(WEIGHTS, f"the header's entry of {shown} is not a tensor's") from None
    if any(type(number) is not int or number < 0 for number in numbers):
        raise _damaged(WEIGHTS, f"shape or place of {shown} are no numbers")
    if not isinstance(dtype, str) or dtype not in _WIDTHS:
        raise _unsupported(f"{shown} is of type {plain(dtype, 20)}, not {', '.join(_WIDTHS)}")
    if len(shape) != 2:
        raise _unsupported(f"{shown} has {len(shape)} dimensions: only linear layers are adapted")
    rows, columns = shape
    if last > size - begin or last - first != rows * columns * _WIDTHS[dtype] or last == first:
        raise _damaged(WEIGHTS, f"{shown} is said to lie where the file does not hold it")
    return Matrix(dtype, rows, columns, begin + first, begin + last)


def _layers(matrices: dict[str, Matrix], config: dict[str, Any]) -> Iterator[Layer]:
    pairs: dict[str, dict[str, Matrix]] = {}
    for name, matrix in matrices.items():
        module, part = _parted(name)
        if part in pairs.setdefault(module, {}):
            raise _damaged(WEIGHTS, f"layer {plain(module, 120)} is there twice")
        pairs[module][part] = matrix
    for module, pair in sorted(pairs.items()):
        shown = plain(module, 120)
        if len(pair) != 2:
            raise _damaged(WEIGHTS, f"{shown} has lora_{'A' if 'A' in pair else 'B'} alone")
        down, up = pair["A"], pair["B"]
        if down.rows != up.columns:
            raise _damaged(WEIGHTS, f"{shown}: lora_A has rank {down.rows}, lora_B {up.columns}")
        if down.rows > RANK_MAX:
            raise _unsupported(f"{shown} has rank {down.rows}, at most {RANK_MAX} are taken")
        yield Layer(module, down, up, _scale(module, down.rows, config))


def _parted(name: str) -> tuple[str, str]:
    """(module of the base, A or B) of a tensor's name, with or without the adapter's own name."""
    for part in ("A", "B"):
        module, found, rest = name.partition(f".lora_{part}.")
        if found and rest in ("weight", "default.weight"):
            return module.removeprefix(_PREFIX), part
    raise _unsupported(f"{plain(name, 120)} is neither lora_A nor lora_B of a linear layer")


def _without_weights(root: Path) -> CallerError:
    if (root / PICKLE).is_file():
        return CallerError(
            "artifact-untrusted",
            f"{PICKLE} is a pickle file: loading it can run any program",
            hint=f"Save the adapter as {WEIGHTS} (PEFT's save_pretrained does).",
        )
    return CallerError(
        "adapter-incomplete",
        f"the adapter's artifact has no {WEIGHTS}",
        hint="Pack both files that PEFT's save_pretrained writes.",
    )


def _unsupported(cause: str) -> CallerError:
    return CallerError(
        "adapter-unsupported",
        f"the adapter is not of a kind that is served: {cause}",
        hint="Adapters are LoRA on linear layers. Merge any other into its base model and create a "
        "component of its own.",
    )


def _damaged(name: str, cause: str) -> CallerError:
    return CallerError(
        "adapter-damaged",
        f"{name}: {cause}",
        hint="Save the adapter again by PEFT's save_pretrained, and pack it anew.",
    )

"""What a worker does with a TorchScript file: SageMaker's four functions, by PyTorch.

Runs in the worker, maybe with the Python of another environment, so PyTorch is imported by the
functions. Bodies are those of `sagemaker_contract`: a JSON list, CSV or NPY is the one argument of
`forward`; `{"inputs": {name: rows}}`, a list of objects, or NPZ give several by name. Answers are
plain lists, as those of PyTorch's container are.

JSON and CSV state no dtype. Numbers become FP32, as PyTorch's container does, except in an argument
that the program looks up in a table (an embedding): that one is INT64. NPY and NPZ state theirs.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.distribution import install_command
from penstock.errors import ModelError
from penstock.runtimes.python.default_bodies import arrays_of, decode_default, encode_default
from penstock.runtimes.python.toolkit_context import Context
from penstock.runtimes.toolkits import bodies

_NPZ: Final = "application/x-npz"
#: Operators whose second argument is a table's rows.
_LOOKUPS: Final = ("aten::embedding", "aten::embedding_bag")
#: Operators that pass on what they are given, in other shapes.
_MOVES: Final = ("aten::view", "aten::reshape", "aten::unsqueeze", "aten::squeeze", "aten::to")


def default_model_fn(model_dir: str, context: Context) -> Any:
    """The program on a GPU if there is one. Raises ModelError (`runtime-not-installed`)."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ModelError(
            "runtime-not-installed",
            f"the model is a TorchScript program, and its Python has no PyTorch: {error}",
            hint="Let the model have an environment of its own (control.environments: on), or "
            f"install PyTorch for the server: {install_command('torch')}. Or compile it: penstock "
            "compile MODEL.pt --target cpu-fp32 --input x:FP32:-1,4 -o COMPILED, with its "
            "arguments' names, dtypes and sizes.",
        ) from None
    file = context.manifest["model"]["serializedFile"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.jit.load(str(Path(model_dir, file)), map_location=device).eval()
    except RuntimeError as error:
        words = " ".join(str(error).split())[:400]
        raise ModelError(
            "model-unreadable",
            f"{file}: PyTorch {torch.__version__} cannot load it: {words}",
            hint="Compare the file with the original. If it is whole, it was written by a newer "
            "PyTorch, or uses operators of a library beside it: torchvision for example.",
        ) from None


@dataclass(frozen=True, slots=True)
class Given:
    """A request's array, or its arrays by name."""

    arrays: Any
    typed: bool  #: the body states their dtypes


def default_input_fn(data: Any, content_type: str) -> Given:
    """Raises ModelError (400 or 415)."""
    kind = bodies.media_type(content_type)
    if kind == _NPZ:
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                return Given({name: file[name] for name in file.files}, typed=True)
        except (ValueError, OSError, EOFError) as error:
            raise _wrong(f"the body is not NPZ: {str(error)[:200]}") from None
    return Given(arrays_of(decode_default(data, kind), _array), typed=kind == bodies.NPY)


def _array(rows: Any, name: str) -> np.ndarray:
    try:
        array = np.array(rows)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "fiub":
        where = f" of {name!r}" if name else ""
        raise _wrong(f"the values{where} are no numbers in lists of equal lengths")
    return array


def _wrong(message: str) -> ModelError:
    return ModelError("bad-input", message, original_status=400)


def default_predict_fn(data: Given, model: Any) -> Any:
    """Raises ModelError: 400 for names that `forward` has not, `model-failed` for its errors."""
    torch: Any = importlib.import_module("torch")
    names = [each.name for each in model.forward.schema.arguments[1:]]
    first = names[0] if names else ""
    given = data.arrays if isinstance(data.arrays, dict) else {first: data.arrays}
    if wrong := [name for name in given if name not in names]:
        raise _wrong(f"the model has no argument {wrong[0][:80]!r}; it has {', '.join(names)}")
    looked_up = set() if data.typed else _looked_up(model, names)
    device = next((each.device for each in model.parameters()), None)
    tensors = {
        name: torch.from_numpy(
            array if data.typed else array.astype(_dtype(array, integers=name in looked_up))
        ).to(device or "cpu")
        for name, array in given.items()
    }
    try:
        with torch.inference_mode():
            return model(**tensors)
    except RuntimeError as error:
        words = [line for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            "model-failed", f"the model failed: {(words or ['RuntimeError'])[-1][:400]}"
        ) from None


def _dtype(array: np.ndarray, *, integers: bool) -> Any:
    if integers:
        return np.int64
    return array.dtype if array.dtype.kind == "b" else np.float32


def _looked_up(model: Any, names: Iterable[str]) -> set[str]:
    """The arguments that the program looks up in a table."""
    found = set()
    for value, name in zip(list(model.inlined_graph.inputs())[1:], names, strict=False):
        pending = [value]
        for each in pending:  # grows while it is walked
            for use in each.uses():
                kind = use.user.kind()
                if kind in _LOOKUPS and use.offset == 1:
                    found.add(name)
                elif kind in _MOVES and use.offset == 0 and len(pending) < 100:
                    pending += list(use.user.outputs())
    return found


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Raises ModelError (406)."""
    return encode_default(_plain(prediction), accept)


def _plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        return (tensor if tensor.dtype.itemsize != 2 else tensor.float()).numpy()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value

"""Defaults of SageMaker's PyTorch toolkit: a TorchScript model, called without gradients.

JSON and CSV become float32 tensors, NPY keeps its type; all go to the GPU where there is one.
Source: default_pytorch_inference_handler.py of sagemaker-pytorch-inference-toolkit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError
from penstock.runtimes.toolkits import bodies

_IMAGE: Final = "pytorch-inference:2.6-cpu"
_NAMED: Final = "model.pt"
_SUFFIXES: Final = (".pt", ".pth")


def default_model_fn(model_dir: str, context: Any) -> Any:
    """Loads the model's file by TorchScript; beside code model.pt, or the only *.pt or *.pth."""
    file = context.manifest["model"]["serializedFile"]
    path = _model_file(Path(model_dir)) if file.endswith(".py") else Path(model_dir, file)
    torch = bodies.library("torch", _IMAGE)
    try:
        return torch.jit.load(str(path), map_location=_device(torch)).to(_device(torch))
    except RuntimeError as error:
        why = str(error).partition(". ")[0][:300]
        raise ModelError(
            "model-file-invalid",
            f"{path.name} is no TorchScript file: {why}",
            hint="Save the model by torch.jit.save(torch.jit.script(model), ...), or define "
            "model_fn(model_dir), which makes the module and loads its weights.",
        ) from None


def _model_file(folder: Path) -> Path:
    if (folder / _NAMED).is_file():
        return folder / _NAMED
    found = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found) or "none"
    raise ModelError(
        "model-file-missing",
        f"model_fn is not defined, and the default one needs {_NAMED}, or exactly one .pt or .pth "
        f"file at the artifact's root: there is {names}",
        hint="Define model_fn(model_dir), or name the TorchScript file model.pt.",
    )


def _device(torch: Any) -> Any:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def default_input_fn(data: Any, content_type: str) -> Any:
    """A tensor on the model's device."""
    import numpy as np

    array = bodies.array_of(data, content_type)
    torch = bodies.library("torch", _IMAGE)
    kind = bodies.media_type(content_type)
    try:
        if kind != bodies.NPY:
            array = array.astype(np.float32)
        return torch.from_numpy(array).to(_device(torch))
    except (TypeError, ValueError) as error:
        raise bodies.unreadable(kind, error) from None


def default_predict_fn(data: Any, model: Any) -> Any:
    torch = bodies.library("torch", _IMAGE)
    with torch.no_grad():
        device = _device(torch)
        if hasattr(model, "eval"):
            model = model.to(device)
            model.eval()
        return model(data.to(device) if hasattr(data, "to") else data)


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Tensors as nested lists, also inside of lists and objects."""
    return bodies.written(_plain(prediction), accept)


def _plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy().tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value

"""The error for an artifact that fits no layout: what it looks like, and how to convert it.

Whoever meets this error has a model in some other form. It helps most to recognise that form and
to say what is missing, so the table here is long on purpose.
"""

from __future__ import annotations

from pathlib import Path

from penstock.artifacts.files.paths import shown
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import Interface

_FILES_SHOWN_MAX = 12
_FILES_SEEN_MAX = 2000

#: File patterns that run code when they are loaded.
_PICKLES = (
    "*.pkl", "*.pickle", "*.joblib", "*.pt", "*.pth", "*.ckpt", "pytorch_model*.bin",
    "xgboost-model",
)  # fmt: skip

_PACKED = (
    "a file named as an archive that was not unpacked",
    "Either CompressionType None says to leave it (give Gzip), or it is no such archive: upload it "
    "again.",
)

#: (pattern, kind of file, what to do), first match wins.
_FOREIGN = (
    ("model.yml", "a description under another name", "Rename model.yml to model.yaml."),
    ("inference.py", "user code outside of code/", "Move inference.py into a folder code/."),
    (
        "adapter_config.json",
        "a LoRA adapter",
        "Create an inference component for it with BaseInferenceComponentName, beside that of its "
        "base model, or merge it into the base.",
    ),
    (
        "serving.properties",
        "a configuration of the DJL server",
        "Put the model's own files beside it; models are not fetched by their names.",
    ),
    ("*.tar.gz", *_PACKED),
    ("*.tgz", *_PACKED),
    ("*.tar", *_PACKED),
    ("*.gguf", "a GGUF model", "Text generation takes the same model's Hugging Face directory."),
    ("*.mar", "a TorchServe archive", "Export the model to ONNX, or write a code/inference.py."),
    ("**/saved_model.pb", "a TensorFlow SavedModel", "Convert it to ONNX, for example by tf2onnx."),
    ("MLmodel", "an MLflow model", "Export the model to ONNX, or write a code/inference.py."),
    (
        "*.safetensors",
        "Hugging Face weights",
        "Weights need compiling first: run `penstock compile` on the whole Hugging Face directory, "
        "or write a code/inference.py that loads them.",
    ),
    (
        "*.bin",
        "weights without the graph they belong to",
        "Pack the .xml of an OpenVINO IR beside its .bin; other weights need compiling first.",
    ),
)


def layout_unknown(root: Path, *, trusted: bool) -> CallerError:
    """The error for `root`: `artifact-untrusted` for pickles, else `artifact-layout-unknown`."""
    found = _found(root)
    for pattern, what, remedy in _FOREIGN:
        if pattern == "*.safetensors" and not _is_hugging_face(root):
            continue
        if next(root.glob(pattern), None) is not None and not _has_pickle(root, pattern):
            return CallerError(
                "artifact-layout-unknown",
                f"the artifact is {what} ({found}), which is not served as it is",
                hint=f"{remedy} Understood are: {_understood()}.",
            )
    pickle = _first_pickle(root)
    if pickle and not trusted:
        return CallerError(
            "artifact-untrusted",
            f"{shown(pickle)} is a pickle file: loading it can run any program",
            hint="Export the model to ONNX. A code/inference.py may load the file itself; for "
            "anything else the operator lists the URI in control.trusted_artifacts.",
        )
    if pickle:
        return CallerError(
            "artifact-layout-unknown",
            f"{shown(pickle)} is trusted, and nothing says how to answer requests with it",
            hint="Add a code/inference.py with model_fn (loads it) and predict_fn.",
        )
    return CallerError(
        "artifact-layout-unknown",
        f"the artifact has none of the layouts that are understood; it holds {found}",
        hint=f"Understood are: {_understood()}.",
    )


def _understood() -> str:
    """All layouts in the order in which they are tried."""
    code = [one.understood for one in registry.records(Interface.PAYLOAD)]
    files = [one.understood for one in registry.records(Interface.TENSORS)]
    layouts = ["model.yaml", *code, "a Triton repository (config.pbtxt)", *files]
    return "; ".join(filter(None, layouts))


def _is_hugging_face(root: Path) -> bool:
    return (root / "config.json").is_file() or next(root.glob("*.safetensors"), None) is not None


def _has_pickle(root: Path, pattern: str) -> bool:
    """Whether `*.bin` files are PyTorch's pickles, which have an error of their own."""
    return pattern == "*.bin" and bool(_first_pickle(root))


def _first_pickle(root: Path) -> str:
    for pattern in _PICKLES:
        for path in root.glob(pattern):
            return path.name
    return ""


def _found(root: Path) -> str:
    names = []
    for count, path in enumerate(root.rglob("*")):
        if count >= _FILES_SEEN_MAX:
            break
        if path.is_file():
            names.append(path.relative_to(root).as_posix())
    names.sort(key=lambda name: (name.count("/"), name))
    text = ", ".join(shown(name) for name in names[:_FILES_SHOWN_MAX]) or "nothing"
    more = len(names) - _FILES_SHOWN_MAX
    return f"{text} and {more} more" if more > 0 else text

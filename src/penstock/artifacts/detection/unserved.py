"""Says what an artifact is that fits no layout, and what to do about it.

Whoever meets this error has a model in some other form. It helps most to recognise that form, by
content where a name says little, and to give commands that work: so the tables are long on purpose.
Files are read, never executed or unpickled.
"""

from __future__ import annotations

from pathlib import Path

from penstock.artifacts.detection import keras_files, torch_files
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
    (
        "inference.py",
        "a script that defines none of model_fn, input_fn, predict_fn, output_fn and transform_fn",
        "Define model_fn(model_dir), which loads the model, in inference.py.",
    ),
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
    (
        "*.mar",
        "a TorchServe archive",
        "It is a ZIP file: unpack it (unzip -d DIR FILE.mar) and deploy the model file in it, or "
        "keep its handler's code as code/inference.py (model_fn, predict_fn) beside the model.",
    ),
    (
        "**/*.mlmodel",
        "a Core ML model",
        "Core ML runs on Apple's systems alone: export the model that it was made from to ONNX.",
    ),
    (
        "*.pmml",
        "a PMML model",
        "Put it beside a code/inference.py whose model_fn reads it by pypmml, named in "
        "code/requirements.txt; or export the model that it was made from to ONNX.",
    ),
    (
        "*.pb",
        "a frozen TensorFlow graph",
        "Convert it: python -m tf2onnx.convert --graphdef FILE.pb --inputs x:0 --outputs y:0 "
        "--output model.onnx, with the names of its tensors.",
    ),
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
    told = _by_content(root)
    if told is not None:
        return told
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


def _by_content(root: Path) -> CallerError | None:
    """The error for a file that its content tells."""
    if (root / "MLmodel").is_file():
        return _of_mlflow(root)
    for path in sorted(root.glob("*")):
        if not path.is_file():
            continue
        if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
            told = _of_torch(path)
            if told is not None:
                return told
        if path.suffix in (".h5", ".hdf5", ".keras") and not keras_files.kind_of(path):
            return _unserved(
                f"{shown(path.name)} holds weights and no whole model of Keras",
                "Save the whole model where it was made (model.save('model.keras')), or add a "
                "code/inference.py whose model_fn makes the model and loads the weights.",
            )
    return None


def _of_torch(path: Path) -> CallerError | None:
    """Two of the kinds are served: this is asked for what no runtime took."""
    kind = torch_files.kind_of(path)
    name = shown(path.name)
    if kind == torch_files.EXPORTED:
        return _unserved(
            f"{name} is a program of torch.export under another name",
            f"Rename it: mv {path.name} {path.stem}.pt2",
        )
    if kind == torch_files.WEIGHTS:
        return _unserved(
            f"{name} holds weights (torch.save of a state_dict) and no program",
            "Where the model is made: torch.jit.script(model.eval()).save('model.pt'), or "
            "torch.jit.trace(model.eval(), example).save('model.pt'), and deploy that file. Or add "
            "a code/inference.py whose model_fn makes the model and loads the weights by "
            "torch.load(path, weights_only=True).",
        )
    if kind == torch_files.MODULE:
        made = torch_files.first_class(path)
        return CallerError(
            "artifact-untrusted",
            f"{name} is a pickle file of a whole module"
            f"{f' (of the class {shown(made)})' if made else ''}: loading it can run any program, "
            "and it needs the code of its classes",
            hint="Where the model is made: torch.jit.script(model.eval()).save('model.pt'), or "
            "torch.jit.trace(model.eval(), example).save('model.pt'), and deploy that file. Or add "
            "a code/inference.py with the class and a model_fn that loads the file itself.",
        )
    return None


#: Files inside an MLflow model that are served by themselves, and what to call them.
_INSIDE_MLFLOW = (
    ("**/*.onnx", "ONNX"), ("**/saved_model.pb", "a SavedModel"), ("**/*.keras", "Keras"),
    ("**/*.ubj", "XGBoost"), ("**/*.xgb", "XGBoost"), ("**/*.lgb", "LightGBM"),
    ("**/*.cb", "CatBoost"), ("**/*.cbm", "CatBoost"), ("**/model.json", "XGBoost"),
)  # fmt: skip


def _of_mlflow(root: Path) -> CallerError:
    for pattern, kind in _INSIDE_MLFLOW:
        for path in sorted(root.glob(pattern)):
            inner = path.relative_to(root)
            folder = root.name if len(inner.parts) == 1 else f"{root.name}/{inner.parts[0]}"
            where = f"copy {inner} into a folder of its own" if len(inner.parts) == 1 else ""
            return _unserved(
                f"the artifact is an MLflow model, with {kind} in {shown(inner.as_posix())}",
                f"Deploy the model itself: {where or f'penstock deploy NAME {folder}'}.",
            )
    return _unserved(
        "the artifact is an MLflow model without a file in it that is served by itself",
        "Add a code/inference.py: model_fn returns mlflow.pyfunc.load_model(model_dir), and "
        "code/requirements.txt is MLflow's requirements.txt with a line mlflow; or "
        "export the model to ONNX.",
    )


def _unserved(message: str, hint: str) -> CallerError:
    return CallerError("artifact-layout-unknown", message, hint=hint)


def _understood() -> str:
    """All layouts in the order in which they are tried."""
    code = [one.understood for one in registry.records(Interface.PAYLOAD) if one.layout]
    files = [one.understood for one in registry.records() if not one.layout]
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

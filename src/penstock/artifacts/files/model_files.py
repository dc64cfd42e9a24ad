"""Model files below an artifact's root: finds the right one, and checks that it is whole.

A file that was cut short is refused here by its name, before a runtime aborts on it. No weights
are read: ONNX is skipped through by its lengths, and OpenVINO's IR states its weights' size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from penstock.artifacts.files.listing import CHUNK_BYTES
from penstock.artifacts.files.onnx_header import OnnxHeader, read_header
from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError

#: Exporters write these beside the model; they are no models to be served.
_COMPANIONS = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
_USUAL_NAMES = (
    "model.xml", "openvino_model.xml", "model.onnx", "model_quantized.onnx",
    "xgboost-model", "model.ubj", "model.json", "model.txt", "model.cbm", "model.skops",
    "model.joblib", "model.pkl", "model.pickle", "model.pt", "model.pth", "model.keras", "model.h5",
)  # fmt: skip
#: Most rows that are joined for a graph with a declared batch dimension; no request waits for it.
_BATCHED_ROWS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a model file says about itself."""

    has_strings: bool = False  #: whether it has tensors of text
    #: most rows that may be joined; 0 = the file does not say which dimension is the batch
    rows_max: int = 0
    #: requirements of the libraries that made it, such as "xgboost==2.0.3"
    framework: tuple[str, ...] = ()


SAVED_MODEL = "saved_model.pb"  #: TensorFlow's graph, whose variables lie in a folder beside it


def is_graph(path: Path) -> bool:
    """Whether the file is what its suffix says: others than OpenVINO write .xml, others than
    TensorFlow .pb."""
    if path.suffix == ".pb":
        return path.name == SAVED_MODEL
    if path.suffix not in (".xml", ".tflite"):
        return True
    with open(path, "rb") as file:
        head = file.read(4096)
    return head[4:8] == b"TFL3" if path.suffix == ".tflite" else b"<net" in head


def saved_model(root: Path) -> str:
    """The SavedModel in a folder of its own, as TensorFlow Serving has them: of several versions
    the newest. "" if there is none. Raises `CallerError` (`artifact-ambiguous`)."""
    found = sorted(path for depth in range(1, 5) for path in root.glob("*/" * depth + SAVED_MODEL))
    versions = [path for path in found if path.parent.name.isdecimal()]
    if versions and len({path.parent.parent for path in found}) == 1:
        found = [max(versions, key=lambda path: int(path.parent.name))]
    if len(found) > 1:
        names = ", ".join(shown(path.relative_to(root).as_posix()) for path in found[:10])
        raise CallerError(
            "artifact-ambiguous",
            f"several model files: {names}",
            hint="Add a model.yaml that says `file: ...`, or pack one model per artifact.",
        )
    return found[0].relative_to(root).as_posix() if found else ""


def find_model_file(
    root: Path,
    suffixes: Iterable[str | tuple[str, ...]],
    is_model: Callable[[Path], bool] = is_graph,
) -> str:
    """The model file at the top of `root`, of the first suffix that has any; "" if none has. A
    tuple's suffixes are equally good.

    Raises `CallerError` (`artifact-ambiguous`) if several could be meant.
    """
    files = sorted(path for path in root.iterdir() if path.is_file())
    for suffix in suffixes:
        names = [
            path.name
            for path in files
            if path.name.endswith(suffix) and path.name not in _COMPANIONS and is_model(path)
        ]
        if len(names) > 1:
            usual = [name for name in _USUAL_NAMES if name in names]
            if not usual:
                raise CallerError(
                    "artifact-ambiguous",
                    f"several model files: {', '.join(shown(name) for name in names[:10])}",
                    hint="Add a model.yaml that says `file: ...`, or pack one model per artifact.",
                )
            names = usual
        if names:
            return names[0]
    return ""


def inside(root: Path, name: str, *, key: str) -> Path:
    """The existing file `name` below `root`. `key` is the setting that names it, for errors.

    Raises `CallerError` (`artifact-incomplete`, `artifact-path-unsafe`).
    """
    path = root / safe_path(name, where=key)
    if not path.is_file():
        raise CallerError(
            "artifact-incomplete",
            f"{key} names {shown(name)}, which is not in the artifact",
            hint="Pack the file with the model, or correct the name.",
        )
    if not path.resolve().is_relative_to(root.resolve()):
        raise CallerError(
            "artifact-path-unsafe",
            f"{key} names {shown(name)}, which is a link out of the artifact",
            hint="Put the file itself into the artifact.",
        )
    return path


def check_whole(root: Path, name: str) -> OnnxHeader | None:
    """Checks a model file; returns what an ONNX file says about its tensors.

    Raises `CallerError` (`model-file-invalid`, `artifact-incomplete`).
    """
    if name.endswith(".onnx"):
        return read_header(root / name, shown=name)
    if name.endswith(".xml"):
        _check_ir(root, name)
    return None


def graph_facts(root: Path, name: str, trusted: bool) -> FileFacts:
    """Facts of an ONNX or IR file. Neither runs code, trusted or not. Raises as `check_whole`."""
    header = check_whole(root, name)
    if header is None:
        return FileFacts()
    # Rows are joined only where the file itself says which dimension they are.
    rows_max = _BATCHED_ROWS_MAX if header.is_batched() else 0
    return FileFacts(has_strings=header.has_strings(), rows_max=rows_max)


def _check_ir(root: Path, name: str) -> None:
    weights = root / f"{name[: -len('.xml')]}.bin"
    constants = _Constants()
    try:
        # expat reads no external entities and bounds the growth of internal ones.
        parser = ElementTree.XMLParser(target=constants)  # noqa: S314
        with open(root / name, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                parser.feed(chunk)
        parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise CallerError(
            "model-file-invalid",
            f"{name}: not a whole OpenVINO IR file: {error}",
            hint="Export the model again; a copy may have been cut short.",
        ) from error
    if not weights.is_file():
        raise CallerError(
            "artifact-incomplete",
            f"{name}: its weights {weights.name} are not beside it",
            hint="Pack the .xml and the .bin file of the IR together.",
        )
    size, needed = weights.stat().st_size, constants.needed
    if size < needed:
        raise CallerError(
            "model-file-invalid",
            f"{weights.name}: cut short: {name} refers to {needed} bytes, and it has {size}",
            hint="Copy the file again and compare its size with the original.",
        )


class _Constants:
    """Measures the weights that an IR's constants need. Each load does this, so it builds no
    tree."""

    def __init__(self) -> None:
        self.needed = 0  #: bytes that the file of weights must have

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "data" and "offset" in attributes and "size" in attributes:
            self.needed = max(self.needed, int(attributes["offset"]) + int(attributes["size"]))

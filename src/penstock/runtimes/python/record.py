"""The record of the runtime "python", and its detection of the layout of SageMaker's toolkits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.files.model_files import inside
from penstock.artifacts.files.user_code import code_facts
from penstock.core.models.memory_need import MemoryRule
from penstock.errors import CallerError
from penstock.runtimes.python import toolkit_variables
from penstock.runtimes.record import Interface, RuntimeRecord

_DEFAULT: Final = "inference.py"
_FOLDER: Final = "code"
_CODE: Final = f"{_FOLDER}/{_DEFAULT}"
#: Where the toolkits find a model in their containers.
_CONTAINER_MODEL: Final = PurePosixPath("/opt/ml/model")
_CONTAINER_CODE: Final = PurePosixPath("/opt/ml/code")
#: Functions by which a file at the artifact's root shows that it is inference code.
_FUNCTIONS: Final = ("model_fn", "transform_fn", "input_fn", "predict_fn", "output_fn")
_TENSORFLOW: Final = ("input_handler", "output_handler")


def _layout(root: Path, environment: Mapping[str, str]) -> ModelDescription | None:
    """Raises CallerError (`artifact-incomplete`, `environment-invalid`, `toolkit-not-served`)."""
    file = _code_file(root, environment)
    if not file:
        return None
    _refuse_tensorflow(root, file)
    return ModelDescription(
        runtime=RECORD.name,
        task=RECORD.task,
        file=file,
        lanes=toolkit_variables.lanes_asked(environment),
    )


def _code_file(root: Path, environment: Mapping[str, str]) -> str:
    """The code file; "" where there is none. SAGEMAKER_PROGRAM may name another one."""
    program = environment.get("SAGEMAKER_PROGRAM", "")
    folders = _folders(environment.get("SAGEMAKER_SUBMIT_DIRECTORY", ""))
    if not program:
        return next((file for file in _joined(folders, _DEFAULT) if _is_code(root, file)), "")
    if not program.endswith(".py") and (root / f"{_FOLDER}/{program}.py").is_file():
        program += ".py"  # the toolkits take the name of a module as well
    files = _joined(folders, program)
    file = next((each for each in files if (root / each).is_file()), files[0])
    inside(root, file, key="SAGEMAKER_PROGRAM")
    return file


def _folders(submit_directory: str) -> list[str]:
    """Where the code may lie below the root, the likeliest first."""
    place = PurePosixPath(submit_directory.removeprefix("file://"))
    named: list[str] = []
    if place.is_relative_to(_CONTAINER_MODEL):
        named = [place.relative_to(_CONTAINER_MODEL).as_posix()]
    elif place.is_relative_to(_CONTAINER_CODE):
        named = [(_FOLDER / place.relative_to(_CONTAINER_CODE)).as_posix()]
    return list(dict.fromkeys([*named, _FOLDER, "."]))


def _joined(folders: list[str], name: str) -> list[str]:
    return [name if folder == "." else f"{folder}/{name}" for folder in folders]


def _is_code(root: Path, file: str) -> bool:
    """Outside of `code/` a script of this name may be anything: its functions tell."""
    path = root / file
    if not path.is_file():
        return False
    return file == _CODE or code_facts(path).may_define(*_FUNCTIONS, *_TENSORFLOW)


def _refuse_tensorflow(root: Path, file: str) -> None:
    facts = code_facts(root / file)
    handlers = facts.names.intersection(_TENSORFLOW)
    if handlers and facts.names.isdisjoint(_FUNCTIONS):
        raise CallerError(
            "toolkit-not-served",
            f"{file} defines {' and '.join(sorted(handlers))}: it is written for SageMaker's "
            "TensorFlow Serving container, which is not run here",
            hint="Deploy the SavedModel without this code, or write model_fn, which loads it, and "
            "input_fn, predict_fn and output_fn in place of the handlers.",
        )


RECORD: Final = RuntimeRecord(
    name="python",
    title="The model's own Python code: SageMaker's functions, or a TritonPythonModel",
    loaders={Interface.PAYLOAD: "penstock.runtimes.python.runtime:load"},
    memory=MemoryRule(factor=2.0, each_bytes=96 * 2**20),
    weight_files=("**/*",),  # code may read anything
    process_per_lane=True,
    understood=_CODE,
    suffixes=(".py",),
    default_file=_CODE,
    layout=_layout,
    handlers={
        "sklearn": "penstock.runtimes.toolkits.sklearn",
        "pytorch": "penstock.runtimes.toolkits.pytorch",
        "huggingface": "penstock.runtimes.toolkits.huggingface",
        "xgboost": "penstock.runtimes.toolkits.xgboost",
    },
    lanes_asked=toolkit_variables.lanes_asked,
    triton={"python": "model.py"},
    options=frozenset({"triton_python", "requirements"}),
    shared="workers",
)

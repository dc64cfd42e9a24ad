"""Environment variables that SageMaker's toolkits and their model servers read, and what each does
here.

One table decides and documents: `docs/generate.py` writes it to `docs/reference`. A variable that
would change an answer and is not served is refused by name; one that only concerns a server that is
not here (its Java heap, its ports) is logged once and has no effect. All of them, and any other
variable, are also passed to the model's code.

Sources: environment.py and parameters.py of sagemaker-inference-toolkit, ts_parameters.py of the
PyTorch toolkit, transformers_utils.py of the Hugging Face toolkit, serving_mms.py of the XGBoost
and scikit-learn containers, and the configuration pages of Multi Model Server and TorchServe, which
read each of their properties as MMS_... or TS_... too.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import CallerError

_WORKERS_MAX: Final = 64

#: The image sets it where it serves several models; so does the loading of a target model here.
MULTI_MODEL: Final = "SAGEMAKER_MULTI_MODEL"

SERVED: Final = "served"
NO_EFFECT: Final = "no effect"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class ToolkitVariable:
    """One row of the table."""

    name: str  #: with a `*` at the end: all that begin so
    use: str  #: SERVED, NO_EFFECT or REFUSED
    meaning: str  #: what it does here, or why it does nothing, or what to do instead
    harmless: tuple[str, ...] = ()  #: REFUSED: patterns of values that change nothing
    workers: bool = False  #: its value is the number of a model's processes
    seconds: bool = False  #: its value is the longest time of one request, in s


_S, _N, _R = SERVED, NO_EFFECT, REFUSED
_Row = ToolkitVariable

_NO_JVM: Final = "there is no Java server here"
_NO_PORT: Final = "models here have no port of their own"
_WORKER_COUNT: Final = "processes of the model, 1 to 64"
_TIME: Final = "seconds that one request may take; a longer run is ended"

#: Of several variables for one thing the first that is given counts.
TABLE: Final[tuple[ToolkitVariable, ...]] = (
    _Row("SAGEMAKER_PROGRAM", _S, "the code file, in `code/` or at the artifact's root"),
    _Row(
        "SAGEMAKER_SUBMIT_DIRECTORY",
        _S,
        "where the code lies: `s3://` (an archive of its own), `/opt/ml/model/code`, "
        "`/opt/ml/model` or a folder below; any other place means the artifact's own code",
    ),
    _Row("SAGEMAKER_MODEL_SERVER_WORKERS", _S, _WORKER_COUNT, workers=True),
    _Row("MMS_DEFAULT_WORKERS_PER_MODEL", _S, _WORKER_COUNT, workers=True),
    _Row("TS_DEFAULT_WORKERS_PER_MODEL", _S, _WORKER_COUNT, workers=True),
    _Row("SAGEMAKER_TS_MAX_WORKERS", _S, _WORKER_COUNT, workers=True),
    _Row("SAGEMAKER_TS_MIN_WORKERS", _S, _WORKER_COUNT, workers=True),
    _Row("SAGEMAKER_NUM_MODEL_WORKERS", _S, _WORKER_COUNT, workers=True),
    _Row("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", _S, _TIME, seconds=True),
    _Row("SAGEMAKER_MODEL_SERVER_TIMEOUT", _S, f"{_TIME}; 60", seconds=True),
    _Row("SAGEMAKER_TS_RESPONSE_TIMEOUT", _S, _TIME, seconds=True),
    _Row("MMS_DEFAULT_RESPONSE_TIMEOUT", _S, _TIME, seconds=True),
    _Row("TS_DEFAULT_RESPONSE_TIMEOUT", _S, _TIME, seconds=True),
    _Row("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", _S, "the answer's type where Accept names none"),
    _Row(
        "SAGEMAKER_CONTAINER_LOG_LEVEL",
        _S,
        "level of Python's logging in the model's process, a number; 20 (INFO). Such a model gets "
        "a process of its own",
    ),
    _Row("SAGEMAKER_MAX_PAYLOAD_IN_MB", _S, "largest request body, in MiB; a larger one is 413"),
    _Row("SAGEMAKER_MAX_REQUEST_SIZE", _S, "largest request body, in bytes; a larger one is 413"),
    _Row("MMS_MAX_REQUEST_SIZE", _S, "largest request body, in bytes; a larger one is 413"),
    _Row("TS_MAX_REQUEST_SIZE", _S, "largest request body, in bytes; a larger one is 413"),
    _Row("MMS_MAX_RESPONSE_SIZE", _S, "largest answer, in bytes; a larger one is 507"),
    _Row("TS_MAX_RESPONSE_SIZE", _S, "largest answer, in bytes; a larger one is 507"),
    _Row("OMP_NUM_THREADS", _S, "threads of numeric libraries; else the copy's share of its cores"),
    _Row("HF_TASK", _S, "the pipeline of a Hugging Face model; else by its `architectures`"),
    _Row("HF_TRUST_REMOTE_CODE", _S, "`true`: Python files of the model's own folder may be run"),
    _Row(
        "HF_MODEL_ID",
        _N,
        "the artifact's own files are served; a model without files is refused, as none is "
        "fetched from a hub",
    ),
    _Row("HF_MODEL_REVISION", _N, "models are not fetched from a hub"),
    _Row("HF_API_TOKEN", _N, "models are not fetched from a hub; the model's code may read it"),
    _Row("HF_OPTIMUM_*", _N, "for AWS Neuron devices, of which there are none"),
    _Row(
        "SAGEMAKER_BASE_DIR",
        _R,
        "a model's files are always in the folder that `model_fn` gets",
        harmless=("/opt/ml", "/opt/ml/"),
    ),
    *(
        _Row(
            name,
            _R,
            "another handler service than the framework's own is not called: give its work to "
            "`model_fn`, `input_fn`, `predict_fn` and `output_fn`",
            harmless=("sagemaker_*",),
        )
        for name in (
            "SAGEMAKER_HANDLER", "SAGEMAKER_SERVING_MODULE", "SAGEMAKER_MMS_DEFAULT_HANDLER",
            "MMS_DEFAULT_SERVICE_HANDLER", "TS_DEFAULT_SERVICE_HANDLER",
        )
    ),
    _Row(
        "SAGEMAKER_INFERENCE_ACCELERATOR_PRESENT",
        _R,
        "Elastic Inference does not exist any more",
        harmless=("false", ""),
    ),
    _Row(
        "SAGEMAKER_TFS_*",
        _R,
        "TensorFlow Serving is not run here: deploy the SavedModel without code, or load it in "
        "`model_fn`",
    ),
    _Row("TF_*", _S, "TensorFlow's own variables reach the model's process"),
    _Row(
        MULTI_MODEL,
        _S,
        "set for target models; the built-in XGBoost algorithm then answers in its image's other "
        "form",
    ),
    _Row("SAGEMAKER_TS_BATCH_SIZE", _N, "these functions get one request at a time, as in AWS"),
    _Row("SAGEMAKER_TS_MAX_BATCH_DELAY", _N, "these functions get one request at a time"),
    _Row(
        "SAGEMAKER_STARTUP_TIMEOUT",
        _N,
        "`ContainerStartupHealthCheckTimeoutInSeconds` says how long loading may take",
    ),
    *(
        _Row(name, _N, "requests wait as long as their deadline allows, in no queue of a length")
        for name in ("SAGEMAKER_MODEL_JOB_QUEUE_SIZE", "MMS_JOB_QUEUE_SIZE", "TS_JOB_QUEUE_SIZE")
    ),
    *(
        _Row(name, _N, _NO_PORT)
        for name in (
            "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE", "MMS_INFERENCE_ADDRESS",
            "MMS_MANAGEMENT_ADDRESS", "TS_INFERENCE_ADDRESS", "TS_MANAGEMENT_ADDRESS",
            "TS_METRICS_ADDRESS",
        )
    ),
    *(
        _Row(name, _N, _NO_JVM)
        for name in (
            "SAGEMAKER_MODEL_SERVER_VMARGS", "SAGEMAKER_MAX_HEAP_SIZE",
            "SAGEMAKER_MAX_DIRECT_MEMORY_SIZE", "SAGEMAKER_DISABLE_CONTAINER_SUPPORT",
            "SAGEMAKER_MMS_MODEL_STORE", "SAGEMAKER_MMS_LOAD_MODELS", "MMS_NUMBER_OF_NETTY_THREADS",
            "MMS_NETTY_CLIENT_THREADS", "MMS_VMARGS", "TS_NUMBER_OF_NETTY_THREADS",
            "TS_NETTY_CLIENT_THREADS", "TS_VMARGS", "TS_METRICS_MODE",
            "TS_DISABLE_TOKEN_AUTHORIZATION",
        )
    ),
    *(
        _Row(name, _N, "the SDK's own note; nothing reads it while a model serves")
        for name in (
            "SAGEMAKER_REGION", "SAGEMAKER_SERVE_SECRET_KEY", "SAGEMAKER_ENABLE_CLOUDWATCH_METRICS",
            "SAGEMAKER_SKLEARN_VERSION", "SAGEMAKER_XGBOOST_VERSION", "SAGEMAKER_JOB_NAME",
            "SAGEMAKER_PYSDK_CREATED_BY",
        )
    ),
    *(
        _Row(name, _N, "XGBoost's container reads it only without code")
        for name in (
            "SAGEMAKER_INFERENCE_OUTPUT", "SAGEMAKER_INFERENCE_INPUT",
            "SAGEMAKER_INFERENCE_SUPPORTED", "SAGEMAKER_INFERENCE_ENSEMBLE", "SAGEMAKER_BATCH",
        )
    ),
)  # fmt: skip

#: Prefixes of variables that are the toolkits' and their servers', not the model's own.
_PREFIXES: Final = ("SAGEMAKER_", "MMS_", "TS_")


def row_of(name: str) -> ToolkitVariable | None:
    """The table's row for a variable; None: it is not a toolkit's."""
    for row in TABLE:
        if row.name == name or (row.name.endswith("*") and name.startswith(row.name[:-1])):
            return row
    return None


def refuse(environment: Mapping[str, str]) -> None:
    """Raises CallerError (`variable-not-served`) for the first one that can't be honoured."""
    for name, value in sorted(environment.items()):
        row = row_of(name)
        if row is None or row.use != REFUSED:
            continue
        if any(fnmatch.fnmatchcase(value, pattern) for pattern in row.harmless):
            continue
        raise CallerError(
            "variable-not-served",
            f"the model's Environment has {name}={value[:60]!r}, which is not served: "
            f"{row.meaning}",
            hint=f"Leave {name} out of the Environment. docs/reference/toolkit-variables.md lists "
            "what is served.",
        )


def notes(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable that has no effect here, for the log."""
    lines = []
    for name in sorted(environment):
        row = row_of(name)
        if row is not None and row.use == NO_EFFECT:
            lines.append(f"{name} has no effect here: {row.meaning}")
        elif row is None and name.startswith(_PREFIXES):
            lines.append(f"{name} is no variable of SageMaker's toolkits: only the code sees it")
    return lines


def lanes_asked(environment: Mapping[str, str]) -> int:
    """As `workers`. Raises CallerError for any variable that can't be honoured."""
    refuse(environment)
    return workers(environment)


def workers(environment: Mapping[str, str]) -> int:
    """Processes of a model; 1 where nothing is said. Raises CallerError (`environment-invalid`)."""
    name, given = _first(environment, [row.name for row in TABLE if row.workers])
    if not given:
        return 1
    digits = given.isascii() and given.isdigit() and len(given) <= len(str(_WORKERS_MAX))
    if not (digits and 1 <= int(given) <= _WORKERS_MAX):
        raise CallerError(
            "environment-invalid",
            f"{name} is {given[:20]!r}",
            hint=f"It must be a number from 1 to {_WORKERS_MAX}.",
        )
    return int(given)


def with_time_limit(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the time of a request under the name that `run_s_max` reads."""
    _, given = _first(environment, [row.name for row in TABLE if row.seconds])
    return {**environment, "SAGEMAKER_MODEL_SERVER_TIMEOUT": given}


def request_bytes_max(environment: Mapping[str, str]) -> int:
    """Largest body of a request; 0: only the server's own limit. Raises CallerError."""
    if environment.get("SAGEMAKER_MAX_PAYLOAD_IN_MB"):
        return _size(environment, "SAGEMAKER_MAX_PAYLOAD_IN_MB") * 2**20
    names = ("SAGEMAKER_MAX_REQUEST_SIZE", "MMS_MAX_REQUEST_SIZE", "TS_MAX_REQUEST_SIZE")
    name, given = _first(environment, names)
    return _size(environment, name) if given else 0


def answer_bytes_max(environment: Mapping[str, str]) -> int:
    """Largest body of an answer; 0: no limit of the model's. Raises CallerError."""
    name, given = _first(environment, ("MMS_MAX_RESPONSE_SIZE", "TS_MAX_RESPONSE_SIZE"))
    return _size(environment, name) if given else 0


def _size(environment: Mapping[str, str], name: str) -> int:
    given = environment[name]
    if not (given.isascii() and given.isdigit() and len(given) <= 15 and int(given)):
        raise CallerError(
            "environment-invalid", f"{name} is {given[:20]!r}", hint="It must be a number above 0."
        )
    return int(given)


def _first(environment: Mapping[str, str], names: list[str] | tuple[str, ...]) -> tuple[str, str]:
    """The first of these variables that has a value, with the value; empty: none has."""
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))

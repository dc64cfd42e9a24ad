"""The environment of a process with a model's code, and the settings that we read from it."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.environment import at_home_in, for_models

RUN_S_MAX = 60.0  #: s, as in AWS


def worker_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """The server's variables that models may see, SageMaker's variables, then the model's own."""
    threads = str(
        context.description.threads_per_lane
        or max(1, int(context.cores / max(1, context.description.lanes)))
    )
    file = Path(context.description.file)
    return {
        **for_models(),
        **at_home_in(str(scratch)),
        "OMP_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "SM_MODEL_DIR": str(context.model_dir),
        "SAGEMAKER_BASE_DIR": str(context.model_dir),
        "SAGEMAKER_MODEL_SERVER_WORKERS": str(context.description.lanes),
        **context.variables,
        # The local path: the model's variable has a container's folder, or an address in S3.
        "SAGEMAKER_PROGRAM": file.name,
        "SAGEMAKER_SUBMIT_DIRECTORY": str((context.model_dir / file).parent),
    }


def run_s_max(environment: dict[str, str]) -> float:
    """SAGEMAKER_MODEL_SERVER_TIMEOUT in s: a longer run counts as a hang. Raises ModelError."""
    given = environment.get("SAGEMAKER_MODEL_SERVER_TIMEOUT", "")
    if not given:
        return RUN_S_MAX
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ModelError(
            "invalid-environment",
            f"SAGEMAKER_MODEL_SERVER_TIMEOUT is {given!r}, a number of seconds is needed",
        )
    return seconds

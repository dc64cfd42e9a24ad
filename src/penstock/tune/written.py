"""The chosen setting as the artifact says it: lines to read, or a model.yaml to serve."""

from __future__ import annotations

from pathlib import Path

import yaml

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.durable_files import replace_file
from penstock.errors import NotNowError
from penstock.tune.settings import Setting


def lines(setting: Setting) -> str:
    """The keys of model.yaml that the setting consists of."""
    batching: dict[str, object] = {"rows_max": setting.rows_max}
    if setting.latency_s_p99_max is not None:
        batching["latency_ms_p99_max"] = round(setting.latency_s_p99_max * 1e3, 6)
    else:
        batching["wait_ms_max"] = round(setting.wait_s_max * 1e3, 6)
    fields = {
        "batching": batching,
        "lanes": setting.lanes,
        "threads_per_lane": setting.threads,
    }
    return str(yaml.safe_dump(fields, sort_keys=False))


def write(model_dir: Path, description: ModelDescription, setting: Setting) -> Path:
    """Writes model.yaml as a whole; of its comments those at the head of the file stay.

    Behind a full disk or a power cut there is the old file or the new one, and nothing beside it.

    Raises:
        NotNowError: `model-yaml-not-written`.
    """
    path = model_dir / model_yaml.FILE_NAME
    try:
        text = "".join(_head(path)) + model_yaml.dump(setting.applied(description))
        replace_file(path, (text.encode(),), mode=None)
    except OSError as error:
        raise NotNowError(
            "model-yaml-not-written",
            f"{path} can't be written: {error.strerror}",
            hint="Free disk space, or correct the permissions of the folder.",
        ) from error
    return path


def _head(path: Path) -> list[str]:
    head: list[str] = []
    if path.is_file():
        for line in path.read_text().splitlines(keepends=True):
            if not line.startswith("#"):
                break
            head.append(line)
    return head

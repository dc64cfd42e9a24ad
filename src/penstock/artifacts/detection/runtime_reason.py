"""Why a model has the runtime that it has, in a sentence for people (`penstock describe`)."""

from __future__ import annotations

from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.detect import Detected
from penstock.artifacts.sources.source import ArtifactSource
from penstock.runtimes import registry


def runtime_reason(detected: Detected, source: ArtifactSource) -> str:
    """`source` is what was asked for. The order is the one in which `detect` decides."""
    description = detected.description
    name = description.runtime
    if description.image:
        return f"the image {source.image} is in this machine's container engine"
    if source.image and description.command and not (detected.root / model_yaml.FILE_NAME).exists():
        return f"the image {source.image} is mapped to the command {' '.join(description.command)}"
    if (detected.root / model_yaml.FILE_NAME).is_file():
        return f"model.yaml names the runtime {name}"
    if source.image.startswith("local://") or source.runtime:
        return f"the deployment names the runtime {name}"
    if (detected.root / "config.pbtxt").is_file():
        return f"Triton's config.pbtxt names a backend that {name} serves"
    file = description.file or registry.record(name).default_file
    found = f"the artifact has {file}" if file else "the artifact's files are of its kind"
    return f"{found}, which {name} serves"

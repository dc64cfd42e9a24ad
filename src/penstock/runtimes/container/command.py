"""The options of `podman run` and `docker run` for a container that serves a model.

It has no capability of its own unless the operator gives it one, cannot gain any, writes only where
that can't fill the disk, and has no port of this machine unless that is the only way to reach it;
no network where its owner asks for isolation.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.core.machine.containers import (
    PROCESSES_MAX,
    READ_ONLY,
    ContainerWallsSpec,
    scratch_bytes,
)
from penstock.errors import ModelError
from penstock.runtimes.container.engine import ENDPOINT, OWNER

_CDI_KIND: Final = "nvidia.com/gpu"
#: By it images of CUDA ask NVIDIA's runtime for all GPUs. "void": this way they get none.
_ALL_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
PORT_INSIDE: Final = 8080  #: SageMaker's contract
#: Where SageMaker shows one model, and the models of a container with Mode MultiModel.
MODEL: Final = "/opt/ml/model"
MODELS: Final = "/opt/ml/models"
_CACHE: Final = "XDG_CACHE_HOME"  #: of Hugging Face, PyTorch, Matplotlib and others
#: A server of thousands of connections has enough; more than the user may have, none starts.
_FILES_MAX: Final = 65_536
#: The kernel counts all processes of a user against it, those of other containers, too: so it
#: bounds no container, and is as high as Podman can give it without CAP_SYS_RESOURCE.
_NPROC_MAX: Final = 32_768
#: The least weight that a control group may have; others have 1,024. A policy of the process would
#: count within the container's own group alone.
_SHARES_MIN: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A container to start. `image`: its id, so that nothing is pulled."""

    image: str
    docker: bool = False  #: the engine is Docker, where options differ
    name: str
    owner: str
    copy_name: str
    shown: Path | None  #: the folder that is shown, for reading; None: the image has its model
    shown_as: str = MODEL
    port: int = 0  #: of this machine's loopback, which leads to PORT_INSIDE; 0 = none
    isolated: bool = False  #: no network
    memory_bytes: int = 0  #: 0 = not limited
    cores: float = 0.0  #: 0 = not limited
    yields: bool = False  #: it gets the least of a core that others want
    walls: ContainerWallsSpec = field(default_factory=ContainerWallsSpec)
    volumes: tuple[str, ...] = ()  #: folders that the image declares
    devices: tuple[str, ...] = ()  #: accelerators, as CUDA_VISIBLE_DEVICES names them
    hostname: str = ""  #: inside; "" = the engine's own choice


def run_options(spec: RunSpec) -> list[str]:
    """All that stands behind `run --name NAME`, up to the image, which is asked to `serve`. Raises
    ModelError (`image-volume`) for what can't be told to an engine."""
    network = ["--network", "none"] if spec.isolated else []
    published = ["--publish", f"127.0.0.1:{spec.port}:{PORT_INSIDE}"] if spec.port else []
    options = [
        "--pull", "never", "--log-driver", "none", "--label", f"{OWNER}={spec.owner}",
        "--label", f"{ENDPOINT}={spec.copy_name}", *network, *published,
        "--cap-drop", "all", "--security-opt", "no-new-privileges",
        "--pids-limit", str(PROCESSES_MAX), *_limit("nofile", resource.RLIMIT_NOFILE, _FILES_MAX),
        *_limit("nproc", resource.RLIMIT_NPROC, _NPROC_MAX), *_written(spec),
    ]  # fmt: skip
    if spec.hostname:
        options += ["--hostname", spec.hostname]
    for capability in spec.walls.capabilities:
        options += ["--cap-add", capability]
    if spec.memory_bytes:
        limit = str(spec.memory_bytes)
        options += ["--memory", limit, "--memory-swap", limit]
    if 0 < spec.cores < (os.cpu_count() or 1):
        options += ["--cpus", f"{spec.cores:g}"]
    if spec.yields:
        options += ["--cpu-shares", _SHARES_MIN]
    options += _devices(spec)
    if spec.shown is not None:
        source = _quoted(f"src={spec.shown}")
        options += ["--mount", f"type=bind,{source},dst={spec.shown_as},ro"]
    return [*options, spec.image, "serve"]


def _written(spec: RunSpec) -> list[str]:
    """Where it may write. PyTorch's workers pass tensors in /dev/shm, and the engines' own 64 MiB
    are too few. Libraries compile into /tmp and load from there (`exec`). Raises ModelError."""
    size = scratch_bytes(spec.memory_bytes)
    options = ["--shm-size", str(size)]
    if spec.walls.root == READ_ONLY:
        options.append("--read-only")
    elif spec.walls.root_bytes:
        options += ["--storage-opt", f"size={spec.walls.root_bytes}"]
    for place in spec.walls.in_memory(spec.volumes):
        if place == spec.shown_as and spec.shown is not None:
            continue
        if ":" in place:
            raise ModelError(
                "image-volume",
                f"the image declares the volume {place!r}, which no engine can be told",
                hint="Declare a VOLUME without a colon.",
            )
        options += ["--tmpfs", f"{place}:rw,exec,nosuid,nodev,mode=1777,size={size}"]
    return options


def _devices(spec: RunSpec) -> list[str]:
    """Docker knew no names of CDI for long; its own option is on all versions."""
    if spec.devices and spec.docker:
        return ["--gpus", f'"device={",".join(spec.devices)}"']
    return [option for each in spec.devices for option in ("--device", f"{_CDI_KIND}={each}")]


def _limit(name: str, kind: int, most: int) -> list[str]:
    """The engines' own limits may be above what this user may give, and then nothing starts."""
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return ["--ulimit", f"{name}={value}:{value}"]


def _quoted(field: str) -> str:
    """One field of a list that is parted by commas."""
    return '"{}"'.format(field.replace('"', '""')) if "," in field or '"' in field else field


def container_environment(
    variables: Mapping[str, str], images_own: Collection[str], *, offline: bool
) -> dict[str, str]:
    """The model's own variables, and those that the contract adds.

    `images_own`: names of those that the image sets. Unless it says where libraries keep what they
    can make again, that is where every container may write; its home may be none of such places.
    """
    added = {"SAGEMAKER_BIND_TO_PORT": str(PORT_INSIDE)}
    if _CACHE not in images_own:
        added[_CACHE] = "/tmp/.cache"  # noqa: S108 - the container's own
    batch = {"SAGEMAKER_BATCH": "true"} if offline else {}
    return {**added, **batch, **variables, _ALL_DEVICES: "void"}


def parted(
    environment: Mapping[str, str], engines_own: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """(lines of an --env-file, variables that only the engine's own environment can pass).

    Neither is seen in a list of processes, as arguments would be. A file has no way to write a
    value of several lines. Raises ModelError (`environment-invalid`) where such a value would
    change how the engine itself works.
    """
    lines, passed = [], {}
    for name, value in environment.items():
        if "\n" not in value:
            lines.append(f"{name}={value}\n")
        elif name in engines_own or name.startswith(("LD_", "DOCKER_", "CONTAINER")):
            raise ModelError(
                "environment-invalid",
                f"the variable {name} has a value of several lines, which the container's engine"
                " would read itself",
                hint="Give it another name, or a value of one line.",
            )
        else:
            passed[name] = value
    return "".join(lines), passed

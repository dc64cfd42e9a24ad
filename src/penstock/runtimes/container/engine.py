"""Podman or Docker by its command line: whether it is there and works, images, what is left over.

Both take the same commands and options for all that is done here. All functions block, and none
waits longer for an engine than `ANSWER_S_MAX`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from penstock.core.machine.containers import (
    LIMITS,
    ContainerObserved,
    EngineDecision,
    EngineObserved,
    ImageObserved,
    candidates,
    cannot_limit,
    choose_engine,
    left_behind,
)
from penstock.core.machine.images import resolved, wrong_platform
from penstock.errors import NotNowError
from penstock.runtimes.container.settings import ContainerSettings

OWNER: Final = "penstock.owner"  #: label: the server, as `ContainerSettings.owner`
ENDPOINT: Final = "penstock.endpoint"  #: label: endpoint and variant
ATTENDANT: Final = "penstock.attendant"  #: label: the process that removes the container

#: A daemon that starts takes some seconds; one that answers nothing for longer is of no use.
ANSWER_S_MAX: Final = 30.0
#: What can be limited -> its name in what Docker says of itself.
_DOCKERS: Final = {"memory": "MemoryLimit", "pids": "PidsLimit"}
_LOOK_S_MAX: Final = 10.0  #: for whether it works at all: a server that ends waits for that
_CAP_SYS_ADMIN: Final = 1 << 21
#: The kernel's list of what runs programs of other machines.
_EMULATORS: Final = Path("/proc/sys/fs/binfmt_misc")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that an engine has."""

    engine: str  #: path of the engine's program
    id: str
    resolved: str = ""  #: what names it for good: with its digest, where it has one
    platform: str = ""  #: what it is made for, as "linux/arm64"


@dataclass(frozen=True, slots=True)
class _EngineAnswer:
    text: str
    fault: str = ""  #: why the answer is none, or not whole
    silent: bool = False  #: it gave none in time: another time it may


def decide(settings: ContainerSettings) -> EngineDecision:
    """Which engine runs images on this machine, or why none does."""
    installed = [name for name in candidates(settings.engine) if shutil.which(name)]
    return choose_engine(settings.engine, [look_at(name) for name in installed])


def look_at(program: str) -> EngineObserved:
    """Whether it works, and can limit what containers take."""
    name = Path(program).name
    answer = _ask([program, "info", "--format", "{{json .}}"], s_max=_LOOK_S_MAX)
    if answer.fault:
        return EngineObserved(name, fault=answer.fault, silent=answer.silent)
    try:
        told = orjson.loads(answer.text)
        if name == "podman":
            limits = told["host"]["cgroupControllers"] or ()
            return EngineObserved(name, told["version"]["Version"], cannot_limit(limits))
        for error in told.get("ServerErrors") or ():
            return EngineObserved(name, fault=error)
        limits = [each for each in LIMITS if told[_DOCKERS[each]]]
        return EngineObserved(name, told["ServerVersion"], cannot_limit(limits))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return EngineObserved(name, fault="what it says of itself can't be read")


def find_image(settings: ContainerSettings, image: str) -> Image | None:
    """The image in the first engine that has it. Nothing is pulled. Where no engine is installed,
    this costs a look at the PATH. Raises NotNowError (`engine-silent`)."""
    for name in candidates(settings.engine):
        program = shutil.which(name)
        if program is None or image.startswith("-"):
            continue
        found = find_in(program, image)
        if found is not None:
            return found
    return None


def find_in(program: str, image: str) -> Image | None:
    """The image in this engine. Raises NotNowError (`engine-silent`): who gets no answer does not
    know that there is no such image."""
    form = "{{.Id}} {{.Os}}/{{.Architecture}}{{range .RepoDigests}} {{.}}{{end}}"
    found = _ask([program, "image", "inspect", "--format", form, image], s_max=ANSWER_S_MAX)
    if found.silent:
        raise silent(f"{program}: {found.fault}")
    if not found.text or found.fault:
        return None
    image_id, platform, *digests = found.text.split()
    return Image(program, image_id, resolved(image, image_id, digests), platform)


def silent(words: str) -> NotNowError:
    """The error for an engine that may know more another time. `words`: which, and what it did."""
    return NotNowError(
        "engine-silent",
        f"the container engine can't be asked for images now ({words})",
        hint="If it stays so, see whether `podman ps` or `docker ps` answers: a client that was"
        " killed may hold Podman's lock, and `podman system renumber` makes its locks anew.",
    )


def why_not_run(image: Image) -> str:
    """Why this machine can't run its programs; "" = it can, or an emulator may."""
    if next(_EMULATORS.glob("qemu-*"), None) is not None:
        return ""
    return wrong_platform(image.platform, os.uname().machine)


def look_into(program: str, image_id: str) -> ImageObserved:
    """What the image says of itself; nothing where the engine has it no more."""
    form = '{"architecture":{{json .Architecture}},"config":{{json .Config}}}'
    found = _ask([program, "image", "inspect", "--format", form, image_id])
    try:
        told = orjson.loads(found.text)
    except orjson.JSONDecodeError:
        return ImageObserved()
    config = told["config"] or {}
    return ImageObserved(
        architecture=told["architecture"] or "",
        entry=bool(config.get("Entrypoint")),
        variables=tuple(each.partition("=")[0] for each in config.get("Env") or ()),
        volumes=tuple(sorted(config.get("Volumes") or ())),
    )


def remove_image(program: str, image: str) -> bool:
    """Takes the name away, and the image where that was its last one. False: something uses it."""
    return not _ask([program, "rmi", image]).fault


def is_ours(program: str) -> bool:
    """Whether this user runs the engine's containers, on this machine: then their network can be
    entered for certain. A daemon's (Docker's) may be another user's, or another machine's."""
    if Path(program).name != "podman" or os.environ.get("CONTAINER_HOST"):
        return False
    return os.geteuid() != 0 or _may_enter()


def _may_enter() -> bool:
    """Whether root has the right to it, which it lacks in most containers."""
    status = Path("/proc/self/status").read_text()
    effective = status.partition("CapEff:")[2].split(maxsplit=1)[0]
    return bool(int(effective, 16) & _CAP_SYS_ADMIN)


def remove(engine: str, name: str) -> None:
    """Kills the container and removes it. One that is not there is no error."""
    _ask([engine, "kill", name])
    _ask([engine, "rm", "--force", "--volumes", name])


def remove_left_behind(engine: str, owner: str) -> tuple[str, ...]:
    """Removes this server's containers whose attendant was killed, and returns their names."""
    listed = _ask([engine, "ps", "--all", "--quiet", "--filter", f"label={OWNER}={owner}"])
    if not listed.text:
        return ()
    form = f'{{{{.Name}}}} {{{{index .Config.Labels "{ATTENDANT}"}}}}'
    asked = [engine, "container", "inspect", "--format", form, *listed.text.split()]
    seen = []
    for line in _ask(asked).text.splitlines():  # without those that have gone meanwhile
        name, _, attendant = line.partition(" ")
        seen.append(ContainerObserved(name.lstrip("/"), attendant))
    found = left_behind(seen, _is_alive)
    for name in found:
        remove(engine, name)
    return found


def _is_alive(attendant: str) -> bool:
    pid, _, started = attendant.partition(":")
    return bool(started) and pid.isdigit() and started_at(int(pid)) == started


def started_at(pid: int) -> str:
    """When a process began, in the kernel's own number; "" = there is none, or only what its parent
    has not waited for yet: the first process of a container may never do that."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return "" if fields[0] in "ZX" else fields[19]


def _ask(argv: Sequence[str], *, s_max: float = ANSWER_S_MAX) -> _EngineAnswer:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=s_max, check=False
        )
    except subprocess.TimeoutExpired:
        return _EngineAnswer("", f"it did not answer within {s_max:g} s", silent=True)
    except OSError as error:
        return _EngineAnswer("", error.strerror or str(error))
    text, fault = done.stdout.decode("utf-8", "replace").strip(), ""
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        fault = lines[-1] if lines else f"it ended with status {done.returncode}"
    return _EngineAnswer(text, fault)

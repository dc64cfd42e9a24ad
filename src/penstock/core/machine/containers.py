"""Containers on a machine: which engine runs them, what each may use, which are left behind.

A container belongs to an attendant: the process that started it and removes it. Its label names
the attendant by process id and start time, so that a later process with the same id is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.machine.images import wrong_platform

AUTO: Final = "auto"
OFF: Final = "off"
#: In the order in which they are tried. Podman comes first: it needs no daemon, and no right over
#: the whole machine.
ENGINES: Final = ("podman", "docker")
CHOICES: Final = (AUTO, *ENGINES, OFF)

#: Reason of an `EngineDecision`.
NONE_ANSWERS: Final = "none-answers"

#: What must be limited for every container, by the kernel's names of its controllers.
LIMITS: Final = ("memory", "pids")

#: What starts beside the container (the engine's client, the attendant and its child: some 50 MiB),
#: and what the instance's own process grows by. A container that had all the rest would push the
#: instance over its limit before it meets its own.
_BESIDE_BYTES: Final = 96 * 2**20
#: Less than this runs no server; an instance that is smaller than its own process has no rest.
_MEMORY_BYTES_MIN: Final = 32 * 2**20
#: Room for the threads of libraries of models on any machine, and far from enough for a fork bomb.
PROCESSES_MAX: Final = 4096
#: Folders that programs write to on any machine: they are in memory where the root is read-only.
SCRATCH: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - a container's own
READ_ONLY: Final = "read-only"
WRITABLE: Final = "writable"
ROOTS: Final = (READ_ONLY, WRITABLE)
#: Of its memory, what each such folder takes at most, as the kernel gives a tmpfs.
_SCRATCH_SHARE: Final = 0.5
_SCRATCH_BYTES: Final = 2**30  #: the same, for a container whose memory is not limited
_KILLED: Final = 137  #: 128 + SIGKILL, as a shell reports it


@dataclass(frozen=True, slots=True)
class EngineObserved:
    """What was seen of an engine on this machine."""

    name: str
    version: str = ""
    fault: str = ""  #: why it can't be used; "" = it can
    silent: bool = False  #: the fault is that it did not answer in time

    @property
    def words(self) -> str:
        return f"{self.name}: {self.fault}" if self.fault else f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class EngineDecision:
    """`engine`: its name; "" = images are not run. `reason`: chosen | switched-off | none-answers
    (one may, later) | none-usable | none-installed."""

    engine: str
    reason: str
    words: str  #: for people


def cannot_limit(controllers: Collection[str]) -> str:
    """The fault of an engine that has these controllers of control groups; "" = none. Without root
    it mostly has none, and then starts containers that have no limit at all."""
    missing = [each for each in LIMITS if each not in controllers]
    if not missing:
        return ""
    return (
        f"it can't limit {' and '.join(missing)} of containers for this user: that takes root, or"
        " cgroups v2 that are delegated to the user (systemd does that)"
    )


def candidates(choice: str) -> tuple[str, ...]:
    """The engines that a setting (`CHOICES`) allows, the preferred one first."""
    if choice == OFF:
        return ()
    return ENGINES if choice == AUTO else (choice,)


def choose_engine(choice: str, seen: Sequence[EngineObserved]) -> EngineDecision:
    """`seen`: the installed ones among `candidates(choice)`, in their order. A fault matters to
    people only where the engine would have been preferred."""
    if choice == OFF:
        return EngineDecision("", "switched-off", "images are not run (containers.engine = off)")
    for at, each in enumerate(seen):
        if not each.fault:
            words = "; ".join(one.words for one in (each, *seen[:at]))
            return EngineDecision(each.name, "chosen", words)
    if seen:
        faults = "; ".join(each.words for each in seen)
        reason = NONE_ANSWERS if any(each.silent for each in seen) else "none-usable"
        return EngineDecision("", reason, f"images are not run: {faults}")
    sought = " or ".join(candidates(choice))
    return EngineDecision("", "none-installed", f"images are not run: there is no {sought} here")


def container_memory_bytes(instance_bytes: int, own_bytes: int) -> int:
    """The limit of a container whose instance has `instance_bytes` (0 = not limited), and whose
    instance's own processes take `own_bytes`. So a container that takes too much ends alone."""
    if not instance_bytes:
        return 0
    return max(instance_bytes - own_bytes - _BESIDE_BYTES, _MEMORY_BYTES_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWallsSpec:
    """What the operator lets all containers of a server do; described in
    `config.ContainersConfig`."""

    capabilities: tuple[str, ...] = ()
    root: str = READ_ONLY
    root_bytes: int = 0  #: most that one writes to a writable root; 0 = not bounded
    scratch: tuple[str, ...] = ()

    def in_memory(self, volumes: Iterable[str]) -> tuple[str, ...]:
        """The folders of a container that are in its memory, sorted. `volumes`: those that its
        image declares; an engine would put them on the disk, without a bound."""
        if self.root == READ_ONLY:
            return tuple(sorted({*SCRATCH, *self.scratch, *volumes}))
        return tuple(sorted({*self.scratch, *(volumes if self.root_bytes else ())}))


def scratch_bytes(memory_bytes: int) -> int:
    """The size of one folder in memory. Whatever is in it counts as the container's memory, too."""
    return int(memory_bytes * _SCRATCH_SHARE) if memory_bytes else _SCRATCH_BYTES


def why_it_ended(status: int, *, out_of_memory: bool, memory_bytes: int) -> str:
    """What a container's exit status says. Engines don't always notice that the kernel killed one
    for its memory, so a kill of unknown origin names the limit, too."""
    limit = f"its limit of memory, {memory_bytes / 2**20:.0f} MiB" if memory_bytes else ""
    if out_of_memory:
        return f"the container was killed beyond {limit or 'the memory that there is'}"
    if status == _KILLED:
        return f"the container was killed (SIGKILL){f', maybe beyond {limit}' if limit else ''}"
    return f"the container ended with status {status}"


def why_unfit(image: ImageObserved, machine: str) -> str:
    """What in the image explains that its container ended at once; "" = nothing. `machine`: as the
    kernel names it."""
    if image.architecture and (words := wrong_platform(f"linux/{image.architecture}", machine)):
        return f"; {words}"
    return "" if image.entry else "; the image has no entry point, so `serve` itself was started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageObserved:
    """What an image says of itself."""

    architecture: str = ""  #: as Go names it: amd64, arm64; "" = not known
    entry: bool = True  #: it has an entry point
    variables: tuple[str, ...] = ()  #: names of those that it sets
    volumes: tuple[str, ...] = ()  #: folders that it declares


@dataclass(frozen=True, slots=True)
class ContainerObserved:
    """One of this server's containers."""

    name: str
    attendant: str  #: "PID:START" of the process that removes it; "" = it says none


def left_behind(
    seen: Iterable[ContainerObserved], is_alive: Callable[[str], bool]
) -> tuple[str, ...]:
    """The names of containers whose attendant is dead, sorted."""
    return tuple(sorted(each.name for each in seen if not is_alive(each.attendant)))

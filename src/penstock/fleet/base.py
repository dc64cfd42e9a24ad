"""Where instances come from.

A fleet starts and ends them and reports their death; it never carries requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.core.resources import ComputeResources


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """One row of the catalogue. Price and watts are for cost and energy reports."""

    name: str
    resources: ComputeResources  #: an instance that takes more memory is ended
    promised: bool = True  #: the memory is set aside whole; else it is only an upper bound
    share_bytes: int = 0  #: what a model sizes its caches by; 0 = all of the memory
    price_per_hour: float = 0.0  #: US dollars
    watts: float = 0.0  #: under load


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """What the control plane asks a fleet for."""

    instance_id: str
    instance_type: InstanceType  #: already mapped onto this machine
    log_path: Path  #: the instance's own and its models' output is appended here
    cache_dir: Path  #: artifacts and compiled blobs, shared by the instances of a machine
    listen: str = ""  #: "tls:host:0"; empty: where the fleet likes, on this machine alone
    guest: bool = False  #: it takes only what nobody else on the machine wants
    cores_max: int = 0  #: of a guest: on no more cores of the machine; 0 = on any
    settings: dict[str, object] = field(
        default_factory=dict
    )  #: JSON; what `ArtifactCache` and limits need


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAccess:
    """Where an instance finds the endpoints of its own platform, for pipelines that ask them.

    It goes to instances in `InstanceSpec.settings` under `platform`: on a pipe, never in a log, a
    command line or an environment that others can read.
    """

    url: str
    key: str = ""  #: bearer; the platform's own, made anew whenever it starts
    certificate: str = ""  #: PEM file that a TLS server there must show; "" without TLS

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHandle:
    """A running instance that accepts connections at `address`."""

    instance_id: str
    address: str  #: "unix:/path", "tcp:host:port" or "tls:host:port"
    pid: int | None = None  #: on its own machine


@dataclass(frozen=True, slots=True)
class InstanceExit:
    """How an instance ended that nobody had asked to."""

    code: int  #: as `subprocess` gives it: below 0 the number of a signal
    story: str  #: for people
    stood_still: bool = False  #: a signal had stopped it, and it was ended for that


@dataclass(frozen=True, slots=True)
class SpareObserved:
    """A process that stands ready to become an instance, or is about to."""

    pid: int
    memory_bytes: int  #: that it takes now
    ready: bool  #: the next start may take it


class Fleet(Protocol):
    """Lifecycle only. `on_exit` is called once per instance that ended unasked."""

    on_exit: Callable[[str, InstanceExit], None]  #: (instance_id, how)

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        """Returns once it accepts connections. `NotNowError` if there is no room or it dies."""

    async def stop(self, instance_id: str, *, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after `grace_s`. Idempotent; unknown ids are ignored."""

    def keep_warm(self, count: int, modules: Collection[str]) -> None:
        """Keeps so many spare instances ready, with these modules imported; each is the next
        `start`'s. A fleet that has no processes of its own to keep ignores it."""

    def spares(self) -> Sequence[SpareObserved]:
        """Those that there are now."""

    async def shares_disk(self) -> bool:
        """Whether every instance sees the files of this machine. What is not known counts as yes:
        a cluster that has no nodes yet."""

    async def close(self) -> None:
        """Stops every instance."""

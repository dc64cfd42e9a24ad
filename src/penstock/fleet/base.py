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
    resources: ComputeResources  #: an instance that takes more memory than this is ended
    #: True: all of the memory is reserved for the instance; False: it is an upper bound
    promised: bool = True
    share_bytes: int = 0  #: the memory that a model sizes its caches by; 0 = all of the memory
    price_per_hour: float = 0.0  #: US dollars
    watts: float = 0.0  #: under load


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """What the control plane asks a fleet for."""

    instance_id: str
    instance_type: InstanceType  #: already mapped onto this machine
    log_path: Path  #: output of the instance and of its models is appended here
    cache_dir: Path  #: artifacts and compiled blobs, shared by the instances of a machine
    #: "tls:host:0"; empty: an address of the fleet's choice that only this machine reaches
    listen: str = ""
    shadow: bool = False  #: no caller waits for its answers: others go before it
    guest: bool = False  #: the instance takes only what nobody else on the machine wants
    cores_max: int = 0  #: how many cores of the machine a guest may use; 0 = all
    settings: dict[str, object] = field(
        default_factory=dict
    )  #: JSON: settings of `ArtifactCache` and limits

    @property
    def yields(self) -> bool:
        """Whether others go before it, so that it may get no core for minutes."""
        return self.guest or self.shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAccess:
    """Where an instance finds the endpoints of its own platform, for pipelines that call them.

    It goes to instances in `InstanceSpec.settings` under `platform`: through a pipe, never in a
    log, a command line or an environment that others can read.
    """

    url: str
    key: str = ""  #: bearer key of the platform itself, made anew at each start of the platform
    #: Path of the PEM file with the certificate that a TLS server there must show; "" without TLS
    certificate: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHandle:
    """A running instance that accepts connections at `address`."""

    instance_id: str
    address: str  #: "unix:/path", "tcp:host:port" or "tls:host:port"
    pid: int | None = None  #: process id on the instance's own machine


@dataclass(frozen=True, slots=True)
class InstanceExit:
    """How an instance ended without a request to stop."""

    code: int  #: exit code as `subprocess` gives it: below 0 it is the number of a signal
    story: str  #: a sentence for people
    stood_still: bool = False  #: a signal had stopped the process, and it was ended for that


@dataclass(frozen=True, slots=True)
class SpareObserved:
    """A process that is ready to become an instance, or is being made ready."""

    pid: int
    memory_bytes: int  #: memory that it takes now
    ready: bool  #: True: the next start may use it


class Fleet(Protocol):
    """Starts, stops and watches instances. `on_exit` is called once for each instance that ended
    without a request to stop."""

    on_exit: Callable[[str, InstanceExit], None]  #: (instance_id, how)

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        """Returns once it accepts connections. `NotNowError` if there is no room or it dies."""

    async def stop(self, instance_id: str, *, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after `grace_s`. Idempotent; unknown ids are ignored."""

    def keep_warm(self, count: int, modules: Collection[str]) -> None:
        """Keeps `count` spare instances ready, with these modules imported; the next `start` takes
        one. A fleet that keeps no processes of its own ignores this."""

    def spares(self) -> Sequence[SpareObserved]:
        """The spare instances that exist now."""

    async def shares_disk(self) -> bool:
        """Whether every instance sees the files of this machine. Unknown (a cluster without nodes
        so far) counts as yes."""

    async def close(self) -> None:
        """Stops every instance."""

"""The settings with which an instance is started: one JSON line on standard input."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.errors import CallerError
from penstock.fleet.identity.pem import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    instance_id: str
    address: str  #: "unix:/path", "tcp:host:port" or "tls:host:port"; port 0 = any
    cores: float
    memory_bytes: int  #: 0 = not limited
    accelerators: int = 0
    cache_dir: Path  #: artifacts and compiled blobs, shared by the instances of a machine
    artifact: ArtifactSettings = field(default_factory=ArtifactSettings)
    #: Folder for notes about models of hosts, which the server reads if the instance dies; None: no
    #: notes.
    work_dir: Path | None = None
    #: Errors are appended to this file; None: standard error is unchanged
    log_path: Path | None = None
    #: Fields of `PlatformAccess`; {}: unknown
    platform: dict[str, str] = field(default_factory=dict)
    identity: Identity | None = None  #: certificate and key for TLS; None without TLS

    @classmethod
    def from_line(cls, line: bytes) -> InstanceSettings:
        """Raises CallerError for an invalid line."""
        try:
            fields: dict[str, Any] = orjson.loads(line)
            identity = fields.get("identity")
            artifact = ArtifactSettings.from_dict(fields.get("artifact") or {})
            return cls(
                instance_id=str(fields["instance_id"]),
                address=str(fields["address"]),
                cores=float(fields["cores"]),
                memory_bytes=int(fields.get("memory_bytes", 0)),
                accelerators=int(fields.get("accelerators", 0)),
                cache_dir=Path(fields["cache_dir"]),
                work_dir=Path(fields["work_dir"]) if fields.get("work_dir") else None,
                artifact=replace(artifact, closed=artifact.closed + _own_places(fields)),
                log_path=Path(fields["log_path"]) if fields.get("log_path") else None,
                platform={str(k): str(v) for k, v in (fields.get("platform") or {}).items()},
                identity=Identity(**identity) if identity else None,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CallerError(
                "instance-settings",
                f"the instance's settings cannot be read: {type(error).__name__}: {error}",
                hint="An instance is started by a fleet, which writes them.",
            ) from None


def _own_places(fields: dict[str, Any]) -> tuple[str, ...]:
    """Paths on an instance's own machine, which may differ from the server's."""
    scheme, _, place = str(fields["address"]).partition(":")
    sockets = str(Path(place).parent) if scheme == "unix" else ""
    found = (fields["cache_dir"], fields.get("work_dir"), sockets)
    return tuple(str(each) for each in found if each)

"""The `load` operation of the control connection, validated. Loads nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.artifacts.sources.source import ArtifactSource
from penstock.errors import CallerError
from penstock.instance.settings import InstanceSettings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadCall:
    """The `load` operation, checked."""

    copy: int
    endpoint: str
    variant: str
    source: ArtifactSource
    environment: dict[str, str]
    cores: float
    memory_bytes_max: int
    accelerators: int
    download_timeout_s: float
    startup_timeout_s: float
    network_isolated: bool  #: EnableNetworkIsolation
    batching: dict[str, Any]  #: fields of Batching that replace the description's
    #: True: others go before most of its requests, which have the last priority level to
    #: themselves.
    waits_for_others: bool = False
    #: Settings of a multi-model endpoint; `source` is then a prefix of target models
    multi_model: dict[str, Any] | None = None
    target_model: str = ""  #: its name, for the copy that hosts it
    base_copy: int = 0  #: for an adapter: the copy of its base into which it is loaded

    @property
    def served_as(self) -> str:
        """The model's name for its callers."""
        return f"{self.endpoint}:{self.target_model}" if self.target_model else self.endpoint

    @classmethod
    def from_dict(cls, call: dict[str, Any], settings: InstanceSettings) -> LoadCall:
        """Raises CallerError for missing or impossible fields."""
        try:
            return cls(
                copy=int(call["copy"]),
                endpoint=str(call["endpoint"]),
                variant=str(call["variant"]),
                source=ArtifactSource.from_dict(call["source"]),
                environment={str(k): str(v) for k, v in (call.get("environment") or {}).items()},
                cores=float(call.get("cores") or settings.cores),
                memory_bytes_max=int(call.get("memory_bytes_max") or settings.memory_bytes),
                accelerators=int(call.get("accelerators", settings.accelerators)),
                download_timeout_s=float(call.get("download_timeout_s") or 3600.0),
                startup_timeout_s=float(call.get("startup_timeout_s") or 600.0),
                network_isolated=call.get("network_isolated") is True,
                batching=dict(call.get("batching") or {}),
                base_copy=int(call.get("base_copy") or 0),
                waits_for_others=call.get("waits_for_others") is True,
                multi_model=dict(call["multi_model"]) if call.get("multi_model") else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CallerError(
                "bad-control-call", f"load: {type(error).__name__}: {error}"
            ) from None

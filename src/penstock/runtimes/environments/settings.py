"""What the operator allows of models' environments, as plain values that travel as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.config import ENVIRONMENTS_ON, ControlConfig

_DEFAULTS: Final = ControlConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """Sizes in bytes, times in s. Each field is described in `config.ControlConfig`."""

    enabled: bool = True
    bytes_max: int = _DEFAULTS.environments_bytes_max
    each_bytes_max: int = _DEFAULTS.environment_bytes_max
    seconds_max: float = _DEFAULTS.environment_s_max
    sources: bool = True
    indexes: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    images: dict[str, tuple[str, ...]] = field(default_factory=dict)
    torch_cpu_index: str = _DEFAULTS.torch_cpu_index

    @classmethod
    def from_config(cls, control: ControlConfig) -> EnvironmentSettings:
        return cls(
            enabled=control.environments == ENVIRONMENTS_ON,
            bytes_max=control.environments_bytes_max,
            each_bytes_max=control.environment_bytes_max,
            seconds_max=control.environment_s_max,
            sources=control.environment_sources,
            indexes=tuple(control.environment_indexes),
            pythons=tuple(control.environment_pythons),
            images={key: tuple(lines) for key, lines in control.image_environments.items()},
            torch_cpu_index=control.torch_cpu_index,
        )

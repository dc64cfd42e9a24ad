"""Reads the machine's energy counters: the processor's (RAPL) and the boards' (NVML).

RAPL is read from the kernel's powercap tree: the packages, and the memory where it has its own
counter, since packages do not include it. `psys` and the zones inside a package would count twice.
Many systems let only root read them, and containers often hide them; then there is no reading,
never a zero. NVML is used if its Python binding is installed (extra `nvml`). Knows no instances.

Counters: https://docs.kernel.org/power/powercap/powercap.html and NVML's
`nvmlDeviceGetTotalEnergyConsumption` (mJ since the driver was loaded).
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any, Final, NamedTuple

_log = logging.getLogger(__name__)

POWERCAP: Final = Path("/sys/class/powercap")

#: The smallest known counters (65 kJ) wrap once in this time at 1 kW; two wraps look like none.
INTERVAL_S_MAX: Final = 60.0

_JOULES_PER_UJ: Final = 1e-6
_JOULES_PER_MJ: Final = 1e-3
_WATTS_PER_MW: Final = 1e-3


class EnergyRead(NamedTuple):
    """Joules since the last reading; None: not measured over that whole time."""

    host_j: float | None
    boards_j: float | None


class EnergyMeter:
    """Reads both kinds of counters. The first reading only begins the first interval."""

    def __init__(self, powercap: Path = POWERCAP, nvml: Any | None = None) -> None:
        """`nvml`: the binding, initialized; None: there is none."""
        self._host = RaplCounters(powercap)
        self._boards = _boards(nvml) if nvml is not None else None
        self._read_at: float | None = None

    def read(self, now: float) -> EnergyRead:
        """Reads files and may wait for a driver, so call it in a thread. `now` is monotonic s."""
        interval_s = now - self._read_at if self._read_at is not None else 0.0
        self._read_at = now
        host_j = self._host.read()
        boards_j = self._boards.read(interval_s) if self._boards is not None else None
        if not 0.0 < interval_s <= INTERVAL_S_MAX:
            return EnergyRead(None, None)
        return EnergyRead(host_j, boards_j)


class RaplCounters:
    """The counters of all packages and of their memory."""

    def __init__(self, powercap: Path) -> None:
        self._zones = _zones(powercap)
        self._before: list[int] | None = None

    def read(self) -> float | None:
        """Joules since the last call; None for the first, and if a counter can't be read."""
        before, self._before = self._before, None
        try:
            now = [int((zone / "energy_uj").read_text()) for zone, _ in self._zones]
        except (OSError, ValueError):
            return None
        if not now:
            return None
        self._before = now
        if before is None:
            return None
        moved = 0
        for count, old, (_, count_max) in zip(now, before, self._zones, strict=True):
            moved += count - old if count >= old else count + count_max - old
        return moved * _JOULES_PER_UJ


def _zones(powercap: Path) -> list[tuple[Path, int]]:
    """(zone, value at which its counter wraps) of packages and their memory."""
    names = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):  # AMD's packages have this name too
        try:
            count_max = int((zone / "max_energy_range_uj").read_text())
            names[zone.name] = (zone, (zone / "name").read_text().strip(), count_max)
        except (OSError, ValueError):
            continue
    packages = {name for name, (_, kind, _) in names.items() if kind.startswith("package-")}
    return [
        (zone, count_max)
        for name, (zone, kind, count_max) in names.items()
        if name in packages or (kind == "dram" and name.rpartition(":")[0] in packages)
    ]


def _boards(nvml: Any) -> NvmlCounters | None:
    try:
        return NvmlCounters(nvml)
    except nvml.NVMLError as error:
        _log.info("energy of accelerators is estimated: %s", error)
        return None


class NvmlCounters:
    """All boards of the machine."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._boards = [
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        ]
        self._before: dict[int, int] = {}  #: board -> mJ

    def read(self, interval_s: float) -> float | None:
        """Joules since the last call; None if a board reports neither its energy nor its power."""
        joules: float | None = 0.0
        for index in range(len(self._boards)):
            one = self._read_board(index, interval_s)
            joules = None if one is None or joules is None else joules + one
        return joules if self._boards else None

    def _read_board(self, index: int, interval_s: float) -> float | None:
        nvml, board = self._nvml, self._boards[index]
        before = self._before.pop(index, None)
        try:
            count = int(nvml.nvmlDeviceGetTotalEnergyConsumption(board))
        except nvml.NVMLError:  # boards older than Volta have no counter
            return self._from_power(board, interval_s)
        self._before[index] = count
        if before is None or count < before:  # the driver was loaded again
            return None
        return (count - before) * _JOULES_PER_MJ

    def _from_power(self, board: Any, interval_s: float) -> float | None:
        try:
            power_mw = self._nvml.nvmlDeviceGetPowerUsage(board)
        except self._nvml.NVMLError:
            return None
        return float(power_mw) * _WATTS_PER_MW * interval_s


def load_nvml() -> Any | None:
    """NVML's Python binding, initialized; None if it is not installed or finds no driver."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _log.info("energy of accelerators is estimated: %s", error)
        return None
    return nvml

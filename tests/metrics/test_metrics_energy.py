"""Counters of energy, on literal readings: trees as the kernel shows them, a binding as NVML's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.metrics.utilization.energy import EnergyMeter, EnergyRead

RANGE_UJ = 262_143_328_850  # of a real package


def zone(powercap: Path, name: str, kind: str, energy_uj: int) -> None:
    folder = powercap / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{kind}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")


def test_joules_are_those_of_all_packages_and_their_memory(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 0)
    zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 0)
    zone(tmp_path, "intel-rapl:2", "psys", 0)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    meter = EnergyMeter(tmp_path)
    assert meter.read(100.0) == EnergyRead(None, None)  # the interval begins here
    zone(tmp_path, "intel-rapl:0", "package-0", 401_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 300_000_000)  # inside its package
    zone(tmp_path, "intel-rapl:0:1", "dram", 50_500_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 100_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 900_000_000)  # around the packages
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 400_000_000)  # the same package again
    assert meter.read(110.0) == EnergyRead(pytest.approx(550.0), None)


def test_a_counter_that_went_round_goes_on(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    meter = EnergyMeter(tmp_path)
    meter.read(100.0)
    zone(tmp_path, "intel-rapl:0", "package-0", 2_000_000)
    assert meter.read(110.0).host_j == pytest.approx(3.0)


def test_over_a_long_interval_a_counter_may_go_round_twice_so_nothing_is_said(
    tmp_path: Path,
) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = EnergyMeter(tmp_path)
    meter.read(100.0)
    zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    assert meter.read(161.0).host_j is None
    zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    assert meter.read(171.0).host_j == pytest.approx(4.0)


def test_a_tree_that_is_hidden_or_unreadable_is_no_reading(tmp_path: Path) -> None:
    hidden = EnergyMeter(tmp_path / "nothing")
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    unreadable = EnergyMeter(tmp_path)
    for meter in (hidden, unreadable):
        meter.read(100.0)
        assert meter.read(110.0) == EnergyRead(None, None)


def test_a_counter_that_fails_once_begins_a_new_interval(tmp_path: Path) -> None:
    meter_at = [(0, 100.0, None), (None, 110.0, None), (7_000_000, 120.0, None)]
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = EnergyMeter(tmp_path)
    for energy_uj, now, expected in meter_at:
        text = "" if energy_uj is None else str(energy_uj)
        (tmp_path / "intel-rapl:0" / "energy_uj").write_text(text)
        assert meter.read(now).host_j == expected
    zone(tmp_path, "intel-rapl:0", "package-0", 8_000_000)
    assert meter.read(130.0).host_j == pytest.approx(1.0)


class FakeNvml:
    """Boards with a counter in mJ, or with a power reading in mW alone."""

    class NVMLError(Exception):
        pass

    def __init__(self, *boards: dict[str, Any]) -> None:
        self.boards = boards

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.boards[index]

    def nvmlDeviceGetTotalEnergyConsumption(self, board: dict[str, Any]) -> int:
        return self._of(board, "energy_mj")

    def nvmlDeviceGetPowerUsage(self, board: dict[str, Any]) -> int:
        return self._of(board, "power_mw")

    def _of(self, board: dict[str, Any], name: str) -> int:
        if name not in board:
            raise self.NVMLError("not supported")
        return int(board[name])


def test_boards_add_up_by_their_counters(tmp_path: Path) -> None:
    first, second = {"energy_mj": 10_000}, {"energy_mj": 0}
    meter = EnergyMeter(tmp_path, FakeNvml(first, second))
    assert meter.read(100.0) == EnergyRead(None, None)
    first["energy_mj"], second["energy_mj"] = 4_010_000, 1_500_000
    assert meter.read(110.0) == EnergyRead(None, pytest.approx(5500.0))


def test_a_board_without_a_counter_is_its_power_times_the_interval(tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path, FakeNvml({"power_mw": 70_000}))
    meter.read(100.0)
    assert meter.read(110.0).boards_j == pytest.approx(700.0)


def test_one_board_that_tells_nothing_makes_the_sum_unknown(tmp_path: Path) -> None:
    board = {"energy_mj": 0}
    meter = EnergyMeter(tmp_path, FakeNvml(board, {}))
    meter.read(100.0)
    board["energy_mj"] = 1_000_000
    assert meter.read(110.0).boards_j is None


def test_a_driver_that_was_loaded_anew_is_no_negative_energy(tmp_path: Path) -> None:
    board = {"energy_mj": 9_000_000}
    meter = EnergyMeter(tmp_path, FakeNvml(board))
    meter.read(100.0)
    board["energy_mj"] = 1_000
    assert meter.read(110.0).boards_j is None
    board["energy_mj"] = 3_000
    assert meter.read(120.0).boards_j == pytest.approx(2.0)


def test_a_binding_that_fails_at_once_is_none(tmp_path: Path) -> None:
    class FailingNvml(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            raise self.NVMLError("no driver")

    meter = EnergyMeter(tmp_path, FailingNvml())
    meter.read(100.0)
    assert meter.read(110.0) == EnergyRead(None, None)


def test_a_machine_without_boards_has_no_reading_of_them(tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path, FakeNvml())
    meter.read(100.0)
    assert meter.read(110.0).boards_j is None

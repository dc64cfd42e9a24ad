"""`python -m penstock.sim`: what is printed, the file with all of it, seeds and mistakes."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from penstock.sim.__main__ import main

FILE = """
about = "two waves"
seed = 5
length_s = 3.0

[[variants]]
name = "blue"

[batching]
rows_max = 20
queue_rows_max = 20
priorities = 2

[service]
base_s = 0.5

[workload]
arrivals = "trace"
trace_s = [0.0, 0.0, 0.0, 1.0]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "waves.toml").write_text(FILE)
    (tmp_path / "again.toml").write_text(FILE.replace("priorities = 2", ""))
    return tmp_path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is written below the current folder."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def test_each_scenario_is_told_a_summary_comes_last_and_all_of_it_is_in_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder)], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith("(seed 5, 3 s)")] == [
        "again  (seed 5, 3 s)",
        "waves  (seed 5, 3 s)",
    ]
    waves = lines[lines.index("waves  (seed 5, 3 s)") :]
    assert waves[1:9] == [
        "  two waves",
        "  requests      4, answered 4 (1.3/s), cancelled 0, retried 0",
        "  latency ms    P50 500.000  P90 500.000  P99 500.000  P99.9 500.000",
        "    priority 0  P50 500.000  P90 500.000  P99 500.000  P99.9 500.000",
        "    priority 1  P50 0.000  P90 0.000  P99 0.000  P99.9 0.000",
        "  not answered  none",
        "  batches       2 of 2.00 rows on average; left because: lane-free 2",
        "          1 rows  ######################################## 1",
    ]
    assert waves[9:11] == [
        "          3 rows  ######################################## 1",
        "  utilisation   0.333",
    ]
    assert lines[-1] == "all figures: build/sim.json"
    assert lines[-2].startswith("2 scenarios, ")
    assert lines[-3].startswith("waves ")
    assert "4 of" in lines[-3]
    report = orjson.loads(Path("build/sim.json").read_bytes())
    assert set(report["scenarios"]) == {"again", "waves"}
    assert report["scenarios"]["waves"]["digest"] == report["scenarios"]["again"]["digest"]
    assert report["scenarios"]["waves"]["actions"] == 6
    assert report["simulated_requests_per_s"] > 0
    assert report["events_per_s"] > 0


def test_many_sizes_share_bars(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crowd = ", ".join(["0.0"] * 20 + ["1.0"])
    (folder / "waves.toml").write_text(FILE.replace("0.0, 0.0, 0.0, 1.0", crowd))
    assert main([str(folder / "waves.toml")], {}) == 0
    printed = capsys.readouterr().out
    assert "        1-2 rows  ######################################## 1\n" in printed
    assert "      19-20 rows  ######################################## 1\n" in printed


def test_a_scenario_in_which_nothing_runs_can_be_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "waves.toml").write_text(FILE.replace('"trace"', '"poisson"'))
    assert main([str(folder / "waves.toml")], {}) == 0
    assert "requests      0, answered 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "environment"), [([], {"SEED": "9"}), (["--seed", "9"], {"SEED": "8"})]
)
def test_a_seed_given_by_hand_is_printed_first_and_used(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
) -> None:
    assert main([str(folder), *arguments], environment) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 9"
    assert "waves  (seed 9, 3 s)" in lines


def test_mistakes_have_code_hint_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)], {}) == 2
    assert capsys.readouterr().err == (
        f"error[no-scenarios]: {tmp_path} holds no *.toml\nhint: Name a scenario file.\n"
    )
    assert main([str(tmp_path)], {"SEED": "soon"}) == 2
    assert "error[invalid-seed]: the seed is 'soon'" in capsys.readouterr().err

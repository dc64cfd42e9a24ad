"""Rows of tables that compare: live with the twin, ours with others."""

from __future__ import annotations

from typing import Any

from bench.tables import offline, regions, serving


def spread(median: float) -> dict[str, float]:
    return {"median": median, "min": median - 1, "max": median + 1, "samples": 3}


def row_of(table: str, begins: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"| {begins}"))


def test_a_probe_stands_live_and_in_the_twin_at_its_rate_and_none_where_there_was_none() -> None:
    p99 = {name: {"5.82": {"live": 0.424, "twin": None}} for name in serving.STRATEGIES}
    p99["PREFIX_AWARE"] = {"9.36": {"live": 0.82, "twin": 0.78}}
    rates = dict.fromkeys(serving.STRATEGIES, 9.36)
    line: dict[str, Any] = {
        "first_token_p99_s": p99,
        "rates_rps": rates,
        "twin_rates_rps": rates,
        "live_of_twin": 1.033,
    }
    for name in ("lor_vs_random", "prefix_aware_vs_random", "round_robin_vs_random"):
        line |= {name: 1.55, f"twin_{name}": 1.5}
    table, told = serving.lor(line)
    assert row_of(table, "RANDOM") == "| RANDOM | 0.42 (-) |  | 9.4/s (9.4) |"
    assert row_of(table, "PREFIX") == "| PREFIX_AWARE |  | 0.82 (0.78) | 9.4/s (9.4) |"
    assert told.startswith("LOR takes 1.55 x the load of RANDOM live, 1.50 x in the twin; ")


def test_a_transform_job_stands_beside_the_peers_that_ran() -> None:
    line: dict[str, Any] = {
        "rows_per_s": spread(950),
        "bare_setting": {"rows": 32, "streams": 2},
        "bare_rows_per_s": spread(1000),
        "transform_ratio": 0.95,
        "transform_ratio_running": 0.97,
        "vs_pytorch": 1.9,
        "pytorch_setting": {"batch": 64},
        "pytorch_rows_per_s": spread(500),
        "pairs": 1_000_000,
        "ratios": [0.949, 0.951],
        "memory_mib": {"10%": 900, "90%": 905},
        "versions_compile": {"torch": "2.13.0"},
    }
    table, told = offline.transform(line)
    assert row_of(table, "the bare") == (
        "| the bare compiled model | rows 32, streams 2 | 1,000 (999 to 1,001) | 0.95 x |"
    )
    assert "1.90 x" in row_of(table, "PyTorch")
    assert "Ray Data" not in table
    assert "900 MiB at 10%, 905 MiB at 90%" in told


def test_what_work_side_by_side_costs_and_gets() -> None:
    line: dict[str, Any] = {
        "p99_ms_alone": 7.052, "p99_ms_beside": 8.799, "p99_increase": 1.211, "p50_increase": 1.09,
        "p99_ms_starting": 9.0, "rows_per_s_alone": 11_084, "rows_per_s_beside": 7_941,
        "idle_share": 0.665, "idle_used": 1.032, "rate": 328, "load": 0.4,
        "p99_increase_range": [1.1, 1.3], "idle_share_beside": 0.03, "requests": 185_303,
        "turns": 80,
    }  # fmt: skip
    table, told = offline.colocated(line)
    assert row_of(table, "increase |") == "| increase | 1.21 x (1.10 to 1.30) |"
    assert row_of(table, "of that") == "| of that the job gets | 103.2 % |"
    assert told.startswith("328 requests/s, which kept the processors busy for 40%")
    assert told.endswith("185,303 requests in 80 pairs of turns.")


def test_fronts_of_regions_stand_with_what_they_lost() -> None:
    run = {"lost": 5, "sent": 4058, "reroute_s": 1.418, "p99_ms": dict.fromkeys(
        ("steady", "step", "after"), 234.4)}  # fmt: skip
    line: dict[str, Any] = {
        "runs": {"haproxy 16 2s": run},
        "haproxy_best": "haproxy 16 2s",
        "p99_steady_ratio": 0.84,
        "p99_step_ratio": 1.0,
        "p99_after_ratio": "not measured",
        "settling_s": 23.58,
        "turns": 0,
        "shares": {"at the step": {"eu": 1.0, "us": 0.0}, "before the cut": {"eu": 0.7, "us": 0.3}},
    }
    table, told = regions.regions(line)
    assert row_of(table, "haproxy") == ("| haproxy 16 2s | 5 of 4,058 | 1.42 | 234 | 234 | 234 |")
    assert "0.84 x before the step, 1.00 x behind it, - after the cut" in told
    assert "from eu 100%, us 0% to eu 70%, us 30%" in told


def test_a_way_whose_highest_rate_was_not_found_live_has_none() -> None:
    way = {"6.93": {"live": 0.6, "twin": 0.7}}
    line: dict[str, Any] = {
        "first_token_p99_s": {"pushing": way, "round_robin": way},
        "rates_rps": {"pushing": 12.475, "round_robin": None},
        "twin_rates_rps": {"pushing": 12.475, "round_robin": 9.859},
        "live_of_twin": {"vs_region_local": 1.0},
        "rounds": [{"failed": {"pushing": 1, "round_robin": 0}}],
        "late_p99_s": 0.0013,
    }
    table, told = regions.regions_live(line)
    assert row_of(table, "pushing") == (
        "| pushing between regions | 0.60 (0.70) | 12.5 (12.5) |  |  |"
    )
    assert row_of(table, "round") == (
        "| round robin over all copies | 0.60 (0.70) | - (9.9) | - | - |"
    )
    assert "1 requests failed in 1 rounds; the load left 1 ms late" in told

"""Offline work: transform jobs alone, and beside online work."""

from __future__ import annotations

from typing import Any

from bench.tables.words import Line, listed, percent, table, times, whole


def transform(line: Line) -> list[str]:
    rows = [
        ["the transform job", "", whole(line["rows_per_s"]), ""],
        [
            "the bare compiled model", _setting(line["bare_setting"]),
            whole(line["bare_rows_per_s"]), times(line["transform_ratio"]),
        ],
    ]  # fmt: skip
    for name, told, ratio in (
        ("pytorch", "PyTorch, a loop over a DataLoader", "vs_pytorch"),
        ("ray_data", "Ray Data, map_batches with the same model", "vs_ray_data"),
    ):
        if ratio in line:
            setting, rate = line[f"{name}_setting"], line[f"{name}_rows_per_s"]
            rows.append([told, _setting(setting), whole(rate), times(line[ratio])])
    by_turn = ", ".join(f"{each:.3f}" for each in line["ratios"])
    memory = ", ".join(f"{mib:,} MiB at {share}" for share, mib in line["memory_mib"].items())
    peers = "; ".join(
        f"{name}: {listed(line[key])}"
        for name, key in (("compile", "versions_compile"), ("ray", "versions_ray"))
        if key in line
    )
    return [
        table(["rows/s", "best setting", "median and range", "the job is"], rows),
        (
            f"{line['pairs']:,} pairs; by turn {by_turn}, and "
            f"{line['transform_ratio_running']:.3f} once the job's instance runs. Memory of server "
            f"and instance, by records done: {memory}. "
            f"Peers: {peers}."
        ),
    ]


def _setting(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def colocated(line: Line) -> list[str]:
    low, high = line["p99_increase_range"]
    rows = [
        ["P99 of the endpoint alone", f"{line['p99_ms_alone']:.2f} ms"],
        ["beside the job", f"{line['p99_ms_beside']:.2f} ms"],
        ["increase", f"{times(line['p99_increase'])} ({low:.2f} to {high:.2f})"],
        ["increase of P50", times(line["p50_increase"])],
        ["P99 while the job's instance starts", f"{line['p99_ms_starting']:.2f} ms"],
        ["the job alone", f"{line['rows_per_s_alone']:,} rows/s"],
        ["the job beside the endpoint", f"{line['rows_per_s_beside']:,} rows/s"],
        ["idle without the job", percent(line["idle_share"])],
        ["idle beside it", percent(line["idle_share_beside"])],
        ["of that the job gets", percent(line["idle_used"])],
    ]
    told = (
        f"{line['rate']:,} requests/s, which kept the processors busy for {line['load']:.0%} before"
        f" it began; {line['requests']:,} requests in {line['turns']} pairs of turns."
    )
    return [table(["", ""], rows), told]

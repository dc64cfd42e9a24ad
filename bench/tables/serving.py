"""What serving costs, by one gateway and by several."""

from __future__ import annotations

from collections.abc import Sequence

from bench.tables.words import Line, live_and_twin, table, tenth, times, whole


def gateway(line: Line) -> list[str]:
    return [
        _at_one_door(line, "json", ("limit", "mosec", "ray_serve")),
        _at_one_door(line, "tensor", ("triton",)),
        _at_one_door(line, "binary", ("triton",)),
        _at_one_door(line, "onnx", ()),
        table(
            ["best setting of", "door", "connections", "setting"],
            (
                [server, door, ", ".join(counts), setting]
                for server, doors in line["settings"].items()
                for door, by_count in doors.items()
                for setting, counts in _by_value(by_count).items()
            ),
        ),
    ]


def _at_one_door(line: Line, door: str, peers: Sequence[str]) -> str:
    peers = [peer for peer in peers if door in line["rps"].get(peer, {})]
    heads = [f"{door}: connections", "ours, requests/s", "P99 ms"]
    for peer in peers:
        heads += [f"{peer}, requests/s", "P99 ms", "ours is"]
    rows = []
    for count, ours in line["rps"]["ours"].get(door, {}).items():
        row = [count, whole(ours), tenth(line["p99_ms"]["ours"][door][count])]
        for peer in peers:
            ratio = line["ratios"].get(peer, {}).get(door, {}).get(count)
            row.append(whole(line["rps"][peer][door].get(count)))
            row += [tenth(line["p99_ms"][peer][door].get(count)), times(ratio)]
        rows.append(row)
    return table(heads, rows)


def _by_value(by_key: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in by_key.items():
        found.setdefault(value, []).append(key)
    return found


def overhead(line: Line) -> list[str]:
    rows = [
        [
            count, whole(each["served_rps"]), tenth(each["batch_rows"]), whole(each["bare_rps"]),
            f"{each['served_ratio']:.2f}", tenth(each["p99_ms"]),
        ]
        for count, each in line["by_connections"].items()
    ]  # fmt: skip
    heads = ["connections", "served rows/s", "rows a batch", "bare rows/s", "ratio", "P99 ms"]
    bare = ", ".join(f"{rate:,} at {rows}" for rows, rate in line["bare_rps_by_rows"].items())
    told = (
        f"At 60 % of the most: P50 {line['p50_ms_at_60']:.1f} ms, "
        f"P99 {line['p99_ms_at_60']:.1f} ms "
        f"({line['p99_calm_ms_at_60']:.1f} ms of requests that met no stall of the machine). "
        f"Bare, rows/s by rows a batch: {bare}; of the fastest, "
        f"{line['of_best_bare']:.2f} is served."
    )
    return [table(heads, rows), told]


LEVELS = {
    "intent": "rps_within_level",
    "lor": "lor_rps_within_level",
    "random": "random_rps_within_level",
}


def intent(line: Line) -> list[str]:
    by_seed = line["rps_within_level_by_seed"]
    level = f"{line['level_ms']:g} ms"
    within = {name: _rate(line[key], by_seed[name]) for name, key in LEVELS.items()}
    rows = [
        ["sustained, closed loop", f"{line['sustained_rps']:,} requests/s"],
        ["at 60 % of it", f"P50 {line['p50_ms']:.1f} ms, P99 {line['p99_ms']:.1f} ms"],
        ["the bare loop under the same arrivals", f"P99 {line['bare_p99_ms']:.1f} ms"],
        [f"highest rate with P99 within {level}", within["intent"]],
        ["at 60 % of that", f"P99 {line['p99_ms_at_60_of_level']:.1f} ms"],
        ["dynamic batching against none", f"{line['batching_gain']:.2f} x the rate"],
        ["LOR against random, same rate", f"P99 {line['lor_vs_random']:.2f} x shorter"],
        [f"LOR within {level}", within["lor"]],
        [f"random within {level}", within["random"]],
        ["LOR's rate within the level over random's", times(line["lor_vs_random_rps"])],
    ]  # fmt: skip
    climb = [
        [f"{each['rps']:,}", f"{each['p99_ms']:.1f}", f"{each['p99_calm_ms']:.1f}"]
        for each in line["climb"]["intent"]
    ]
    heads = ["Poisson requests/s", "P99 ms", "without the machine's stalls"]
    return [table(["", ""], rows), table(heads, climb)]


def _rate(median: float, by_seed: Sequence[float]) -> str:
    return f"{median:,} requests/s (by seed: {', '.join(f'{each:,}' for each in by_seed)})"


def gateways(line: Line) -> list[str]:
    echo, lor = line["echo"], line["lor"]
    counts = list(echo["rps"])

    def told(count: str) -> str:
        return f"{count} gateways" if count != "1" else "1 gateway"

    return [
        table(
            ["connections", *(f"{told(count)}, requests/s" for count in counts), "bare loop"],
            (
                [
                    at,
                    *(
                        f"{whole(echo['rps'][count][at])}; {whole(echo['rps_per_core'][count][at])}"
                        " a core"
                        for count in counts
                    ),
                    whole(echo["limit_rps"][at]),
                ]
                for at in echo["limit_rps"]
            ),
        ),
        table(
            ["gateways", "P99 of the first token, s, by seed", "over one gateway's, and 90 %"],
            (
                [
                    count,
                    ", ".join(f"{found[count]:.2f}" for found in lor["by_seed_p99_s"].values()),
                    "{} ({:.2f} to {:.2f})".format(times(ratio), *lor["ratio_range"][count]),
                ]
                for count, ratio in lor["ratio"].items()
            ),
        ),
        table(
            ["gateway killed", "lost there", "lost at others", "answered meanwhile", "back in, s"],
            (
                [
                    str(number), str(one["lost"]), str(one["others_lost"]),
                    f"{one['answered']:,}", f"{one['back_s']:.1f}",
                ]
                for number, one in enumerate(line["crashes"], start=1)
            ),
        ),
    ]  # fmt: skip


STRATEGIES = {
    "RANDOM": "RANDOM",
    "ROUND_ROBIN": "round robin",
    "LEAST_OUTSTANDING_REQUESTS": "LOR",
    "PREFIX_AWARE": "PREFIX_AWARE",
}


def lor(line: Line) -> list[str]:
    seen = line["first_token_p99_s"]
    rates = sorted({float(rate) for by_rate in seen.values() for rate in by_rate})
    rows = [
        [
            words,
            *(live_and_twin(seen[name].get(f"{rate:.2f}")) for rate in rates),
            f"{line['rates_rps'][name]:.1f}/s ({line['twin_rates_rps'][name]:.1f})",
        ]
        for name, words in STRATEGIES.items()
    ]
    heads = ["P99 of the first token, s, live (twin), at", *(f"{rate:.1f}/s" for rate in rates)]
    told = "; ".join(
        f"{words} takes {times(line[name])} the load of RANDOM live, {times(line['twin_' + name])} "
        "in the twin"
        for words, name in (
            ("LOR", "lor_vs_random"),
            ("PREFIX_AWARE", "prefix_aware_vs_random"),
            ("round robin", "round_robin_vs_random"),
        )
    )
    return [
        table([*heads, "keeps the promise to"], rows),
        f"{told}. LOR's ratio live over the twin's: {line['live_of_twin']:.3f}.",
    ]

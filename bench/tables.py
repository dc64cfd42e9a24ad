"""Markdown tables of what benchmarks printed last: `python -m bench.tables FILE... [--into PAGE]`.

Reads the lines of JSON in the files, whatever stands around them, and prints tables of each that it
knows. With `--into` they replace what lies between `<!-- figures: NAME -->` and `<!-- end -->` on
that page: its figures are never typed by hand. Under the tables stands the machine that they were
seen on; a ratio says nothing without it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def whole(spread: dict[str, float] | None) -> str:
    """Median and range, in whole numbers."""
    if not spread:
        return "-"
    middle = f"{spread['median']:,.0f}"
    if spread["samples"] == 1:
        return middle
    return f"{middle} ({spread['min']:,.0f} to {spread['max']:,.0f})"


def tenth(spread: dict[str, float] | None) -> str:
    return f"{spread['median']:,.1f}" if spread else "-"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} x"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def seen_on(line: Line) -> str:
    """The machine, the versions and the command, in one paragraph."""
    machine = line["hardware"]
    versions = _listed(line["versions"])
    for peer, each in line.get("peers", {}).items():
        versions += f"; {peer}: {_listed(each)}" if isinstance(each, dict) else f", {peer} {each}"
    others = line.get("others_cores", line.get("climb_others_cores"))
    busy = f" Other programs took {others} cores." if others is not None else ""
    return (
        f"Seen on: {machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}, "
        f"{machine['memory_gib']} GiB; {versions}; commit {line['commit']}.{busy} "
        f"Repeat, in {line['took_s']} s: `{line['command']}`."
    )


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {each}" for name, each in versions.items())


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


def bert(line: Line) -> list[str]:
    batches = line["batches"]
    names = list(next(iter(next(iter(batches.values())).values())))
    bare = [
        [model, shape, *(f"{row[name]['ms']['median']:.1f}" for name in names)]
        for model, shapes in batches.items()
        for shape, row in shapes.items()
    ]
    saved = line["cost_reductions"]
    peers = list(next(iter(saved.values())))
    served = [
        [
            f"{name}: {line['pytorch_settings'][name]}" if name in peers else name,
            whole(rps), f"{line['served_rows'][name]:g}", tenth(line["served_p99_ms"][name]),
            *(percent(saved[name][peer]) if name in saved else "" for peer in peers),
            f"{line['served_ratio_spread'][name]['median']:.2f}" if name in saved else "",
            percent(line["served_labels_equal"][name]),
        ]
        for name, rps in line["served_rps"].items()
    ]  # fmt: skip
    heads = ["served", "answers/s", "rows a batch", "P99 ms"]
    heads += [*(f"saves of {peer}" for peer in peers), "served / bare", "labels equal"]
    return [
        f"{line['processor']}.",
        table(["ms a batch", "rows x tokens", *names], bare),
        table(heads, served),
        _swept(line["pytorch_swept"], "answers/s"),
    ]


def spelling(line: Line) -> list[str]:
    exact, settings = line["exact_match_held_out"], line["peer_settings"]
    rows = [
        [
            f"{name}: {settings[name]}" if name in settings else "ours: batch 16, one core",
            whole(seen["rps"]), tenth(seen["p50_ms"]), tenth(seen["p99_ms"]),
            percent(seen["lost"]["median"]), times(line["ratios"].get(name)),
            percent(line["answers_agree"][name]),
            percent(exact[name]) if name in exact else "",
        ]
        for name, seen in line["by_server"].items()
    ]  # fmt: skip
    heads = ["", "requests/s", "P50 ms at 60 %", "P99 ms", "lost", "ours is"]
    heads += ["equal to PyTorch FP32", f"right, of {line['held_out']:,} held out"]
    told = f"Queries left as they were typed would be right in {percent(exact['unchanged'])}."
    return [table(heads, rows), told, _swept(line["peer_swept"], "requests/s")]


def _swept(by_setting: dict[str, float], unit: str) -> str:
    rows = ([setting, f"{rate:,.0f}"] for setting, rate in by_setting.items())
    return table(["PyTorch, swept", unit], rows)


def multi_model(line: Line) -> list[str]:
    """Of the parts that ran."""
    latency = [
        [
            f"{shape}, {seen['model_mb']} MB", tokens, f"{cold:.3f}",
            f"{seen['cached'][tokens]:.3f}", f"{seen['last_of_five'][tokens]:.3f}",
            f"{cold - seen['cached'][tokens]:.3f}",
        ]
        for shape, seen in line.get("latency_s", {}).items()
        for tokens, cold in seen["cold"].items()
    ]  # fmt: skip
    figures = [
        [told, form.format(line[name])]
        for told, name, form in (
            ("cold start, 32-bit weights", "cold_start_s", "{:.3f} s"),
            ("its very first, blob and all", "cold_start_first_s", "{:.2f} s"),
            ("cold start, 16-bit weights", "cold_start_fp16_s", "{:.3f} s"),
            ("its very first", "cold_start_first_fp16_s", "{:.2f} s"),
            ("cached call, more than of an endpoint of its own", "cached_overhead_ms", "{:.3f} ms"),
            ("small models resident at 80 % of 1 GiB", "resident_models", "{}"),
            ("as a process each", "resident_one_process_each", "{}"),
        )
        if name in line
    ]
    caches = [
        [
            trace, system, f"{seen['reloads']}", f"{seen['reloads_per_hour']:,}",
            percent(seen["hit_ratio"]), f"{seen['p50_ms']:,.1f}", f"{seen['p99_ms']:,.1f}",
        ]
        for trace, by_system in line.get("caches", {}).items()
        for system, seen in by_system.items()
    ]  # fmt: skip
    heads = ["model", "tokens", "cold s", "cached s", "last of five at once s", "cold start s"]
    found = [table(heads, latency)] if latency else []
    found += [table(["", ""], figures)] if figures else []
    if caches:
        heads = ["trace", "", "reloads", "reloads/hour", "hits", "P50 ms", "P99 ms"]
        found.append(table(heads, caches))
        held, models = line["models_held"], line["models"]
        swept = [
            [setting, f"{seen['reloads']}", f"{seen['p50_ms']:,.1f}", f"{seen['p99_ms']:,.1f}"]
            for setting, seen in line["ray_swept"].items()
        ]
        found.append(f"Held: {held} of {models} models. How Ray Serve does best, Zipf, 12 s:")
        found.append(table(["Ray Serve, swept", "reloads", "P50 ms", "P99 ms"], swept))
    return found


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
            ["gateways", "P99 of the first token, s, by seed", "over one gateway's"],
            (
                [
                    count,
                    ", ".join(f"{found[count]:.2f}" for found in lor["by_seed_p99_s"].values()),
                    times(ratio),
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


WAYS = {
    "pushing": "pushing between regions",
    "region_local": "each region by itself",
    "pushing_at_home": "pushing, within each region",
    "round_robin": "round robin over all copies",
    "round_robin_unbounded": "round robin, no bound",
    "least_outstanding": "least outstanding over all copies",
    "prefix_aware": "by prefix over all copies",
}


def regions_twin(line: Line) -> list[str]:
    rate, settings, seen = line["rates_rps"], line["best_settings"], line["at_rates"]
    rows = [
        [
            words, settings[name], f"{rate[name]:.1f}",
            times(line.get(f"vs_{name}")) if name != "pushing" else "",
            f"{seen[name]['p99_s']:.3f}", _seconds(seen[name].get("pushing_p99_s")),
            f"{100 * seen[name]['prefix_found']:.0f} %",
        ]
        for name, words in WAYS.items()
    ]  # fmt: skip
    heads = ["way of sending", "best settings", "requests/s", "pushing takes", "its P99 there, s"]
    heads += ["pushing's, s", "prompts that found their prefix"]
    bound = (
        f"An oracle takes {line['bound_rps']:.1f} requests/s, {line['vs_round_robin_bound']:.2f} x "
        f"round robin; pushing reaches {100 * line['of_bound']:.0f} % of that."
    )
    copies = (
        f"For 20 requests/s each region by itself has to buy "
        f"{' + '.join(map(str, line['copies_region_local']))} copies, pushing "
        f"{' + '.join(map(str, line['copies_pushing']))}: {100 * line['cost_saved']:.0f} % fewer."
    )
    mixes = [
        [
            name, f"{each['pushing']:.1f}",
            *(
                f"{each[other]:.1f} ({times(each['pushing'] / each[other])})"
                for other in ("region_local", "round_robin", "bound")
            ),
        ]
        for name, each in line["by_mix"].items()
    ]  # fmt: skip
    others = ["another demand", "pushing", "each region by itself", "round robin", "oracle"]
    return [table(heads, rows), f"{bound} {copies}", table(others, mixes)]


def _seconds(found: float | None) -> str:
    return "" if found is None else f"{found:.3f}"


TABLES: dict[str, Callable[[Line], list[str]]] = {
    "gateway": gateway, "overhead": overhead, "intent": intent, "bert": bert, "spelling": spelling,
    "multi_model": multi_model, "regions_twin": regions_twin, "gateways": gateways,
}  # fmt: skip


def text_of(line: Line) -> str:
    """All that a page shows of one benchmark."""
    return "\n\n".join([*TABLES[line["bench"]](line), seen_on(line)])


def lines_in(text: str) -> list[Line]:
    """Closing lines of benchmarks that have tables."""
    found = [json.loads(each) for each in text.splitlines() if each.startswith('{"bench"')]
    return [line for line in found if line["bench"] in TABLES]


def put_into(page: str, line: Line) -> str:
    """Raises ValueError where the page has no place for this benchmark."""
    begin = f"<!-- figures: {line['bench']} -->"
    place = re.compile(f"{re.escape(begin)}.*?<!-- end -->", re.DOTALL)
    if not place.search(page):
        raise ValueError(f"the page has no place marked {begin}")
    filled = f"{begin}\n{text_of(line)}\n<!-- end -->"
    return place.sub(lambda _: filled, page, count=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.tables")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, help="a page with marked places")
    options = parser.parse_args(sys.argv[1:])
    seen = [line for path in options.files for line in lines_in(path.read_text())]
    page = options.into.read_text() if options.into else ""
    for line in seen:
        if options.into:
            page = put_into(page, line)
        else:
            print(text_of(line), end="\n\n")
    if options.into:
        options.into.write_text(page)

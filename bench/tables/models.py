"""What models that Penstock compiles and hosts reach beside other runtimes."""

from __future__ import annotations

from bench.tables.words import Line, percent, table, tenth, times, whole


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
        lru = ", ".join(f"{trace} {loads}" for trace, loads in line["lru_reloads"].items())
        swept = [
            [setting, f"{seen['reloads']}", f"{seen['p50_ms']:,.1f}", f"{seen['p99_ms']:,.1f}"]
            for setting, seen in line["ray_swept"].items()
        ]
        found.append(f"Held: {held} of {models} models. LRU by the textbook reloads: {lru}.")
        found.append("How Ray Serve does best, Zipf, 12 s:")
        found.append(table(["Ray Serve, swept", "reloads", "P50 ms", "P99 ms"], swept))
    return found

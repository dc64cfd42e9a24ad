"""Ways of sending between regions."""

from __future__ import annotations

from bench.tables.words import Line, table, times

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

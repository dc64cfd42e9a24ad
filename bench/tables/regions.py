"""Ways of sending between regions."""

from __future__ import annotations

from bench.tables.words import Line, live_and_twin, table, times

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


def regions_live(line: Line) -> list[str]:
    seen = line["first_token_p99_s"]
    rates = sorted({float(rate) for by_rate in seen.values() for rate in by_rate})
    rows = [
        [
            WAYS[name],
            *(live_and_twin(seen[name].get(f"{rate:.2f}")) for rate in rates),
            f"{_rate(line['rates_rps'][name])} ({line['twin_rates_rps'][name]:.1f})",
            *(
                ["", ""]
                if name == "pushing"
                else [times(line.get(f"vs_{name}")), times(line.get(f"vs_{name}_p99"))]
            ),
        ]
        for name in seen
    ]
    heads = ["P99 of the first token, s, live (twin), at", *(f"{rate:.1f}/s" for rate in rates)]
    heads += ["highest rate, /s", "pushing takes", "at that rate its P99 is shorter by"]
    failed = sum(sum(one["failed"].values()) for one in line["rounds"])
    told = ", ".join(f"{name} {value}" for name, value in line["live_of_twin"].items())
    return [
        table(heads, rows),
        f"Live over twin: {told}. {failed} requests failed in {len(line['rounds'])} rounds; the "
        f"load left {1e3 * line['late_p99_s']:.0f} ms late at most (P99).",
    ]


def regions(line: Line) -> list[str]:
    rows = [
        [
            name, f"{one['lost']} of {one['sent']:,}", f"{one['reroute_s']:.2f}",
            *(f"{one['p99_ms'][phase]:,.0f}" for phase in ("steady", "step", "after")),
        ]
        for name, one in line["runs"].items()
    ]  # fmt: skip
    heads = ["", "lost", "longest around the cut, s"]
    heads += ["P99 before the step, ms", "behind it, ms", "after the cut, ms"]
    told = (
        f"Over the best HAProxy ({line['haproxy_best']}): P99 {times(_number(line, 'steady'))} "
        f"before the step, {times(_number(line, 'step'))} behind it, "
        f"{times(_number(line, 'after'))} after the cut. Seconds from the step until ratios that "
        f"move by themselves are at rest: {line['settling_s']}; they went from "
        f"{_shares(line, 'at the step')} to {_shares(line, 'before the cut')}, and turned back "
        f"{line['turns']} times after that."
    )
    return [table(heads, rows), told]


def _rate(found: float | None) -> str:
    """None: the search did not find it."""
    return "-" if found is None else f"{found:.1f}"


def _shares(line: Line, when: str) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in line["shares"][when].items())


def _number(line: Line, phase: str) -> float | None:
    """None where there was no peer."""
    found = line[f"p99_{phase}_ratio"]
    return found if isinstance(found, float) else None


def _seconds(found: float | None) -> str:
    return "" if found is None else f"{found:.3f}"

"""Tables, numbers and machines as the page of benchmarks writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    versions = listed(line["versions"])
    for peer, each in line.get("peers", {}).items():
        versions += f"; {peer}: {listed(each)}" if isinstance(each, dict) else f", {peer} {each}"
    others = line.get("others_cores", line.get("climb_others_cores"))
    busy = f" Other programs took {others} cores." if others is not None else ""
    return (
        f"Seen on: {machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}, "
        f"{machine['memory_gib']} GiB; {versions}; commit {line['commit']}.{busy} "
        f"Repeat, in {line['took_s']} s: `{line['command']}`."
    )


def listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {each}" for name, each in versions.items())


def live_and_twin(p99_s: dict[str, float | None] | None) -> str:
    """Of a P99 in seconds; None: nothing was measured."""
    if p99_s is None:
        return ""
    live, twin = ("-" if p99_s[key] is None else f"{p99_s[key]:.2f}" for key in ("live", "twin"))
    return f"{live} ({twin})"

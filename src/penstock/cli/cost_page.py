"""The cost report as one self-contained HTML page: tables, and plots drawn as SVG.

It also has the cells of those tables, for the terminal's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any, Final

from penstock.cli.output import figure, money, saved
from penstock.cli.transform_follow import COST_COLUMNS, cost_row
from penstock.core.cost.compared import Alternative
from penstock.core.cost.report import CostLine, CostReport

COLUMNS: Final = ("$", "serving", "cold start", "idle", "headroom", "requests", "loads",
                  "$ / 1000 requests")  # fmt: skip
_TENANTS_MAX: Final = 25  #: most tenants of a plot; a table has all
_PARTS: Final = ("serving", "cold_start", "idle", "headroom")
_WIDTH, _LABEL, _BAR, _ROW = 760, 200, 460, 22  #: of a plot, in pixels
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--dim:#667085;--line:#d8dee8;--paper:#fff;
--serving:#2f6fde;--cold_start:#e07b39;--idle:#9aa7ba;--headroom:#d5dce6}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--dim:#94a0b3;--line:#333c4a;--paper:#12161c;
--serving:#6a9cf5;--cold_start:#f0955a;--idle:#66758c;--headroom:#39434f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:960px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--dim)}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
td,th{padding:.2rem .4rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere;min-width:10rem}
.serving{fill:var(--serving)}.cold_start{fill:var(--cold_start)}.idle{fill:var(--idle)}
.headroom{fill:var(--headroom)}.curve{fill:none;stroke:var(--serving);stroke-width:2}
.even{stroke:var(--line)}
"""


def page(
    found: CostReport,
    others: Sequence[Alternative],
    jobs: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole page. `jobs`: the rows from `transform_follow.costs`."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Cost of models</title><style>{_STYLE}</style></head><body>",
        f"<h1>{money(found.dollars)} for {figure(found.hours)} instance hours</h1>",
        f"<p>{len(found.models)} models of {len(found.tenants)} tenants.{_unassigned(found)}</p>",
        "<h2>By tenant, and for what</h2>",
        _stacked(found.tenants[:_TENANTS_MAX]),
        "<h2>How unequal models are</h2>",
        "<p>The share of all cost that the dearest models have, the dearest first.</p>",
        _curve([line.cost.dollars for line in found.models]),
    ]
    if others:
        parts += ["<h2>The same models in other ways</h2>", _bars(others), _ways(others)]
    parts += ["<h2>Tenants</h2>", _lines(found.tenants), "<h2>Models</h2>", _lines(found.models)]
    if jobs:
        parts += ["<h2>Transform jobs</h2>", _table(COST_COLUMNS, [cost_row(job) for job in jobs])]
    return "\n".join([*parts, "</body></html>\n"])


def _unassigned(found: CostReport) -> str:
    if not found.unassigned:
        return ""
    return f" {money(found.unassigned)} was spent on instances without any model."


def _stacked(lines: Sequence[CostLine]) -> str:
    """A bar per tenant, divided into parts."""
    most = max((line.cost.dollars for line in lines), default=0.0) or 1.0
    drawn = [_legend()]
    for at, line in enumerate(lines, start=1):
        y, x = at * _ROW + 8, float(_LABEL)
        drawn.append(_text(_LABEL - 8, y + 14, _short(line.name), end=True))
        for part in _PARTS:
            width = getattr(line.cost, part) / most * _BAR
            title = f"{line.name}: {part.replace('_', ' ')} {money(getattr(line.cost, part))}"
            drawn.append(_rect(x, y, width, part, title))
            x += width
        drawn.append(_text(x + 6, y + 14, money(line.cost.dollars)))
    return _svg((len(lines) + 1) * _ROW + 16, drawn)


def _bars(others: Sequence[Alternative]) -> str:
    most = max(each.dollars_per_hour for each in others) or 1.0
    drawn = []
    for at, each in enumerate(others):
        y, width = at * _ROW + 4, each.dollars_per_hour / most * _BAR
        drawn.append(_text(_LABEL - 8, y + 14, f"{each.name}, {each.replicas} x", end=True))
        drawn.append(_rect(_LABEL, y, width, "serving", each.name))
        drawn.append(_text(_LABEL + width + 6, y + 14, f"{money(each.dollars_per_hour)} / h"))
    return _svg(len(others) * _ROW + 8, drawn)


def _curve(dollars: Sequence[float]) -> str:
    """The cumulated share of cost over the share of models; the straight line is equality."""
    height, whole = 240, sum(dollars) or 1.0
    points = [(0.0, 0.0)] + [
        (at / len(dollars), total / whole) for at, total in enumerate(accumulate(dollars), start=1)
    ]
    path = " ".join(
        f"{_LABEL + x * _BAR:.1f},{height - 30 - y * (height - 50):.1f}" for x, y in points
    )
    straight = f'<line class="even" x1="{_LABEL}" y1="{height - 30}" x2="{_LABEL + _BAR}" y2="20"/>'
    labels = [
        _text(_LABEL - 8, height - 26, "0 %", end=True),
        _text(_LABEL - 8, 24, "100 % of cost", end=True),
        _text(_LABEL + _BAR, height - 10, "100 % of models", end=True),
    ]
    return _svg(height, [straight, f'<polyline class="curve" points="{path}"/>', *labels])


def cells(line: CostLine) -> list[object]:
    """The cells of `COLUMNS`."""
    cost, each = line.cost, line.dollars_per_request
    dollars_for = (cost.dollars, cost.serving, cost.cold_start, cost.idle, cost.headroom)
    price = None if each is None else figure(each * 1000)
    return [*(figure(dollars) for dollars in dollars_for), line.requests, line.loads, price]


def alternative_cells(each: Alternative) -> list[object]:
    """The name and size of another way, its price, and what it saves beside three others."""
    shares = (each.saves, each.saves_fractions, each.saves_single)
    return [
        each.name,
        each.replicas,
        figure(each.instances),
        figure(each.dollars_per_hour),
        f"{each.models_per_instance:.3g}",
        *(saved(share) for share in shares),
    ]


def _lines(lines: Sequence[CostLine]) -> str:
    rows = [
        [f"{line.endpoint}: {line.name}" if line.endpoint else line.name, *cells(line)]
        for line in lines
    ]
    return _table(("", *COLUMNS), rows)


def _ways(others: Sequence[Alternative]) -> str:
    head = ("", "replicas", "instances", "$ / hour", "models / instance",
            "saves beside one endpoint each", "beside memory fractions",
            "beside one endpoint each, single")  # fmt: skip
    return _table(head, [alternative_cells(each) for each in others])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{'' if cell is None else escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _legend() -> str:
    drawn = []
    for at, part in enumerate(_PARTS):
        x = _LABEL + at * 110
        drawn += [_rect(x, 4, 12, part, part), _text(x + 18, 17, part.replace("_", " "))]
    return "".join(drawn)


def _svg(height: int, drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _rect(x: float, y: float, width: float, kind: str, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="16">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"

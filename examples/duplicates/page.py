"""The report as one HTML page that needs nothing else: figures, groups, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from clusters import Judged
from shop import Offer

_GROUPS_SHOWN = 40
_PAIRS_SHOWN = 12
_BINS = 20
_WIDTH, _HEIGHT, _FOOT = 720, 180, 24
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--dim:#667085;--line:#d8dee8;--paper:#fff;
--card:#f5f7fa;--yes:#2f6fde;--no:#b9c3d1;--bad:#c8452d}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--dim:#94a0b3;--line:#333c4a;--paper:#12161c;
--card:#1a2028;--yes:#6a9cf5;--no:#4a5566;--bad:#f08a75}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:960px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.1rem;margin:2rem 0 .3rem}
p{color:var(--dim);margin:.2rem 0 .8rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.tile{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.tile span{color:var(--dim);font-size:.85rem}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
.yes{fill:var(--yes)}.no{fill:var(--no)}.axis{stroke:var(--line)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th:first-child{text-align:right;width:4rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
ul{margin:0;padding-left:1rem}.other{color:var(--bad)}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that the page tells."""

    offers: Sequence[Offer]
    pairs: Sequence[tuple[int, int]]
    scores: Sequence[float]  #: of each pair, how sure the model is
    groups: Sequence[Sequence[int]]
    threshold: float
    blocking: Judged
    clusters: Judged
    job: str
    job_s: float
    cost: float  #: of the job, in US dollars


def page(told: Report) -> str:
    """The whole page."""
    all_pairs = len(told.offers) * (len(told.offers) - 1) // 2
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>Duplicate offers</title><style>{_STYLE}</style></head><body>",
            f"<h1>{len(told.groups):,} groups of duplicates among {len(told.offers):,} offers</h1>",
            f"<p>Job {escape(told.job)}: {len(told.pairs):,} pairs in {told.job_s:.0f} s for "
            f"${told.cost:.4f}.</p>",
            _tiles(told, all_pairs),
            "<h2>How sure the model is</h2>",
            f"<p>Pairs by their score; from {told.threshold:g} on they are joined.</p>",
            _histogram(told),
            "<h2>The largest groups</h2>",
            "<p>An offer in red is of another product than most of its group.</p>",
            _groups(told),
            "<h2>Nearest to the threshold</h2>",
            "<p>What a person might look at first.</p>",
            _doubtful(told),
            "</body></html>\n",
        ]
    )


def _tiles(told: Report, all_pairs: int) -> str:
    grouped = sum(map(len, told.groups))
    figures = (
        (f"{all_pairs:,}", "pairs there are"),
        (f"{len(told.pairs):,}", f"candidates, with {told.blocking.recall:.1%} of the true pairs"),
        (f"{len(told.pairs) / max(told.job_s, 1e-9):,.0f}/s", "pairs, start of the job included"),
        (f"{grouped:,}", "offers in groups"),
        (f"{told.clusters.precision:.1%}", "precision: pairs in groups that are true"),
        (f"{told.clusters.recall:.1%}", "recall: true pairs that are in groups"),
    )
    tiles = [f'<div class="tile"><b>{figure}</b><span>{of}</span></div>' for figure, of in figures]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _histogram(told: Report) -> str:
    counts = Counter(min(int(score * _BINS), _BINS - 1) for score in told.scores)
    most = max(counts.values(), default=1)
    step, foot = _WIDTH / _BINS, _HEIGHT - _FOOT
    drawn = []
    for at in range(_BINS):
        height = counts[at] / most * (foot - 16)
        kind = "yes" if at / _BINS >= told.threshold - 1e-9 else "no"
        span = f"{at / _BINS:.2f} to {(at + 1) / _BINS:.2f}: {counts[at]:,} pairs"
        drawn.append(
            f'<rect class="{kind}" x="{at * step + 1:.1f}" y="{foot - height:.1f}" '
            f'width="{step - 2:.1f}" height="{height:.1f}"><title>{span}</title></rect>'
        )
        if counts[at]:
            x = at * step + step / 2
            drawn.append(
                f'<text x="{x:.1f}" y="{foot - height - 4:.1f}" text-anchor="middle">'
                f"{counts[at]:,}</text>"
            )
    drawn.append(f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{foot}" y2="{foot}"/>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        drawn.append(
            f'<text x="{share * _WIDTH:.0f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{share:g}'
            "</text>"
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}</svg>'


def _groups(told: Report) -> str:
    rows = []
    for group in told.groups[:_GROUPS_SHOWN]:
        offers = [told.offers[number] for number in group]
        ((product, _),) = Counter(offer.product for offer in offers).most_common(1)
        items = [
            f"<li{'' if offer.product == product else ' class=other'}>{escape(offer.title)}</li>"
            for offer in offers
        ]
        rows.append(
            f'<tr><td class="number">{len(group)}</td><td><ul>{"".join(items)}</ul></td></tr>'
        )
    return _table(("offers", "titles"), rows)


def _doubtful(told: Report) -> str:
    order = sorted(
        range(len(told.pairs)), key=lambda at: (abs(told.scores[at] - told.threshold), at)
    )
    rows = []
    for at in order[:_PAIRS_SHOWN]:
        one, other = (told.offers[number] for number in told.pairs[at])
        truth = "the same" if one.product == other.product else "two products"
        rows.append(
            f'<tr><td class="number">{told.scores[at]:.3f}</td><td>{escape(one.title)}</td>'
            f"<td>{escape(other.title)}</td><td>{truth}</td></tr>"
        )
    return _table(("score", "offer", "offer", "in truth"), rows)


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

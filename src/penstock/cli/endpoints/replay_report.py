"""What a replay found: as text, as JSON, and as one self-contained HTML page with plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Final, NamedTuple

from penstock.cli.output import print_table
from penstock.core.rollout.agreement import (
    AgreementCounts,
    AgreementSpec,
    AgreementVerdict,
    judge,
)
from penstock.errors import PenstockError
from penstock.wire.capture_lines import CapturedCall

#: Most pairs of answers that are shown.
_SHOWN_MAX: Final = 20
_CHARS_MAX: Final = 160
_PERCENTS: Final = (50, 90, 99)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 220, 60, 30  #: of a plot, in pixels
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--dim:#667085;--line:#d8dee8;--paper:#fff;
--good:#2f6fde;--bad:#c4432b;--none:#9aa7ba}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--dim:#94a0b3;--line:#333c4a;--paper:#12161c;
--good:#6a9cf5;--bad:#f07a5a;--none:#66758c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:960px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--dim)}
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
table{border-collapse:collapse;width:100%;font-size:.85rem}
td,th{padding:.2rem .4rem;border-bottom:1px solid var(--line);text-align:left;
overflow-wrap:anywhere;vertical-align:top}
.agree{fill:var(--good)}.differ,.failed{fill:var(--bad)}.unpaired,.unscored{fill:var(--none)}
.curve{fill:none;stroke:var(--good);stroke-width:2}.axis{stroke:var(--line)}
"""


class Replayed(NamedTuple):
    """One call that was sent again."""

    call: CapturedCall
    answer: bytes | None
    error: PenstockError | None
    took_s: float
    agreed: bool | None  #: None: there is no pair of answers, or its scorer failed
    scored: bool = False  #: it was the scorer that said so
    scorer_error: PenstockError | None = None


@dataclass(slots=True)
class ReplayReport:
    capture: str
    endpoint: str
    spec: AgreementSpec
    sent: int = 0
    unreadable: int = 0  #: lines that are no captured call
    without_request: int = 0  #: captured calls without their request
    #: agree | differ | failed | unpaired | unscored
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  #: by code
    scored: int = 0  #: pairs that the scorer judged
    scorer_error: str = ""  #: its last one
    took_s: list[float] = field(default_factory=list)  #: of calls that were answered
    differing: list[Replayed] = field(default_factory=list)  #: the first ones

    def add(self, one: Replayed) -> None:
        self.sent += 1
        if one.error is not None:
            self.errors[one.error.code] += 1
            self.outcomes["failed"] += 1
        elif one.scorer_error is not None:
            self.took_s.append(one.took_s)
            self.outcomes["unscored"] += 1
            self.scorer_error = f"{one.scorer_error.code}: {one.scorer_error.message}"
        else:
            self.took_s.append(one.took_s)
            named = {True: "agree", False: "differ", None: "unpaired"}
            self.outcomes[named[one.agreed]] += 1
            self.scored += one.scored
        if (one.error is not None or one.agreed is False) and len(self.differing) < _SHOWN_MAX:
            self.differing.append(one)

    def verdict(self) -> AgreementVerdict:
        """Of the answers and the errors; the captured calls do not say what they took."""
        counts = AgreementCounts(
            agree=self.outcomes["agree"],
            differ=self.outcomes["differ"],
            new_failed=self.outcomes["failed"],
            scored=self.scored,
            unscored=self.outcomes["unscored"],
            scorer_error=self.scorer_error,
        )
        return judge(_timeless(self.spec), counts)

    def words(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))

    def times_ms(self) -> dict[str, float]:
        times = sorted(self.took_s)
        if not times:
            return {}
        last = len(times) - 1
        return {f"p{at}": times[round(last * at / 100)] * 1000 for at in _PERCENTS}

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready."""
        verdict = self.verdict()
        return {
            "capture": self.capture,
            "endpoint": self.endpoint,
            "held_to": asdict(self.spec),
            "sent": self.sent,
            "outcomes": dict(self.outcomes),
            "errors": dict(self.errors),
            "unreadable_lines": self.unreadable,
            "calls_without_request": self.without_request,
            "took_ms": {name: round(ms, 3) for name, ms in self.times_ms().items()},
            "verdict": verdict.verdict,
            "why": verdict.why,
            "tests": [one.snapshot() for one in verdict.tests],
            "differing": [
                dict(zip(("request", "captured", "now"), _shown(one), strict=True))
                for one in self.differing
            ],
        }


def text_report(report: ReplayReport) -> None:
    print_table(
        f"replay of {report.capture} to {report.endpoint}", ("what", "value"), _rows(report)
    )
    if report.differing:
        print()
        rows = [_shown(one) for one in report.differing]
        print_table("answers that differ, the first ones", ("request", "captured", "now"), rows)


def html_page(report: ReplayReport) -> str:
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Replay</title><style>{_STYLE}</style></head><body>",
        f"<h1>{report.sent} captured calls to {escape(report.endpoint)}</h1>",
        f"<p>From {escape(report.capture)}.</p>",
        _table(("what", "value"), _rows(report)),
        "<h2>Answers</h2>",
        _bars(report),
        "<h2>Times</h2><p>The share of calls that were answered within a time.</p>",
        _curve(sorted(report.took_s)),
    ]
    if report.differing:
        rows = [_shown(one) for one in report.differing]
        parts += ["<h2>Answers that differ, the first ones</h2>",
                  _table(("request", "captured", "now"), rows)]  # fmt: skip
    return "\n".join([*parts, "</body></html>\n"])


def _timeless(spec: AgreementSpec) -> AgreementSpec:
    return replace(spec, slower_max=0.0)


def _rows(report: ReplayReport) -> list[tuple[str, object]]:
    verdict = report.verdict()
    rows: list[tuple[str, object]] = [
        ("calls", report.sent),
        ("answers", report.words()),
        (verdict.verdict, verdict.why),
    ]
    if times := report.times_ms():
        rows.append(("times", ", ".join(f"{name} {ms:.1f} ms" for name, ms in times.items())))
    if report.errors:
        told = ", ".join(f"{code} {count}" for code, count in report.errors.most_common())
        rows.append(("errors", told))
    if report.unreadable:
        rows.append(("lines that are no captured call", report.unreadable))
    if report.without_request:
        rows.append(("captured calls without a request", report.without_request))
    return rows


def _shown(one: Replayed) -> tuple[str, str, str]:
    now = one.answer if one.error is None else f"{one.error.code}: {one.error.message}".encode()
    return _text(one.call.request), _text(one.call.answer), _text(now)


def _text(data: bytes | None) -> str:
    if data is None:
        return "-"
    text = data.decode("utf-8", "backslashreplace")
    return text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 1] + "…"


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    lines = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bars(report: ReplayReport) -> str:
    drawn = []
    widest = max(report.outcomes.values(), default=1)
    for at, (name, count) in enumerate(sorted(report.outcomes.items())):
        y, width = 8 + at * 28, max((_WIDTH - 260) * count / widest, 1.0)
        drawn.append(
            f'<text x="90" y="{y + 15}" text-anchor="end">{name}</text>'
            f'<rect class="{name}" x="100" y="{y}" width="{width:.1f}" height="20" rx="2"/>'
            f'<text x="{108 + width:.1f}" y="{y + 15}">{count} ({count / report.sent:.2%})</text>'
        )
    height = 16 + 28 * len(drawn)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _curve(times: Sequence[float]) -> str:
    if not times:
        return "<p>No call was answered.</p>"
    high, wide = _HEIGHT - _BOTTOM - 10, _WIDTH - _LEFT - 40
    # Beyond the 99.5th percentile a few stragglers would press all others against the axis.
    most = times[round((len(times) - 1) * 0.995)] * 1.05 or 1e-9
    points = []
    for at in range(201):
        took = times[round((len(times) - 1) * at / 200)]
        x = _LEFT + wide * min(took / most, 1.0)
        points.append(f"{x:.1f},{10 + high * (1 - at / 200):.1f}")
    floor = 10 + high
    ticks = "".join(
        f'<text x="{_LEFT + wide * part:.0f}" y="{floor + 18}" text-anchor="middle">'
        f"{most * part * 1000:.1f} ms</text>"
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    shares = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + wide}" y1="{10 + high * (1 - share):.1f}"'
        f' y2="{10 + high * (1 - share):.1f}"/><text x="{_LEFT - 8}"'
        f' y="{14 + high * (1 - share):.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0.0, 0.5, 0.9, 1.0)
    )
    line = f'<polyline class="curve" points="{" ".join(points)}"/>'
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{shares}{ticks}{line}</svg>'

"""`penstock cost`: the same report as a table, as JSON and as a page that needs nothing else."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import options as shared

#: To a browser, and to the library that draws tables.
HOSTILE = "<script>alert(1)</script>[/b]"
Penstock = Callable[..., tuple[int, str, str]]


def model(name: str, **figures: float) -> dict[str, Any]:
    return {
        "model": name, "resident_s": 3600.0, "resident_byte_s": 3600.0 * 100, "compute_s": 36.0,
        "requests": 1000, "loads": 1, "load_s": 1.0, "bytes_peak": 100,
    } | figures  # fmt: skip


USAGE = {
    "instances": [
        {
            "endpoint": "support", "instance_id": "i-1", "instance_type": "ml.local.small",
            "price_per_hour": 0.02, "held_s": 3600.0, "cores": 1.0, "memory_bytes": 1000,
            "models": [
                model("acme-1.tar.gz"), model("acme-2.tar.gz", requests=0),
                model(f"zeta-{HOSTILE}", requests=10),
            ],
        }
    ],
    "offers": [{"name": "tiny", "memory_bytes": 120, "price_per_hour": 0.01}],
}  # fmt: skip
JOBS = {
    "jobs": [
        {"job": "nightly", "status": "Completed", "instance_type": "ml.local.small",
         "progress": {"InstanceSeconds": 1800.0, "CostSoFar": 0.01, "Records": 4000}},
        {"job": "waits", "status": "InProgress", "instance_type": "ml.local.small",
         "progress": {"InstanceSeconds": 0.0, "CostSoFar": 0.0, "Records": 0}},
    ]
}  # fmt: skip


@pytest.fixture
def usage(tmp_path: Path) -> str:
    path = tmp_path / "usage.json"
    path.write_text(json.dumps(USAGE))
    return str(path)


def test_tables_tell_tenants_models_and_other_ways(penstock: Penstock, usage: str) -> None:
    status, out, _ = penstock("cost", "--usage", usage)
    assert status == 0
    assert "$0.02 for 1 instance hours" in out
    rows = [line.replace("│", " ").split() for line in out.splitlines()]
    assert ["acme", "2"] in [row[:2] for row in rows]
    assert ["support", "acme-1.tar.gz"] in [row[:2] for row in rows]
    # Three models of 100 bytes: each alone on the tiny type, or all on the shared one.
    assert any("one endpoint each" in line and " 0.03 " in line for line in out.splitlines())
    assert any("shared, all resident" in line and " 0.02 " in line for line in out.splitlines())


def test_tables_are_cut_where_asked_and_json_never(penstock: Penstock, usage: str) -> None:
    _, out, _ = penstock("cost", "--usage", usage, "--top", "1")
    assert out.count(".tar.gz") == 1
    _, out, _ = penstock("cost", "--usage", usage, "--top", "1", "--json")
    told = json.loads(out)
    assert len(told["models"]) == 3
    assert sum(line["cost"]["dollars"] for line in told["models"]) == pytest.approx(0.02)
    assert told["models"][0]["cost"]["dollars"] >= told["models"][1]["cost"]["dollars"]
    unanswered = next(line for line in told["models"] if line["name"] == "acme-2.tar.gz")
    assert unanswered["dollars_per_request"] is None
    assert {each["name"] for each in told["alternatives"]} == {
        "one endpoint each", "memory fractions", "shared, all resident", "shared, as called",
    }  # fmt: skip


def test_more_parts_of_a_name_may_tell_the_tenant(penstock: Penstock, usage: str) -> None:
    _, out, _ = penstock("cost", "--usage", usage, "--tenant-parts", "2", "--json")
    assert {"acme-1", "acme-2"} < {line["name"] for line in json.loads(out)["tenants"]}
    _, out, _ = penstock("cost", "--usage", usage, "--tenant-ends", "m", "--json")
    assert {"ac"} < {line["name"] for line in json.loads(out)["tenants"]}


def test_jobs_are_told_with_what_their_records_cost(penstock: Penstock, tmp_path: Path) -> None:
    """One that never held an instance has cost nothing."""
    path = tmp_path / "usage.json"
    path.write_text(json.dumps(USAGE | JOBS))
    _, out, _ = penstock("cost", "--usage", str(path))
    [row] = [line.replace("│", " ").split() for line in out.splitlines() if "nightly" in line]
    assert row == ["nightly", "Completed", "ml.local.small", "0.5", "0.01", "4000", "0.0025"]
    assert "waits" not in out
    _, out, _ = penstock("cost", "--usage", str(path), "--json")
    [job] = json.loads(out)["jobs"]
    assert (job["job"], job["dollars"], job["instance_hours"]) == ("nightly", 0.01, 0.5)
    assert job["dollars_per_record"] == pytest.approx(0.01 / 4000)
    page = tmp_path / "page.html"
    penstock("cost", "--usage", str(path), "--html", str(page))
    assert "<td>nightly</td><td>Completed</td>" in page.read_text()


def test_jobs_that_are_none_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    path.write_text(json.dumps(USAGE | {"jobs": [{"job": "j"}]}))
    status, _, said = penstock("cost", "--usage", str(path))
    assert status == 1
    assert "error[usage-invalid]: jobs: KeyError: 'progress'" in said


class CostPage(HTMLParser):
    """What a browser would fetch or run, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_runs_no_name(
    penstock: Penstock, usage: str, tmp_path: Path
) -> None:
    status, out, err = penstock("cost", "--usage", usage, "--html", str(tmp_path / "cost.html"))
    assert (status, out, "cost.html" in err) == (0, "", True)
    text = (tmp_path / "cost.html").read_text(encoding="utf-8")
    page = CostPage()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert {"svg", "rect", "polyline", "table"} <= set(page.seen)
    assert "script" not in page.seen
    assert "&lt;script&gt;" in text
    assert "url(" not in text


def test_usage_may_come_from_a_pipe_or_from_the_server(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(USAGE)))
    _, piped, _ = penstock("cost", "--usage", "-", "--json")
    asked: list[str] = []

    class CostServer:
        def admin(self, path: str) -> Any:
            asked.append(path)
            return USAGE

    monkeypatch.setattr(shared, "Client", lambda url, **_: CostServer())
    _, served, _ = penstock("cost", "--json")
    assert (asked, served) == (["/usage", "/jobs?limit=1000"], piped)


def test_nothing_used_is_a_report_of_nothing(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for options in ([], ["--json"], ["--html", str(tmp_path / "page")]):
        monkeypatch.setattr(sys, "stdin", io.StringIO('{"instances": []}'))
        assert penstock("cost", "--usage", "-", *options)[0] == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "usage-invalid"),
        ("[]", "usage-invalid"),
        ('{"instances": 7}', "usage-invalid"),
        ('{"instances": [], "offers": [{}]}', "usage-invalid"),
        (None, "usage-unreadable"),
    ],
)
def test_what_is_no_usage_is_an_error_with_a_code(
    penstock: Penstock, tmp_path: Path, content: str | None, code: str
) -> None:
    path = tmp_path / "usage.json"
    if content is not None:
        path.write_text(content)
    status, _, err = penstock("cost", "--usage", str(path))
    assert (status, f"error[{code}]" in err) == (1, True)

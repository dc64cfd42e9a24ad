"""The shipped dashboard and alert rules: written by their generator, of metrics that exist, and
taken by Prometheus's own checker."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.metrics.test_metrics_registry import answer

from penstock.metrics.catalogue import catalogue, traffic_catalogue, work_catalogue
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.page.reference import exposed_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "observability"
_HISTOGRAM = ("_bucket", "_sum", "_count")
#: Prometheus's own, and the labels that it and its alerts add.
OTHERS = {"up": {"job", "instance"}}
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is missing"
)


def labels_by_name() -> dict[str, set[str]]:
    found: dict[str, set[str]] = dict(OTHERS)
    catalogues = (catalogue, work_catalogue, traffic_catalogue)
    for metric in (one for each in catalogues for one in each.PROMETHEUS):
        name, labels = exposed_name(metric), set(metric.labels)
        if metric.kind == "histogram":
            found |= {f"{name}{end}": labels | {"le"} for end in _HISTOGRAM}
        else:
            found[name] = labels
    return found


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "dashboards" / "penstock.json").read_text())
    return loaded


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    return list(group["rules"])


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of all there are."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        if found is not None:
            yield variable["name"], f"sum by ({found[2]}) ({found[1]})"
    for rule in rules():
        yield rule["alert"], rule["expr"]


def test_files_are_what_their_generator_writes() -> None:
    command = [sys.executable, str(FOLDER / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_metric_and_label_that_is_named_exists() -> None:
    known = labels_by_name()
    named = set()
    for where, expression in expressions():
        plain = expression.replace("$endpoint", "").replace("$variant", "")
        names = set(re.findall(r"\b(?:penstock_\w+|up)\b", re.sub(r'"[^"]*"', '""', plain)))
        assert names, where
        assert names <= set(known), where
        named |= names
        allowed = set.intersection(*(known[name] for name in names))
        for name, selector in re.findall(r"\b(penstock_\w+|up)\{([^}]*)\}", plain):
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) <= known[name], where
        for by in re.findall(r"by \(([^)]*)\)", plain):
            assert {label.strip() for label in by.split(",")} <= allowed, where
    assert len(named) > 25


def test_every_family_of_other_work_is_in_a_panel_or_an_alert() -> None:
    told = "\n".join(expression for _, expression in expressions())
    for metric in work_catalogue.PROMETHEUS:
        assert exposed_name(metric) in told


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            kept = {
                label.strip()
                for by in re.findall(r"by \(([^)]*)\)", target["expr"])
                for label in by.split(",")
            }
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert wanted <= kept, panel["title"]


def test_panels_have_their_own_place_and_number() -> None:
    panels = dashboard()["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"


def test_what_an_alert_says_to_read_is_there() -> None:
    for rule in rules():
        for page in re.findall(r"docs/[\w/-]+\.md", rule["annotations"]["description"]):
            assert (ROOT / page).is_file(), rule["alert"]


@promtool
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """Grafana's variables stand for what it would put there."""
    records = [
        {
            "record": f"checked:{number}",
            "expr": expression.replace("$__rate_interval", "5m"),
            "labels": {"where": where},
        }
        for number, (where, expression) in enumerate(expressions())
    ]
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}))
    ran("promtool", "check", "rules", str(path))


@promtool
@pytest.mark.parametrize(
    ("kind", "name"),
    [("check config", "prometheus.yml"), ("test rules", "rules_test.yaml")],
)
def test_prometheus_takes_the_files_and_alerts_are_raised_when_they_should_be(
    kind: str, name: str
) -> None:
    ran("promtool", *kind.split(), str(FOLDER / name))


@promtool
def test_prometheus_finds_no_fault_with_the_page() -> None:
    registry = MetricRegistry()
    answer(registry.recorder("shop", "main"))
    registry.collect(1_700_000_000)
    page, _ = PrometheusPage(registry).render()
    ours = [line for line in page.splitlines(keepends=True) if b"penstock_" in line]
    ran("promtool", "check", "metrics", stdin=b"".join(ours))


def ran(*command: str, stdin: bytes | None = None) -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()

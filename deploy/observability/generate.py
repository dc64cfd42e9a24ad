"""Writes the Grafana dashboard and the alert rules: `python deploy/observability/generate.py`.

Both are tables here, so that a panel is one line to read and to change; with --check the files are
only compared. A test holds that every metric and label exists, and that Prometheus takes the rules.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE / "dashboards" / "penstock.json"
RULES = HERE / "rules.yaml"

SELECTED = 'endpoint=~"$endpoint",variant=~"$variant"'
WINDOW = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  #: Grafana's name of it
    queries: Sequence[tuple[str, str]]  #: (legend, PromQL)
    help: str = ""


def rate(by: str, metric: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{SELECTED}{more}}}{WINDOW}))"


def quantile(q: float, metric: str, by: str = "endpoint") -> str:
    return f"histogram_quantile({q}, {rate(f'le, {by}', f'{metric}_bucket')})"


def quantiles(metric: str) -> list[tuple[str, str]]:
    return [(f"P{q * 100:g} {{{{endpoint}}}}", quantile(q, metric)) for q in (0.5, 0.9, 0.99)]


ROWS: dict[str, list[Panel]] = {
    "Requests": [
        Panel("Requests", "reqps",
              [("{{outcome}}", rate("outcome", "penstock_requests_total"))]),
        Panel("Duration", "s", quantiles("penstock_request_duration_seconds"),
              "From a request's first byte to its answer's last byte."),
        Panel("In flight", "short",
              [("{{endpoint}}", f"sum by (endpoint) (penstock_in_flight{{{SELECTED}}})")]),
        Panel("Refused", "reqps",
              [("{{reason}}", rate("reason", "penstock_refused_total"))]),
    ],
    "Where the time goes": [
        Panel("Waiting in the queue", "s", quantiles("penstock_queue_seconds")),
        Panel("In the model", "s", quantiles("penstock_model_seconds")),
        Panel("Rows of a batch, mean", "short", [(
            "{{endpoint}}",
            f"{rate('endpoint', 'penstock_batch_rows_sum')}"
            f" / {rate('endpoint', 'penstock_batch_rows_count')}",
        )]),
        Panel("Lag of event loops, longest of a minute", "s",
              [("{{process}}", "max by (process) (penstock_loop_lag_max_seconds)")],
              "Whoever keeps a loop keeps every request of its process waiting."),
    ],
    "Generated answers": [
        Panel("Time to first token", "s", quantiles("penstock_time_to_first_token_seconds")),
        Panel("Time per output token", "s", quantiles("penstock_time_per_output_token_seconds")),
        Panel("Tokens", "short",
              [("{{direction}}", rate("direction", "penstock_tokens_total"))]),
        Panel("KV cache in use", "percentunit",
              [("{{instance}}", f"max by (instance) (penstock_kv_cache_ratio{{{SELECTED}}})")]),
        Panel("Sequences", "short", [(
            "{{state}} {{endpoint}}",
            f"sum by (state, endpoint) (penstock_sequences{{{SELECTED}}})",
        )]),
        Panel("Streams that broke", "reqps",
              [("{{endpoint}}", rate("endpoint", "penstock_streams_broken_total"))]),
    ],
    "Capacity": [
        Panel("Copies", "short", [(
            "{{state}} {{endpoint}}",
            f"sum by (state, endpoint) (penstock_copies{{{SELECTED}}})",
        )]),
        Panel("CPU of instances", "percentunit",
              [("{{instance}}", f"max by (instance) (penstock_instance_cpu_ratio{{{SELECTED}}})")]),
        Panel("Memory of instances", "percentunit", [(
            "{{instance}}",
            f"max by (instance) (penstock_instance_memory_ratio{{{SELECTED}}})",
        )]),
        Panel("Time to ready, of the last copy", "s", [(
            "{{part}} {{endpoint}}",
            f"max by (part, endpoint) (penstock_time_to_ready_seconds{{{SELECTED}}})",
        )]),
    ],
    "Target models": [
        Panel("Calls that found their model loaded", "percentunit", [(
            "{{endpoint}}",
            rate("endpoint", "penstock_target_model_calls_total", ',cache="hit"')
            + " / " + rate("endpoint", "penstock_target_model_calls_total"),
        )]),
        Panel("Unloads", "ops",
              [("{{reason}}", rate("reason", "penstock_target_model_unloads_total"))]),
        Panel("Waiting for a load", "s", quantiles("penstock_model_loading_wait_seconds")),
        Panel("Memory of loaded models", "bytes", [(
            "{{memory}} {{endpoint}}",
            "sum by (memory, endpoint)"
            f" (penstock_target_model_resident_bytes{{{SELECTED}}})",
        )]),
    ],
    "Jobs and schedules": [
        Panel("Transform jobs", "short",
              [("{{state}}", "sum by (state) (penstock_transform_jobs)")]),
        Panel("Jobs that ended, an hour", "short", [(
            "{{outcome}}",
            "sum by (outcome) (increase(penstock_transform_jobs_ended_total[1h]))",
        )]),
        Panel("Age of the oldest job", "s",
              [("{{state}}", "max by (state) (penstock_transform_job_age_seconds)")]),
        Panel("Schedules whose last run failed", "short",
              [("{{schedule}}", "max by (schedule) (penstock_schedule_failing) > 0")],
              "Until a run succeeds: `penstock schedule show NAME` has its runs and reasons."),
        Panel("Since the last success of a schedule", "s", [(
            "{{schedule}}",
            "time() - max by (schedule) (penstock_schedule_last_success_timestamp_seconds)",
        )]),
        Panel("Runs that ended, an hour", "short", [(
            "{{schedule}} {{outcome}}",
            "sum by (schedule, outcome) (increase(penstock_schedule_runs_ended_total[1h])) > 0",
        )]),
    ],
    "Asynchronous requests": [
        Panel("Backlog", "short", [(
            "{{endpoint}}",
            'sum by (endpoint) (penstock_async_backlog{endpoint=~"$endpoint"})',
        )]),
        Panel("Age of the oldest request", "s", [(
            "{{endpoint}}",
            'max by (endpoint) (penstock_async_oldest_seconds{endpoint=~"$endpoint"})',
        )]),
        Panel("Requests that ended", "reqps", [(
            "{{outcome}}",
            'sum by (outcome) (rate(penstock_async_requests_ended_total{endpoint=~"$endpoint"}'
            f"{WINDOW}))",
        )]),
        Panel("Notifications", "ops", [(
            "{{outcome}}",
            f"sum by (outcome) (rate(penstock_notifications_total{WINDOW}))",
        )]),
    ],
    "Gateways, database and lead": [
        Panel("Lag of event loops, P99", "s", [(
            "{{process}}",
            "histogram_quantile(0.99,"
            f" sum by (le, process) (rate(penstock_loop_lag_seconds_bucket{WINDOW})))",
        )], "Of each gateway process, of the control side, and of instances."),
        Panel("Calls of the database", "s", [
            (f"P{q * 100:g}",
             f"histogram_quantile({q}, sum by (le)"
             f" (rate(penstock_database_call_seconds_bucket{WINDOW})))")
            for q in (0.5, 0.99)
        ]),
        Panel("Errors of the database", "ops", [(
            "{{code}}",
            f"sum by (code) (rate(penstock_database_errors_total{WINDOW}))",
        )]),
        Panel("Term of the leader", "short", [("term", "max(penstock_leader_epoch)")],
              "It rises whenever another server leads; nothing where a server is alone."),
    ],
    "Regions": [
        Panel("Requests by region", "reqps", [(
            "{{region}}",
            'sum by (region) (rate(penstock_traffic_requests_total{endpoint=~"$endpoint"}'
            f"{WINDOW}))",
        )], "Of `penstock orchestrator`; no region: none answered."),
        Panel("Regions that are followed", "short",
              [("{{region}}", "max by (region) (penstock_region_followed)")],
              "1 while a region tells what it could take."),
        Panel("Share of the traffic", "percentunit", [(
            "{{region}} {{endpoint}}",
            'max by (region, endpoint) (penstock_traffic_ratio{endpoint=~"$endpoint"})',
        )]),
        Panel("Sent again", "reqps", [(
            "{{reason}}",
            f"sum by (reason) (rate(penstock_traffic_sent_again_total{WINDOW}))",
        )]),
        Panel("Waiting for a region with room", "short", [(
            "{{endpoint}}",
            'sum by (endpoint) (penstock_traffic_held{endpoint=~"$endpoint"})',
        )]),
        Panel("Way to a region and back", "s",
              [("{{region}}", "max by (region) (penstock_region_way_seconds)")]),
    ],
    "Cost": [
        Panel("Dollars an hour", "currencyUSD",
              [("{{endpoint}}", f"3600 * {rate('endpoint', 'penstock_cost_dollars_total')}")]),
        Panel("Power", "watt",
              [("{{endpoint}}", rate("endpoint", "penstock_energy_joules_total"))]),
        Panel("Dollars a request, last hour", "currencyUSD", [(
            "{{endpoint}}",
            f"max by (endpoint) (penstock_request_cost_dollars{{{SELECTED}}})",
        )]),
        Panel("Dollars a thousand tokens, last hour", "currencyUSD", [(
            "{{endpoint}}",
            f"max by (endpoint) (penstock_thousand_tokens_cost_dollars{{{SELECTED}}})",
        )]),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    wait: str  #: how long it must hold
    severity: str
    summary: str
    action: str


def share(numerator: str, metric: str = "penstock_requests_total") -> str:
    """Of an endpoint's requests of five minutes; nothing where there are too few to say."""
    of = f"sum by (endpoint) (rate({metric}[5m]))"
    return f"sum by (endpoint) (rate({numerator}[5m])) / {of}"


ENOUGH = "and sum by (endpoint) (increase(penstock_requests_total[5m])) > 20"
ALERTS = [
    Alert(
        "PenstockErrors",
        share('penstock_requests_total{outcome=~"model-error|internal-error"}')
        + f" > 0.05 {ENOUGH}",
        "5m", "page",
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests fail",
        "`penstock logs ENDPOINT` has what the model said; `penstock explain ID` tells of one.",
    ),
    Alert(
        "PenstockRefusals",
        share("penstock_refused_total") + f" > 0.05 {ENOUGH}",
        "5m", "page",
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests are refused",
        "The label `reason` of penstock_refused_total says why; mostly more copies are needed.",
    ),
    Alert(
        "PenstockSlow",
        "histogram_quantile(0.99, sum by (le, endpoint)"
        " (rate(penstock_queue_seconds_bucket[5m]))) > 1",
        "10m", "ticket",
        "{{ $labels.endpoint }}: one request in a hundred waits {{ $value | humanizeDuration }}",
        "Copies are too few or batches too large: docs/howto/latency.md.",
    ),
    Alert(
        "PenstockNoCopyReady",
        'sum by (endpoint) (penstock_in_flight) > 0 unless'
        ' sum by (endpoint) (penstock_copies{state="ready"}) > 0',
        "2m", "page",
        "{{ $labels.endpoint }}: requests wait and no copy is ready",
        "`penstock status ENDPOINT` says what keeps a copy from being ready.",
    ),
    Alert(
        "PenstockStreamsBreak",
        "sum by (endpoint) (rate(penstock_streams_broken_total[5m])) > 0.1",
        "5m", "ticket",
        "{{ $labels.endpoint }}: streamed answers break off",
        "The engine's process ends: `penstock logs ENDPOINT`.",
    ),
    Alert(
        "PenstockMemoryNearlyFull",
        "max by (endpoint, instance) (penstock_instance_memory_ratio) > 0.95",
        "10m", "ticket",
        "{{ $labels.instance }} of {{ $labels.endpoint }} uses {{ $value | humanizePercentage }}"
        " of its memory",
        "A larger instance type, or fewer models: docs/howto/instance-types.md.",
    ),
    Alert(
        "PenstockCacheThrashes",
        'sum by (endpoint) (rate(penstock_target_model_calls_total{cache="miss"}[10m]))'
        " / sum by (endpoint) (rate(penstock_target_model_calls_total[10m])) > 0.2",
        "30m", "ticket",
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of calls wait for a load",
        "Its models do not fit into its instances: docs/howto/many-models.md.",
    ),
    Alert(
        "PenstockLoopStalls",
        "max by (process) (penstock_loop_lag_max_seconds) > 0.25",
        "5m", "ticket",
        "The event loop of {{ $labels.process }} stalls for {{ $value | humanizeDuration }}",
        "Its machine has too few cores for what runs there.",
    ),
    Alert(
        "PenstockItemsFail",
        "sum by (loop) (increase(penstock_item_failures_total[10m])) > 0",
        "15m", "ticket",
        "Single items of the loop {{ $labels.loop }} fail again and again",
        "The log names each and says why; all others go on. What can't be read can be deleted and"
        " made again: docs/howto/observability.md.",
    ),
    Alert(
        "PenstockScheduleFails",
        "max by (schedule) (penstock_schedule_failing) == 1",
        "0m", "page",
        "The last run of schedule {{ $labels.schedule }} failed",
        "`penstock schedule show NAME` has the run's reason and its job; `penstock schedule run-now"
        " NAME` runs it again. Raised until a run succeeds: docs/howto/schedules.md.",
    ),
    Alert(
        "PenstockScheduleOverdue",
        "max by (schedule) (penstock_schedule_overdue_seconds) > 900",
        "5m", "ticket",
        "A run of schedule {{ $labels.schedule }} is due for"
        " {{ $value | humanizeDuration }} and has not begun",
        "The run before it still goes on, or no server could begin it: `penstock jobs list`.",
    ),
    Alert(
        "PenstockJobsFail",
        'sum(increase(penstock_transform_jobs_ended_total{outcome="failed"}[15m])) > 0',
        "0m", "ticket",
        "A transform job failed",
        "`penstock jobs list` names it, DescribeTransformJob has its FailureReason:"
        " docs/howto/transform.md.",
    ),
    Alert(
        "PenstockJobsWait",
        'max(penstock_transform_job_age_seconds{state="waiting"}) > 3600',
        "10m", "ticket",
        "A transform job waits for {{ $value | humanizeDuration }}",
        "PenstockProgress of DescribeTransformJob says for what: its turn, or room beside"
        " endpoints.",
    ),
    Alert(
        "PenstockAsyncStuck",
        "max by (endpoint) (penstock_async_oldest_seconds) > 600 and"
        ' sum by (endpoint) (increase(penstock_async_requests_ended_total[10m])) == 0',
        "5m", "page",
        "{{ $labels.endpoint }}: no asynchronous request has ended for ten minutes, the oldest"
        " waits for {{ $value | humanizeDuration }}",
        "`penstock status ENDPOINT` says whether a copy is there; a store that can't be written to"
        " keeps requests waiting as well: docs/howto/async.md.",
    ),
    Alert(
        "PenstockAsyncFails",
        "sum by (endpoint)"
        ' (increase(penstock_async_requests_ended_total{outcome!="completed"}[15m]))'
        " / sum by (endpoint) (increase(penstock_async_requests_ended_total[15m])) > 0.05",
        "5m", "ticket",
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of asynchronous requests fail",
        "Their failure objects have the reason: docs/howto/async.md.",
    ),
    Alert(
        "PenstockNotificationsFail",
        'sum(rate(penstock_notifications_total{outcome!="delivered"}[15m])) > 0'
        ' unless sum(rate(penstock_notifications_total{outcome="delivered"}[15m])) > 0',
        "15m", "ticket",
        "No notification of asynchronous requests is delivered",
        "The URL of the topic does not take them: `control.topics`, docs/howto/async.md.",
    ),
    Alert(
        "PenstockDatabaseDown",
        "min(penstock_database_up) == 0",
        "1m", "page",
        "The database can't be used",
        "The label `code` of penstock_database_errors_total says why: a full disk, or PostgreSQL"
        " that can't be reached. Requests are served meanwhile; nothing can be changed.",
    ),
    Alert(
        "PenstockLeadChanges",
        "max(penstock_leader_epoch) - min(min_over_time(penstock_leader_epoch[30m])) > 2",
        "0m", "ticket",
        "The lead has changed {{ $value }} times in half an hour",
        "Servers that can't reach the database in time lose the lead:"
        " docs/howto/several-servers.md.",
    ),
    Alert(
        "PenstockLeadStalls",
        "max(penstock_leader_beat_age_seconds) > 5",
        "1m", "page",
        "The leader has not reached the database for {{ $value | humanizeDuration }}",
        "Another server takes over once it can: docs/howto/several-servers.md.",
    ),
    Alert(
        "PenstockRegionLost",
        "max by (region) (penstock_region_followed) == 0",
        "1m", "page",
        "Region {{ $labels.region }} can't be followed",
        "`penstock traffic show` says why; its requests go to other regions:"
        " docs/howto/regions.md.",
    ),
    Alert(
        "PenstockNoRegion",
        'sum(rate(penstock_traffic_requests_total{outcome="no-region"}[5m])) > 0',
        "2m", "page",
        "Requests are answered by no region",
        "`penstock traffic show` shows what is known of each region: docs/howto/regions.md.",
    ),
    Alert(
        "PenstockGone",
        'up{job="penstock"} == 0 or absent(up{job="penstock"})',
        "1m", "page",
        "Penstock can't be scraped",
        "Is `penstock up` running, and may Prometheus read /metrics?",
    ),
]  # fmt: skip


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place,
             "collapsed": False, "panels": []}
        )  # fmt: skip
        for number, panel in enumerate(row):
            place = {"x": 12 * (number % 2), "y": top + 1 + 8 * (number // 2), "w": 12, "h": 8}
            panels.append(_panel(panel, len(panels) + 1, place))
        top += 1 + 8 * ((len(row) + 1) // 2)
    return {
        "uid": "penstock-serving",
        "title": "Penstock: serving",
        "tags": ["penstock"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": expr,
             "legendFormat": legend, "editorMode": "code", "range": True}
            for place, (legend, expr) in enumerate(panel.queries)
        ],
    }  # fmt: skip


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    shown: dict[str, Any] = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    found = [shown]
    for name, query in (
        ("endpoint", "label_values(penstock_in_flight, endpoint)"),
        ("variant", 'label_values(penstock_in_flight{endpoint=~"$endpoint"}, variant)'),
    ):
        found.append(
            {"name": name, "type": "query", "datasource": source, "query": query, "refresh": 2,
             "includeAll": True, "allValue": ".*", "multi": True, "sort": 1,
             "current": {"text": "All", "value": "$__all"}}
        )  # fmt: skip
    return found


def rules() -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": "penstock",
                "rules": [
                    {
                        "alert": one.name,
                        "expr": one.expr,
                        "for": one.wait,
                        "labels": {"severity": one.severity},
                        "annotations": {"summary": one.summary, "description": one.action},
                    }
                    for one in ALERTS
                ],
            }
        ]
    }


def files() -> dict[Path, str]:
    """What is to be in each."""
    head = "# Written by generate.py, which says how to change it.\n"
    return {
        DASHBOARD: json.dumps(dashboard(), indent=1) + "\n",
        RULES: head + yaml.safe_dump(rules(), sort_keys=False, width=100),
    }


def main() -> int:
    wrong = 0
    for path, text in files().items():
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                sys.stderr.write(f"{path} is not what generate.py writes\n")
                wrong = 1
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

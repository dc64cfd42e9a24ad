"""The metrics of a server's work besides answering requests, as data: jobs, schedules, queues of
asynchronous requests, its database, and who leads. `catalogue.py` has those of requests.
"""

from __future__ import annotations

from typing import Final

from penstock.metrics.catalogue.catalogue import PrometheusMetric

#: A SQLite call takes a fraction of a millisecond; a PostgreSQL call is aborted after 10 s.
_DATABASE_EDGES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

JOB_ENDS: Final = ("completed", "failed", "stopped")
JOBS_ENDED: Final = PrometheusMetric(
    "penstock_transform_jobs_ended", "counter", ("outcome",),
    "Transform jobs that have ended since the server began, by outcome: completed, failed, "
    "stopped.",
)  # fmt: skip
JOB_STATES: Final = ("waiting", "running", "stopping")
JOBS: Final = PrometheusMetric(
    "penstock_transform_jobs", "gauge", ("state",),
    "Transform jobs that have not ended, by state: waiting (for their turn or for room), running, "
    "stopping.",
)  # fmt: skip
JOB_AGE: Final = PrometheusMetric(
    "penstock_transform_job_age_seconds", "gauge", ("state",),
    "Of the oldest of them, since it was created; 0 where there is none.",
)  # fmt: skip

RUN_ENDS: Final = ("completed", "failed", "stopped", "passed-over")
RUNS_ENDED: Final = PrometheusMetric(
    "penstock_schedule_runs_ended", "counter", ("schedule", "outcome"),
    "Runs of a schedule that have ended since the server began, by outcome: completed, failed, "
    "stopped, passed-over (due times that were missed or not run).",
)  # fmt: skip
SCHEDULE_FAILING: Final = PrometheusMetric(
    "penstock_schedule_failing", "gauge", ("schedule",),
    "1 while the last run of a schedule that ended has failed, else 0; a restart does not change "
    "it.",
)  # fmt: skip
SCHEDULE_SUCCESS: Final = PrometheusMetric(
    "penstock_schedule_last_success_timestamp_seconds", "gauge", ("schedule",),
    "When its last run that completed has ended, in s since 1970; no row where none is on record.",
)  # fmt: skip
SCHEDULE_OVERDUE: Final = PrometheusMetric(
    "penstock_schedule_overdue_seconds", "gauge", ("schedule",),
    "For how long a run is due and has not begun; 0 where none is due, and of a paused schedule.",
)  # fmt: skip

ASYNC_ENDS: Final = ("completed", "failed", "expired")
ASYNC_ENDED: Final = PrometheusMetric(
    "penstock_async_requests_ended", "counter", ("endpoint", "outcome"),
    "Asynchronous requests that have ended since the server began, by outcome: completed, failed, "
    "expired.",
)  # fmt: skip
ASYNC_BACKLOG: Final = PrometheusMetric(
    "penstock_async_backlog", "gauge", ("endpoint",),
    "Asynchronous requests that have no outcome yet, those under way included.",
)  # fmt: skip
ASYNC_AGE: Final = PrometheusMetric(
    "penstock_async_oldest_seconds", "gauge", ("endpoint",),
    "Since the oldest of them was accepted; 0 where there is none.",
)  # fmt: skip
NOTIFICATION_TRIES: Final = ("delivered", "failed", "given-up")
NOTIFICATIONS: Final = PrometheusMetric(
    "penstock_notifications", "counter", ("outcome",),
    "Tries to deliver a notification, by outcome: delivered, failed (it is tried again), given-up.",
)  # fmt: skip

DATABASE_ERRORS: Final = PrometheusMetric(
    "penstock_database_errors", "counter", ("code",),
    "Calls of the database that failed by its fault, by error code: database-unreachable, "
    "state-not-writable, state-busy, database-error.",
)  # fmt: skip
DATABASE_UP: Final = PrometheusMetric(
    "penstock_database_up", "gauge", (), "1 while the last call of the database succeeded, else 0."
)
DATABASE_SECONDS: Final = PrometheusMetric(
    "penstock_database_call_seconds", "histogram", (),
    "Calls of the database, their wait for a turn included.", _DATABASE_EDGES_S,
)  # fmt: skip
LEADER_EPOCH: Final = PrometheusMetric(
    "penstock_leader_epoch", "gauge", (),
    "The number of the term of the server that leads; it rises whenever the lead changes. Only on "
    "the page of a leader of several servers.",
)  # fmt: skip
LEADER_BEAT: Final = PrometheusMetric(
    "penstock_leader_beat_age_seconds", "gauge", (),
    "Since the leader last told the database that it lives. On the same page.",
)  # fmt: skip

PROMETHEUS: Final = (
    JOBS_ENDED, JOBS, JOB_AGE, RUNS_ENDED, SCHEDULE_FAILING, SCHEDULE_SUCCESS, SCHEDULE_OVERDUE,
    ASYNC_ENDED, ASYNC_BACKLOG, ASYNC_AGE, NOTIFICATIONS, DATABASE_ERRORS, DATABASE_UP,
    DATABASE_SECONDS, LEADER_EPOCH, LEADER_BEAT,
)  # fmt: skip

"""Rows of a server's other work: there before anything happens, and gone with what they name."""

from __future__ import annotations

from tests.kit.metrics_page import shown

from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.work_counts import WorkCounts

T0 = 1_700_000_000.0


def test_a_first_failure_is_an_increase() -> None:
    counts = WorkCounts()
    ended = catalogue.JOBS_ENDED
    assert shown(counts, ended.name) == {("completed",): 0.0, ("failed",): 0.0, ("stopped",): 0.0}
    counts.count(ended, "failed")
    assert shown(counts, ended.name)["failed",] == 1.0


def test_rows_of_what_is_gone_leave_once_they_were_scraped() -> None:
    counts = WorkCounts()
    ended = catalogue.RUNS_ENDED
    counts.keep(ended, ["nightly", "hourly"], ["failed"], T0)
    counts.count(ended, "nightly", "failed")
    both = {("nightly", "failed"): 1.0, ("hourly", "failed"): 0.0}
    assert shown(counts, ended.name) == both
    counts.keep(ended, ["hourly"], ["failed"], T0 + 1)
    counts.keep(ended, ["hourly"], ["failed"], T0 + KEPT_S)
    assert shown(counts, ended.name) == both
    counts.keep(ended, ["hourly"], ["failed"], T0 + 1 + KEPT_S)
    assert shown(counts, ended.name) == {("hourly", "failed"): 0.0}
    counts.keep(ended, ["hourly", "nightly"], ["failed"], T0 + 60)  # another of its name
    assert shown(counts, ended.name)["nightly", "failed"] == 0.0


def test_one_name_in_two_families_is_two() -> None:
    counts = WorkCounts()
    for metric in (catalogue.RUNS_ENDED, catalogue.ASYNC_ENDED):
        counts.keep(metric, ["a"], ["failed"], T0)
    for at in (T0, T0 + KEPT_S):
        counts.keep(catalogue.RUNS_ENDED, ["a"], ["failed"], at)
        counts.keep(catalogue.ASYNC_ENDED, [], ["failed"], at)
    assert shown(counts, catalogue.RUNS_ENDED.name) == {("a", "failed"): 0.0}
    assert shown(counts, catalogue.ASYNC_ENDED.name) == {}


def test_a_database_is_up_while_its_last_call_succeeded() -> None:
    counts = WorkCounts()
    assert shown(counts, "penstock_database_up") == {}
    counts.database_called(0.002, "")
    assert shown(counts, "penstock_database_up") == {(): 1.0}
    counts.database_called(1.5, "database-unreachable")
    assert shown(counts, "penstock_database_up") == {(): 0.0}
    assert shown(counts, "penstock_database_errors") == {("database-unreachable",): 1.0}
    seconds = shown(counts, "penstock_database_call_seconds")
    assert (seconds["0.0025",], seconds["+Inf",]) == (1.0, 2.0)

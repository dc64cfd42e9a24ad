"""Utilization of the instances of transform jobs, as CloudWatch names it."""

from __future__ import annotations

from penstock.metrics.series.series import metric_key
from penstock.metrics.utilization.job_metrics import job_metrics


def test_the_host_is_the_jobs_name_and_the_instance() -> None:
    host = {"Host": "nightly/i-1"}
    space = "/aws/sagemaker/TransformJobs"
    assert job_metrics("nightly", "i-1", cpu_percent=150.0, memory_percent=20.0) == [
        (metric_key(space, "CPUUtilization", host, "Percent"), 150.0),
        (metric_key(space, "MemoryUtilization", host, "Percent"), 20.0),
    ]


def test_what_was_not_measured_is_not_published() -> None:
    (only,) = job_metrics("nightly", "i-1", cpu_percent=None, memory_percent=20.0)
    assert only[0].name == "MemoryUtilization"
    assert job_metrics("nightly", "i-1", cpu_percent=None, memory_percent=None) == []

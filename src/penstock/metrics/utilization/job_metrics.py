"""Utilization of the instances of transform jobs, under CloudWatch's names."""

from __future__ import annotations

from typing import Final

from penstock.metrics.series.series import MetricKey, metric_key

_JOBS: Final = "/aws/sagemaker/TransformJobs"


def job_metrics(
    job: str, instance_id: str, *, cpu_percent: float | None, memory_percent: float | None
) -> list[tuple[MetricKey, float]]:
    """The datapoints of one measurement; None: not measured.

    Args:
        cpu_percent: 0 to 100 times the cores.
        memory_percent: 0 to 100.
    """
    host = {"Host": f"{job}/{instance_id}"}
    values = {"CPUUtilization": cpu_percent, "MemoryUtilization": memory_percent}
    return [
        (metric_key(_JOBS, name, host, "Percent"), value)
        for name, value in values.items()
        if value is not None
    ]

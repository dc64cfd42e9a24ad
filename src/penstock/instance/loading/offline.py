"""What is different for a copy that belongs to a job: nobody waits for one answer, all wait for the
last.

A lane for each core with a thread of its own wastes no time in waiting for other threads; online,
where one answer is wanted soon, the description's lanes hold. Nor do graphs of one shape come into
being while a copy runs (`runtimes.openvino_shapes`): they depend on what came when, and a span that
is done again must give the same bytes.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Final

from penstock.artifacts.description.description import ModelDescription

#: Endpoints' names have no slash.
_JOBS: Final = "transform-job/"
_RUNTIMES: Final = ("openvino", "onnxruntime")


def of_job(endpoint: str) -> bool:
    """Whether what is loaded for an endpoint of this name does offline work."""
    return endpoint.startswith(_JOBS)


def for_throughput(description: ModelDescription, cores: float) -> ModelDescription:
    """`cores`: of the instance; it may run on fewer than it was given."""
    if description.runtime not in _RUNTIMES or description.task == "text2text-generation":
        return description
    lanes = max(1, min(int(cores), len(os.sched_getaffinity(0))))
    return dataclasses.replace(description, lanes=lanes, threads_per_lane=1, pinned=False)

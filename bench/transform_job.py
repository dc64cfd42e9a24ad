"""Transform jobs of a real server, as bench/transform.py asks for them and watches them."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.machine import memory_bytes
from bench.processes import post

_LOOK_S: Final = 0.2
#: Of a job's records, at which memory is looked at: at its end the instance is gone.
SHARES: Final = (0.1, 0.5, 0.95)
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that has ended well."""

    records: int
    wall_s: float  #: from CreateTransformJob to the end that DescribeTransformJob tells
    running_s: float  #: from the first look at which something was written to the end
    running_records: int  #: written in that time
    #: share of the records that was done -> memory of the server and all its processes, in bytes
    memory: dict[float, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records/s."""
        return self.records / self.wall_s

    @property
    def running_rate(self) -> float:
        return self.running_records / self.running_s


class Site:
    """`pid`: of the server."""

    def __init__(self, url: str, pid: int, instance_type: str) -> None:
        self._url = url
        self._pid = pid
        self._instance_type = instance_type

    def model(self, name: str, artifact: Path) -> None:
        self._call(
            "CreateModel",
            ModelName=name,
            PrimaryContainer={"ModelDataUrl": artifact.as_uri()},
            ExecutionRoleArn="arn:aws:iam::123456789012:role/bench",
        )

    def job(self, model: str, source: Path, out: Path, *, records: int) -> Ran:
        """Runs it to its end. Raises RuntimeError for any end but Completed."""
        name = f"bench-{next(_numbers)}"
        begun = time.perf_counter()
        self._call(
            "CreateTransformJob",
            TransformJobName=name,
            ModelName=model,
            TransformInput={
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source.as_uri()}
                },
                "ContentType": "application/jsonlines",
                "SplitType": "Line",
            },
            TransformOutput={
                "S3OutputPath": out.as_uri(),
                "Accept": "application/jsonlines",
                "AssembleWith": "Line",
            },
            TransformResources={"InstanceType": self._instance_type, "InstanceCount": 1},
        )
        return self._watched(name, records, begun)

    def _watched(self, name: str, records: int, begun: float) -> Ran:
        first: tuple[float, int] | None = None
        memory: dict[float, int] = {}
        while True:
            described = self._call("DescribeTransformJob", TransformJobName=name)
            now, status = time.perf_counter(), described["TransformJobStatus"]
            done = described["PenstockProgress"]["Records"]
            if first is None and done:
                first = (now, done)
            for share in SHARES:
                if share not in memory and done >= share * records:
                    memory[share] = memory_bytes(self._pid)["pss"]
            if status == "Completed":
                break
            if status != "InProgress":
                raise RuntimeError(f"{name} is {status}: {described.get('FailureReason')}")
            time.sleep(_LOOK_S)
        at, before = first or (begun, 0)
        return Ran(
            records=done,
            wall_s=now - begun,
            running_s=now - at,
            running_records=done - before,
            memory=memory,
        )

    def _call(self, operation: str, **members: Any) -> dict[str, Any]:
        headers = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        answer = post(self._url, json.dumps(members).encode(), timeout_s=60.0, headers=headers)
        return dict(json.loads(answer)) if answer else {}

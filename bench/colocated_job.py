"""The transform job that `bench colocated` runs beside an endpoint, and how it is held still."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3

from bench.machine import guests_of
from bench.processes import post

#: Of the job: how often it is asked how far it is. Each answer takes the server's loop some 4 ms,
#: and is in the P99 of whoever comes then.
LOOK_EVERY_S = 2.0
#: Without the SDK, which leaves out what AWS has no name for.
_DESCRIBE = {
    "Content-Type": "application/x-amz-json-1.1",
    "X-Amz-Target": "SageMaker.DescribeTransformJob",
}
_PATIENCE_S = 60.0


class Jobs:
    """Transform jobs over the same records."""

    def __init__(self, base_url: str, model: str, records: Path, instances: int) -> None:
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        self._client = boto3.client(
            "sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys
        )
        self._base_url = base_url
        self._model = model
        self._records = records
        self._instances = instances
        self._count = 0

    def create(self) -> str:
        self._count += 1
        name = f"job-{self._count}"
        output = (self._records.parent / name).as_uri()
        self._client.create_transform_job(
            TransformJobName=name,
            ModelName=self._model,
            TransformInput={
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": self._records.as_uri(),
                    }
                },
                "ContentType": "text/plain",
                "SplitType": "Line",
            },
            TransformOutput={
                "S3OutputPath": output,
                "Accept": "application/jsonlines",
                "AssembleWith": "Line",
            },
            TransformResources={
                "InstanceType": "ml.local.small",
                "InstanceCount": self._instances,
            },
        )
        return name

    def records(self, name: str) -> int:
        """That are done. Raises RuntimeError for a job that does not run."""
        body = json.dumps({"TransformJobName": name}).encode()
        told = json.loads(post(self._base_url, body, headers=_DESCRIBE))
        if told["TransformJobStatus"] != "InProgress":
            raise RuntimeError(f"{told['TransformJobStatus']}: {told.get('FailureReason')}")
        progress: dict[str, Any] = told["PenstockProgress"]
        if progress["RefusedRecords"]:
            raise RuntimeError(f"{name}: the model answers none of {progress['RefusedRecords']}")
        return int(progress["Records"])

    def wait_begun(self, name: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not self.records(name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} has done nothing for {_PATIENCE_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def stop(self, name: str) -> None:
        self._client.stop_transform_job(TransformJobName=name)
        waiter = self._client.get_waiter("transform_job_completed_or_stopped")
        waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})

    @contextlib.contextmanager
    def speed(
        self, name: str, into: list[float], clock: Callable[[], float] = time.monotonic
    ) -> Iterator[None]:
        """Records/s while the block runs, between the first and the last time that it got on, in
        seconds of `clock`."""
        seen: list[tuple[float, int]] = []
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY_S):
                done = self.records(name)
                if not seen or done != seen[-1][1]:
                    seen.append((clock(), done))

        with ThreadPoolExecutor(1) as looking:
            told = looking.submit(look)
            try:
                yield
            finally:
                over.set()
        told.result()
        seen = seen[1:]  # the first look is not the moment at which it got there
        if len(seen) < 2:
            raise RuntimeError(f"{name} got on {len(seen)} times: too seldom for its speed")
        (began, first), (ended, last) = seen[0], seen[-1]
        into.append((last - first) / (ended - began))


class Guests:
    """The processes of a job, held still between two turns of it, as if it were not there: what is
    left of it takes memory, and no processor."""

    def __init__(self, server_pid: int) -> None:
        """RuntimeError where there are none."""
        self._pids = guests_of(server_pid)
        if not self._pids:
            raise RuntimeError("the job has no process under SCHED_IDLE: nothing can be held still")
        self._ran_s = 0.0
        self._since: float | None = time.perf_counter()

    def hold(self) -> None:
        if self._since is not None:
            self._signal(signal.SIGSTOP)
            self._ran_s, self._since = self.ran_s(), None

    def go_on(self) -> None:
        if self._since is None:
            self._signal(signal.SIGCONT)
            self._since = time.perf_counter()

    def ran_s(self) -> float:
        """Since they were first seen."""
        since = self._since
        return self._ran_s + (time.perf_counter() - since if since is not None else 0.0)

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

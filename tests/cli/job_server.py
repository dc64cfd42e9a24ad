"""A control plane with one transform job that goes on with each look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kit.http_servers import Reply, SeenRequest, answering


def progress(**members: Any) -> dict[str, Any]:
    """PenstockProgress, half through unless said otherwise."""
    return {
        "Spans": 2,
        "SpansDone": 1,
        "Records": 5_000,
        "RefusedRecords": 0,
        "BytesIn": 50,
        "BytesTotal": 100,
        "RecordsPerSecond": 1250.4,
        "EtaSeconds": 65.0,
        "CostSoFar": 0.0123,
        "Instances": 2,
    } | members


class JobServer:
    """Answers SageMaker's calls about jobs; `looks` are Describe's answers, the last one stays."""

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self.runs: list[dict[str, Any]] = []  #: of a schedule, as of each look
        self.posted: list[bytes] = []  #: bodies of what the admin API was asked to do

    def admin(self) -> dict[str, Any]:
        """A run that is asked for, and then how it goes on."""
        run = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
        return run | {"runs": [run]}

    def say(self, status: str, reason: str = "", **members: Any) -> None:
        told = {
            "TransformJobName": "j",
            "TransformJobStatus": status,
            "TransformOutput": {"S3OutputPath": "file:///out"},
            "PenstockProgress": progress(**members),
        }
        self.looks.append(told | ({"FailureReason": reason} if reason else {}))

    def operations(self) -> list[str]:
        return [operation for operation, _ in self.asked]

    def answer(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((operation, members))
        if operation == "StopTransformJob":
            self.looks.clear()
            self.say("Stopping")
            self.say("Stopped")
        if operation == "DescribeTransformJob":
            return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if operation == "ListTransformJobs":
            return {
                "TransformJobSummaries": [
                    {"TransformJobName": "j", "TransformJobStatus": "Failed", "CreationTime": 1.0,
                     "TransformEndTime": 2.0, "FailureReason": "it broke"}
                ]
            }  # fmt: skip
        return {}


@contextmanager
def serving() -> Iterator[JobServer]:
    server = JobServer()

    def answer(seen: SeenRequest) -> Reply:
        if seen.method == "POST" and not seen.path.startswith("/admin/"):
            operation = seen.headers["x-amz-target"].partition(".")[2]
            told = server.answer(operation, json.loads(seen.body))
        else:
            server.posted += [seen.body] if seen.method == "POST" else []
            told = server.admin()
        return 200, {}, json.dumps(told).encode()

    with answering(answer) as server.url:
        yield server

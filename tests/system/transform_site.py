"""A real server with small models and data, for tests of transform jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.harness import Server, wait_until

#: Of the model `affine`: four numbers a row; y = x @ weights.
GOOD, BAD = "1,2,3,4", "1,2,3"
ANSWER = "30.0,35.0,40.0"


@dataclass
class TransformSite:
    """One server, and a folder that it knows as the bucket `data`, too."""

    server: Server
    folder: Path

    def put(self, key: str, lines: list[str]) -> str:
        """An object of lines; its URI."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path.as_uri()

    def uri(self, key: str) -> str:
        return (self.folder / key).as_uri()

    def model(self, name: str, folder: Path, **environment: str) -> None:
        self.server.client("sagemaker").create_model(
            ModelName=name,
            PrimaryContainer={"ModelDataUrl": folder.as_uri(), "Environment": environment},
        )

    def request(self, job: str, model: str, source: str, **members: Any) -> dict[str, Any]:
        """Of CreateTransformJob: lines of CSV to lines of CSV, below `out/<job>`."""
        return {
            "TransformJobName": job,
            "ModelName": model,
            "TransformInput": {
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source}},
                "ContentType": "text/csv",
                "SplitType": "Line",
            },
            "TransformOutput": {
                "S3OutputPath": self.uri(f"out/{job}"),
                "Accept": "text/csv",
                "AssembleWith": "Line",
            },
            "TransformResources": {"InstanceType": "ml.local.small", "InstanceCount": 1},
        } | members

    def begin(self, job: str, model: str, source: str, **members: Any) -> None:
        self.server.client("sagemaker").create_transform_job(
            **self.request(job, model, source, **members)
        )

    def describe(self, job: str) -> dict[str, Any]:
        """With the member that boto3 does not know."""
        status, body = self.server.post(
            "/",
            json.dumps({"TransformJobName": job}).encode(),
            {
                "X-Amz-Target": "SageMaker.DescribeTransformJob",
                "Content-Type": "application/x-amz-json-1.1",
            },
        )
        assert status == 200, body
        described: dict[str, Any] = json.loads(body)
        return described

    def ended(self, job: str, *, seconds: float = 300) -> dict[str, Any]:
        def settled() -> dict[str, Any] | None:
            described = self.describe(job)
            going = described["TransformJobStatus"] in ("InProgress", "Stopping")
            return None if going else described

        found: dict[str, Any] = wait_until(settled, seconds=seconds, what=f"the end of {job}")
        return found

    def outputs(self, job: str) -> dict[str, str]:
        """What lies at the output location, by key."""
        top = self.folder / "out" / job
        files = sorted(path for path in top.rglob("*") if path.is_file())
        return {path.relative_to(top).as_posix(): path.read_text() for path in files}

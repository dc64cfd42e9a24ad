"""Transform jobs: on a real server with a model and data, and a driver for the front door alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.servers import Server, up

from penstock.core.jobs.spec import TransformSpec
from penstock.errors import PenstockError
from penstock.jobs.transform.records import JobRecord

MadeSite = TypeVar("MadeSite", bound="TransformSite")

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
        self.server.model(name, folder, Environment=environment)

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
        status, body = self.server.sagemaker("DescribeTransformJob", TransformJobName=job)
        assert status == 200, body
        described: dict[str, Any] = json.loads(body)
        return described

    def ended(self, job: str, *, seconds: float = 300) -> dict[str, Any]:
        def settled() -> dict[str, Any] | None:
            described = self.describe(job)
            going = described["TransformJobStatus"] in ("InProgress", "Stopping")
            return None if going else described

        found: dict[str, Any] = wait_until(settled, f"the end of {job}", seconds)
        return found

    def outputs(self, job: str) -> dict[str, str]:
        """What lies at the output location, by key."""
        return self.below(f"out/{job}")

    def below(self, folder: str) -> dict[str, str]:
        top = self.folder / folder
        files = sorted(path for path in top.rglob("*") if path.is_file())
        return {path.relative_to(top).as_posix(): path.read_bytes().decode() for path in files}


@contextmanager
def transform_site(
    top: Path, *flags: str, made: type[MadeSite] = TransformSite
) -> Iterator[MadeSite]:
    """A server of its own, with `affine` as a model; it has to end well."""
    (top / "data").mkdir(exist_ok=True)
    with up(top, *flags) as server:
        site = made(server, top / "data")
        site.model("affine", model_files.affine(top / "affine"))
        yield site


class FakeTransformDriver:
    """Where the driver of transform jobs is asked and rung, for tests of the front door alone. It
    finds nothing wrong with a job, unless there is a `fault`."""

    def __init__(self) -> None:
        self.checked: list[TransformSpec] = []
        self.rung: list[str] = []
        self.fault: PenstockError | None = None

    async def check(self, spec: TransformSpec) -> None:
        self.checked.append(spec)
        if self.fault is not None:
            raise self.fault

    def notify(self, job: str) -> None:
        self.rung.append(job)

    def progress(self, record: JobRecord) -> dict[str, Any]:
        return {"Records": record.totals.records}

"""A span as a job's driver asks for it, and what its part holds, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.kit.instances import FrameClient

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    LINE,
    InputObject,
    Span,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.records.objects.objects import list_objects
from penstock.records.output import assemble


@dataclass(frozen=True)
class SpanJob:
    """A job over one file of lines."""

    folder: Path
    spec: TransformSpec
    name: str = "j"

    @property
    def one(self) -> InputObject:
        (one,) = list_objects(self.spec.input, ArtifactSettings())
        return one

    @property
    def whole(self) -> Span:
        return Span(object=0, number=0, start=0, stop=self.one.size)

    def with_(self, **fields: Any) -> SpanJob:
        return replace(self, spec=replace(self.spec, **fields))

    def call(self, copy: int, span: Span | None = None) -> dict[str, Any]:
        return {
            "op": "transform",
            "copy": copy,
            "job": self.name,
            "spec": asdict(self.spec),
            "object": asdict(self.one),
            "span": asdict(span or self.whole),
            "parts_uri": f"file://{self.folder / 'parts'}",
            "settings": {},
        }

    def run(self, client: FrameClient, copy: int, span: Span | None = None) -> dict[str, Any]:
        return client.control(**self.call(copy, span))

    def outputs(self, spans: Iterable[Span] = ()) -> list[str]:
        """Lines of the object's output, put together from committed parts."""
        assemble(
            self.one,
            list(spans) or [self.whole],
            f"file://{self.folder / 'parts'}",
            self.spec.output,
            ArtifactSettings(),
        )
        return (self.folder / "out" / f"{self.one.key}.out").read_text().splitlines()

    def refused(self) -> list[dict[str, Any]]:
        """After `outputs`."""
        file = self.folder / "out" / f"{self.one.key}.errors"
        return [json.loads(line) for line in file.read_text().splitlines()]


def lines_job(
    folder: Path,
    lines: Iterable[str],
    *,
    content_type: str = "application/json",
    accept: str = "",
    **fields: Any,
) -> SpanJob:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.jsonl").write_text("".join(f"{line}\n" for line in lines))
    spec = TransformSpec(
        job="j",
        model=ModelSource(model_name="m"),
        instance_type="ml.m5.large",
        instance_count=1,
        input=TransformInput(
            uri=f"file://{folder / 'data.jsonl'}", split=LINE, content_type=content_type
        ),
        output=TransformOutput(uri=f"file://{folder / 'out'}", assemble=LINE, accept=accept),
        **fields,
    )
    return SpanJob(folder, spec)

"""What a captured job's lists say of where its objects were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    InputObject,
    TransformCapture,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.jobs.transform.captured import put_manifests

BEGAN = 1_661_518_799.0  #: 2022-08-26, 12:59:59 UTC


def listed(folder: Path, asked: str, uri: str, key: str, **buckets: str) -> tuple[object, object]:
    """What is listed of a job that was asked to read `asked`, and read one object."""
    spec = TransformSpec(
        job="j", model=ModelSource(model_name="m"), instance_type="ml.m5.large", instance_count=1,
        input=TransformInput(uri=asked), output=TransformOutput(uri="s3://b/out/"),
        capture=TransformCapture(uri=folder.as_uri()),
    )  # fmt: skip
    one = InputObject(number=0, key=key, uri=uri, size=1, stamp="")
    put_manifests(spec, [one], ArtifactSettings(s3_local=buckets), began=BEGAN)
    hour = Path("2022/08/26/12/j.jsonl")
    read, written = (json.loads((folder / at / hour).read_text()) for at in ("input", "output"))
    return read, written


@pytest.mark.parametrize(
    ("asked", "uri", "key", "prefix"),
    [
        ("s3://b/in/", "s3://b/in/deep/a.csv", "deep/a.csv", "s3://b/in/"),
        ("s3://b/in/part-", "s3://b/in/part-1.csv", "part-1.csv", "s3://b/in/"),
        ("file:///in", "file:///in/a%20b.csv", "a b.csv", "file:///in/"),
        # A bucket that is a folder of this machine.
        ("s3://b/in", "file:///buckets/b/in/a%20b.csv", "a b.csv", "s3://b/in/"),
        ("s3://b", "file:///buckets/b/a.csv", "a.csv", "s3://b/"),
        # A manifest in one bucket may name objects in another, and of this machine.
        ("s3://c/list.json", "file:///buckets/b/in/a.csv", "a.csv", "s3://b/in/"),
        ("s3://c/list.json", "file:///elsewhere/a.csv", "a.csv", "file:///elsewhere/"),
        # What a URL was signed with is a secret.
        ("https://x", "https://me:pw@host:8443/d/a%20b.csv?sig=1#x", "a b.csv", "https://host:8443/d/"),
    ],
)  # fmt: skip
def test_an_object_is_listed_below_what_its_owner_calls_its_folder(
    tmp_path: Path, asked: str, uri: str, key: str, prefix: str
) -> None:
    assert listed(tmp_path, asked, uri, key, b="/buckets/b", c="/buckets/c") == (
        [{"prefix": prefix}, key],
        [{"prefix": "s3://b/out/"}, f"{key}.out"],
    )

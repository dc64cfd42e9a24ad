"""What of a CreateModel request reaches the instance that loads the model."""

from __future__ import annotations

import pytest

from penstock.api.sagemaker.containers import model_source
from penstock.control.instances.copy_operations import load_request
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.core.deployment.capacity_spec import ComponentCopiesSpec
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType
from penstock.wire.aws.errors import AwsError


def model(**source: str) -> dict[str, object]:
    return {
        "ModelName": "m",
        "PrimaryContainer": {"ModelDataSource": {"S3DataSource": source}},
    }


@pytest.mark.parametrize(("kind", "compressed"), [("Gzip", True), ("None", False)])
def test_the_compression_type_says_whether_an_archive_is_unpacked(
    kind: str, compressed: bool
) -> None:
    made = model_source(model(S3Uri="s3://b/m.tar.gz", S3DataType="S3Object", CompressionType=kind))
    assert made.compressed is compressed
    entry = InstanceEntry(
        instance_id="i-1",
        variant="all",
        generation=1,
        ordinal=0,
        kind=InstanceType(
            name="ml.local.small", resources=ComputeResources(cores=1.0, memory_bytes=2**30)
        ),
        phase="running",
        since=None,
    )
    copy = CopyEntry(
        copy=1,
        instance_id="i-1",
        variant="all",
        generation=1,
        component=ComponentCopiesSpec(name="all", model=made, copies=1),
        ordinal=0,
        phase="loading",
        since=None,
    )
    assert load_request("shop", entry, copy)["source"]["compressed"] is compressed


def test_a_bare_url_leaves_it_to_the_file() -> None:
    container = {"ModelDataUrl": "s3://b/m.tar.gz"}
    assert model_source({"ModelName": "m", "PrimaryContainer": container}).compressed is None


@pytest.mark.parametrize("member", ["ManifestS3Uri", "ETag", "ManifestEtag"])
def test_what_chooses_other_files_is_refused_by_its_name(member: str) -> None:
    given = model(S3Uri="s3://b/m/", S3DataType="S3Prefix", CompressionType="None", **{member: "x"})
    with pytest.raises(AwsError, match=rf"ModelDataSource\.S3DataSource\.{member} is not supp"):
        model_source(given)

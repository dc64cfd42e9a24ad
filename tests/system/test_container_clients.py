"""What people type for their own images: the SageMaker SDK v2 and v3 and boto3, unmodified, with
real containers."""

from __future__ import annotations

import io
import tarfile

import pytest
from tests.kit.container_images import containers_of_server, engine, image
from tests.kit.polling import wait_until
from tests.system.test_clients import SCRIPTS
from tests.system.test_clients_sagemaker_sdk import (
    SECONDS_MAX,
    V2,
    V3,
    SdkSite,
    printed,
    s3_url,
    site,
)

__all__ = ["s3_url", "site"]

pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(SECONDS_MAX)]

ROLE = "arn:aws:iam::123456789012:role/any"


@pytest.fixture(scope="module", autouse=True)
def there_is_an_engine() -> None:
    engine()


@pytest.fixture(scope="module")
def bucket(site: SdkSite) -> str:
    weights = io.BytesIO()
    with tarfile.open(fileobj=weights, mode="w:gz") as archive:
        member = tarfile.TarInfo("weights")
        member.size = 7
        archive.addfile(member, io.BytesIO(b"of ours"))
    (site.folder / "one.tar.gz").write_bytes(weights.getvalue())
    s3 = site.s3()
    s3.create_bucket(Bucket="images")
    s3.put_object(Bucket="images", Key="one.tar.gz", Body=weights.getvalue())
    s3.put_object(Bucket="images", Key="lists/a.jsonl", Body=b"[0]\n[7]\n")
    return "images"


def test_v2_serves_an_image_in_each_of_its_ways(site: SdkSite, bucket: str) -> None:
    told = printed(site.start(V2, SCRIPTS / "sagemaker_images.py", image(), bucket))
    assert told["one"] == {
        "files": {"weights": "of ours"}, "mine": "of ours", "listed": [1, 2], "job": "Completed",
    }  # fmt: skip
    written = site.s3().get_object(Bucket=bucket, Key="out/a.jsonl.out")["Body"].read()
    assert written == b"[0][7]"
    assert told["many"] == {
        "weights": ["of ours"] * 2, "listed": ["a.tar.gz", "b.tar.gz"],
    }  # fmt: skip
    assert told["row"]["body"] == "x"
    assert told["row"]["type"]["content-type"] == "application/json"
    assert told["named"] == ["b", "a"]
    wait_until(lambda: not containers_of_server(site.server.state_dir), "nothing left", 60)


def test_v3_serves_an_image_in_each_of_its_ways(site: SdkSite, bucket: str) -> None:
    told = printed(site.start(V3, SCRIPTS / "sagemaker_core_images.py", image(), bucket))
    of_one = {"files": {"weights": "of ours"}, "mine": "of ours"}
    assert told == {
        "one": of_one,
        "named": {
            "told": ["second", "first"], "mode": "Direct", "hostnames": ["first", "second"],
        },
        "row": "x",
        "built": of_one,
    }  # fmt: skip

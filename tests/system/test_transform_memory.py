"""Small files that say much: a job's instance holds a bounded part of what they come to."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.processes import Peaks
from tests.kit.python_models import python_model
from tests.kit.transform import TransformSite, transform_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

MIB = 2**20
#: Of an instance with all its processes. Python and the libraries for files have about a third.
PEAK_BYTES_MAX = 600 * MIB
ROWS = 2000
TEXT = "x" * 1_000_000

LENGTHS = """
    def model_fn(folder):
        return None

    def transform_fn(model, body, content_type, accept):
        return "".join(f"{len(line)}\\n" for line in body.splitlines()), accept
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformSite]:
    top = tmp_path_factory.mktemp("memory")
    with transform_site(top) as made:
        made.model("lengths", python_model(top / "lengths", LENGTHS))
        yield made


def begin(site: TransformSite, job: str, content_type: str, **members: Any) -> None:
    request = site.request(job, "lengths", site.uri(f"in/{job}"))
    request["TransformInput"] |= {"ContentType": content_type} | members
    if content_type == "application/x-parquet":
        request["TransformInput"]["SplitType"] = "None"
    site.server.client("sagemaker").create_transform_job(**request)


def within_bounds(peaks: Peaks, since: float) -> None:
    each = [f"{one / MIB:.0f}" for one in peaks.bytes.values()]
    print(
        f"{time.monotonic() - since:.1f} s; MiB: {', '.join(each)}; {len(peaks.instances)} started"
    )
    assert sum(peaks.bytes.values()) < PEAK_BYTES_MAX
    assert len(peaks.instances) == 1


def test_a_parquet_file_with_one_long_text_in_each_row(site: TransformSite) -> None:
    """Of some fifty kilobytes, which come to two gigabytes. It took 2.4 of them, and six
    instances, which ended for want of memory."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = site.folder / "in" / "parquet" / "a.parquet"
    path.parent.mkdir(parents=True)
    texts = arrow.DictionaryArray.from_arrays(arrow.array([0] * ROWS, arrow.int32()), [TEXT])
    parquet.write_table(arrow.table({"text": texts}), path)
    print(f"{path.stat().st_size} bytes")
    assert path.stat().st_size < 100_000
    since = time.monotonic()
    with Peaks(site.server.pid) as peaks:
        begin(site, "parquet", "application/x-parquet")
        ended = site.ended("parquet", seconds=400)
    assert ended["TransformJobStatus"] == "Completed", ended
    line = len(json.dumps({"text": TEXT}, separators=(",", ":")))
    assert site.outputs("parquet") == {"a.parquet.out": f"{line}\n" * ROWS}
    within_bounds(peaks, since)


def test_packed_lines_that_come_to_a_thousand_times_as_much(site: TransformSite) -> None:
    path = site.folder / "in" / "packed" / "a.jsonl.gz"
    path.parent.mkdir(parents=True)
    line = json.dumps({"text": "0" * 100_000}).encode()
    with gzip.open(path, "wb") as file:
        for _ in range(10):
            file.write((line + b"\n") * 1000)
    print(f"{path.stat().st_size} bytes")
    since = time.monotonic()
    with Peaks(site.server.pid) as peaks:
        begin(site, "packed", "application/jsonlines", CompressionType="Gzip")
        ended = site.ended("packed", seconds=400)
    assert ended["TransformJobStatus"] == "Completed", ended
    assert site.outputs("packed") == {"a.jsonl.gz.out": f"{len(line)}\n" * 10_000}
    within_bounds(peaks, since)


def test_one_packed_line_that_never_ends(site: TransformSite) -> None:
    """Its object is refused when the line is longer than a record may be."""
    path = site.folder / "in" / "endless" / "a.jsonl.gz"
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wb") as file:
        for _ in range(100):
            file.write(b"0" * 10_000_000)
    since = time.monotonic()
    with Peaks(site.server.pid) as peaks:
        begin(site, "endless", "application/jsonlines", CompressionType="Gzip")
        ended = site.ended("endless", seconds=400)
    assert ended["TransformJobStatus"] == "Failed", ended
    print(ended["FailureReason"])
    within_bounds(peaks, since)

"""What a job with a DataCaptureConfig leaves behind: lists of what it read and of what it wrote.

    <DestinationS3Uri>/input/yyyy/mm/dd/hh/<job>.jsonl    [{"prefix": "s3://b/in/"}, "a.csv"]
    <DestinationS3Uri>/output/yyyy/mm/dd/hh/<job>.jsonl   [{"prefix": "s3://b/out/"}, "a.csv.out"]

The hour is that of the job's begin, in UTC. Both have the form of a ManifestFile, so another job
can read what one has read, or written.
(docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-batch.html)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import orjson

from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject, TransformCapture, TransformOutput, TransformSpec
from penstock.records.output import check_writable, place_of


def check_capture(spec: TransformSpec, settings: ArtifactSettings) -> None:
    """Raises what `check_writable` raises."""
    if spec.capture is not None:
        check_writable(_as_output(spec.capture), settings)


def put_manifests(
    spec: TransformSpec,
    objects: Iterable[InputObject],
    settings: ArtifactSettings,
    *,
    began: float,
) -> None:
    """Writes both lists, for objects that have outputs. Idempotent.

    Raises what writing an output raises.
    """
    found = list(objects)
    if spec.capture is None or not found:
        return
    hour = datetime.fromtimestamp(began, UTC).strftime("%Y/%m/%d/%H")
    place = place_of(_as_output(spec.capture), settings)
    written = [f"{safe_path(one.key, where=spec.output.uri)}.out" for one in found]
    for folder, prefix, keys in (
        ("input", _prefix_of(spec, found[0], settings), [one.key for one in found]),
        ("output", f"{spec.output.uri.rstrip('/')}/", written),
    ):
        manifest = orjson.dumps([{"prefix": prefix}, *keys])
        place.put(f"{folder}/{hour}/{spec.job}.jsonl", [manifest + b"\n"])


def _prefix_of(spec: TransformSpec, one: InputObject, settings: ArtifactSettings) -> str:
    """What stands before an object's key, as its owner names it; the same for all objects of a
    job. Of https://, without what a presigned URL is signed with."""
    if one.uri[:5].lower().startswith("http"):
        url = urlsplit(one.uri)
        host = url.netloc.rpartition("@")[2]
        return f"{url.scheme}://{host}{url.path.rpartition('/')[0]}/"
    prefix = one.uri.removesuffix(one.key).removesuffix(quote(one.key))
    if not (prefix.startswith("file:") and spec.input.uri[:5].lower() == "s3://"):
        return prefix
    # A bucket that is a folder here: where it lies is no caller's business.
    path = Path(unquote(urlsplit(prefix).path))
    for bucket in settings.s3_local:
        folder = settings.local_bucket(bucket)
        for top in (folder, folder.resolve()) if folder is not None else ():
            if path.is_relative_to(top):
                below = path.relative_to(top).as_posix()
                return f"s3://{bucket}/" if below == "." else f"s3://{bucket}/{below}/"
    return prefix


def _as_output(capture: TransformCapture) -> TransformOutput:
    return TransformOutput(uri=capture.uri)

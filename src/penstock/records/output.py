"""Outputs of a job: `<key>.out` for each object, complete or missing, and `<key>.errors` beside it
where records were refused.

An object's errors are written before its output, so a reader of an output finds its errors too.
Repeating it does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.artifacts.files.paths import safe_path, shown
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import DataProcessing, InputObject, Span, TransformOutput, is_parquet
from penstock.errors import CallerError
from penstock.records.committed import Parts
from penstock.records.objects.places import canonical, place_of


def check_writable(output: TransformOutput, settings: ArtifactSettings) -> None:
    """Writes a test object, before any work of a job.

    Raises:
        CallerError: `output-unwritable`, `output-scheme`, `artifact-uri-invalid`.
        NotNowError: the network or the store failed.
    """
    place_of(output, settings).try_out()


def assemble(
    one: InputObject,
    spans: Iterable[Span],
    parts_uri: str,
    output: TransformOutput,
    settings: ArtifactSettings,
    *,
    processing: DataProcessing | None = None,
) -> None:
    """Puts an object's output together from the parts of all its spans.

    Args:
        processing: the job's; where Parquet is written, columns of the object are joined.

    Raises:
        CallerError: the output location fails (`output-unwritable`, `artifact-disk-full`), or an
            object changed whose columns are joined (`input-changed`).
        NotNowError: the network or the store failed; another try may succeed.
        InternalError: `part-missing`, `part-damaged`.
    """
    parts = Parts(parts_uri, spans)
    place = place_of(output, settings)
    name = safe_path(one.key, where=output.uri)
    if parts.refused():
        place.put(f"{name}.errors", parts.error_lines())
    else:
        place.remove(f"{name}.errors")  # left by an earlier job
    if is_parquet(output.accept):
        from penstock.records.formats.tables import table_pieces  # noqa: PLC0415 - an extra

        pieces = table_pieces(one, parts, processing or DataProcessing(), settings)
    else:
        pieces = parts.outputs()
    place.put(f"{name}.out", pieces)


def check_apart(
    objects: Iterable[InputObject], output: TransformOutput, settings: ArtifactSettings
) -> None:
    """Refuses outputs that would replace an object of the input, before any work of a job.

    Raises:
        CallerError: `output-over-input`.
    """
    listed = list(objects)
    place = place_of(output, settings)
    taken = {canonical(one.uri, settings): one.key for one in listed}
    for one in listed:
        for ending in (".out", ".errors"):
            over = taken.get(canonical(place.uri(one.key + ending), settings))
            if over is not None:
                raise CallerError(
                    "output-over-input",
                    f"the output of {shown(one.key)} would take the place of {shown(over)}, "
                    "which the job reads",
                    hint="Name another S3OutputPath.",
                )

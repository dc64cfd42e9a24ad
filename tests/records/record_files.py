"""Real data sets for the tests of this folder, and what reading them gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject, Span, TransformInput, cut
from penstock.errors import PenstockError
from penstock.records.formats.lines import RecordBlock
from penstock.records.objects.objects import list_objects
from penstock.records.reader import RecordReader

SETTINGS = ArtifactSettings()


def write(root: Path, files: dict[str, bytes]) -> str:
    """Writes files below `root`; its URI."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root.as_uri()


def one_object(root: Path, content: bytes, name: str = "data", **data: Any) -> tuple[
    InputObject, TransformInput
]:  # fmt: skip
    """An object with this content, as a job lists it."""
    write(root, {name: content})
    asked = TransformInput(uri=(root / name).as_uri(), **data)
    [one] = list_objects(asked, SETTINGS)
    return one, asked


def blocks_of(
    one: InputObject, span: Span, data: TransformInput, *, settings: ArtifactSettings = SETTINGS,
    **limits: Any,
) -> list[RecordBlock]:  # fmt: skip
    with closing(RecordReader(one, span, data, settings, **limits).blocks()) as blocks:
        return list(blocks)


def records_of(
    one: InputObject, data: TransformInput, *, span_bytes: int = 2**40, **limits: Any
) -> list[bytes]:
    """All records of an object, span after span."""
    return [
        record
        for span in cut([one], data, span_bytes)
        for block in blocks_of(one, span, data, **limits)
        for record in block.records
    ]


def error_of(call: Callable[[], object]) -> PenstockError:
    """The error that a call raises; fails the test if it raises none, or one without a remedy."""
    with pytest.raises(PenstockError) as caught:
        call()
    assert caught.value.code
    assert caught.value.message
    assert caught.value.hint
    return caught.value

"""Values of a job survive JSON, and rows of other versions are read."""

from __future__ import annotations

import json
from dataclasses import asdict

import msgspec
import pytest

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    DataProcessing,
    InputObject,
    Span,
    SpanDone,
    TransformInput,
    TransformOutput,
    TransformSpec,
)

SPEC = TransformSpec(
    job="nightly",
    model=ModelSource(model_name="m", uri="file:///m", environment=(("A", "1"), ("B", "ü"))),
    instance_type="ml.local",
    instance_count=2,
    input=TransformInput(uri="s3://b/in", split="Line", columns=("left", "right")),
    output=TransformOutput(uri="s3://b/out", assemble="Line"),
    processing=DataProcessing(input_filter="$.x", join="Input"),
    refused_max=None,
    unset=("strategy",),
)


@pytest.mark.parametrize(
    "value",
    [
        SPEC,
        InputObject(number=3, key="a b", uri="file:///a%20b", size=2**40, stamp='"e"'),
        Span(object=3, number=1, start=5, stop=9),
        SpanDone(object=3, span=1, records=4, refused=1, bytes_in=4, bytes_out=9, run_s=0.25),
    ],
)
def test_a_value_is_the_same_after_json(
    value: TransformSpec | InputObject | Span | SpanDone,
) -> None:
    assert msgspec.convert(json.loads(json.dumps(asdict(value))), type(value)) == value


def test_members_of_other_versions() -> None:
    """What an older one did not write has its default, what a newer one wrote is passed over."""
    members = asdict(SPEC) | {"colour": "red"}
    del members["refused_max"], members["processing"]
    read = msgspec.convert(members, TransformSpec)
    assert (read.refused_max, read.processing) == (0, DataProcessing())


def test_what_is_no_value_is_refused() -> None:
    for members in ({}, {"object": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(members, Span)

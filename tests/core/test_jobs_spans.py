"""How objects are cut into spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.jobs.spec import InputObject, Span, TransformInput, can_cut, cut, is_parquet


def an_object(size: int, number: int = 0, uri: str = "file:///d") -> InputObject:
    return InputObject(number=number, key="d", uri=uri, size=size, stamp="s")


LINES = TransformInput(uri="file:///d", split="Line")


def test_lines_are_cut_at_every_span_bytes() -> None:
    assert cut([an_object(7), an_object(3, 1)], LINES, 3) == (
        Span(object=0, number=0, start=0, stop=3),
        Span(object=0, number=1, start=3, stop=6),
        Span(object=0, number=2, start=6, stop=7),
        Span(object=1, number=0, start=0, stop=3),
    )


def test_an_empty_object_is_one_empty_span() -> None:
    for data in (LINES, TransformInput(uri="file:///d")):
        assert cut([an_object(0)], data, 3) == (Span(object=0, number=0, start=0, stop=0),)


@pytest.mark.parametrize(
    ("uri", "members", "expected"),
    [
        ("file:///d", {"split": "Line"}, True),
        ("s3://b/d", {"split": "Line"}, True),
        ("https://h/d", {"split": "Line"}, False),
        ("HTTP://h/d", {"split": "Line"}, False),
        ("file:///d", {"split": "Line", "compression": "Gzip"}, False),
        ("file:///d", {"split": "None"}, False),
        ("file:///d", {"split": "RecordIO"}, False),
        ("file:///d", {"split": "TFRecord"}, False),
        ("file:///d", {"content_type": "application/x-parquet"}, True),
        ("file:///d", {"content_type": "Application/vnd.apache.parquet; x=y"}, True),
        ("file:///d", {"content_type": "text/csv"}, False),
    ],
)
def test_only_what_can_be_entered_in_the_middle_is_cut(
    uri: str, members: dict[str, str], expected: bool
) -> None:
    data = TransformInput(uri=uri, **members)  # type: ignore[arg-type]
    one = an_object(7, uri=uri)
    assert can_cut(one, data) is expected
    assert len(cut([one], data, 3)) == (3 if expected else 1)


def test_a_span_has_a_byte_at_least() -> None:
    with pytest.raises(ValueError, match="span_bytes"):
        cut([an_object(7)], LINES, 0)


def test_what_is_parquet_is_told_by_the_content_type() -> None:
    assert is_parquet(" application/X-Parquet ")
    assert not is_parquet("application/x-parquet2")
    assert not is_parquet("")


@given(sizes=st.lists(st.integers(0, 100), max_size=5), span_bytes=st.integers(1, 40))
def test_spans_have_every_byte_once_and_no_more_than_asked(
    sizes: list[int], span_bytes: int
) -> None:
    objects = [an_object(size, number) for number, size in enumerate(sizes)]
    spans = cut(objects, LINES, span_bytes)
    for one in objects:
        own = [span for span in spans if span.object == one.number]
        assert [span.number for span in own] == list(range(len(own)))
        edges = [own[0].start, *(span.stop for span in own)]
        assert (edges[0], edges[-1]) == (0, one.size)
        assert [span.start for span in own] == edges[:-1]
        assert all(span.stop - span.start <= span_bytes for span in own)

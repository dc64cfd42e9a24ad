"""The JSONPath of filters: what each form means, and what is no path."""

from __future__ import annotations

from typing import Any

import pytest
from record_files import error_of

from penstock.records.json_path import NotThereError, parse

RECORD = {
    "id": 7,
    "features": [1, 2, 3],
    "a": {"x": 1, "y": 2},
    "rows": [{"s": 1, "t": [5]}, {"s": 2}],
    "a b": {"c.d": 4},
}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("$", RECORD, RECORD),
        (" $ ", 5, 5),
        ("$.id", RECORD, 7),
        ("$.a.x", RECORD, 1),
        ("$['id']", RECORD, 7),
        ('$["id"]', RECORD, 7),
        ("$.['id']", RECORD, 7),
        ("$['a b']['c.d']", RECORD, 4),
        ("$['id','features']", RECORD, {"id": 7, "features": [1, 2, 3]}),
        ("$['features', \"id\"]", RECORD, {"features": [1, 2, 3], "id": 7}),
        ("$['a]b'][\"it's\"]", {"a]b": {"it's": 1}}, 1),
        ("$['']", {"": 1}, 1),
        ("$[ 'id' , 'id' ]", RECORD, {"id": 7}),
        ("$.a.['x','y']", RECORD, {"x": 1, "y": 2}),
        ("$.features[0]", RECORD, 1),
        ("$.features[-1]", RECORD, 3),
        ("$.features.[-1]", RECORD, 3),
        ("$.features[0, -1]", RECORD, [1, 3]),
        ("$.features[1:]", RECORD, [2, 3]),
        ("$.features[:2]", RECORD, [1, 2]),
        ("$.features[1:2]", RECORD, [2]),
        ("$.features[:-1]", RECORD, [1, 2]),
        ("$.features[:]", RECORD, [1, 2, 3]),
        ("$.features[*]", RECORD, [1, 2, 3]),
        ("$.*", {"a": 1, "b": [2]}, [1, [2]]),
        ("$[*]", [3, 4], [3, 4]),
        ("$[0]", [3, 4], 3),
        ("$[-2]", [3, 4], 3),
        ("$[-2,1]", [3, 4], [3, 4]),
        ("$['a'].x", RECORD, 1),
        ("$.a.*", RECORD, [1, 2]),
        ("$.rows[*].s", RECORD, [1, 2]),
        ("$.rows[*].t", RECORD, [[5]]),
        ("$.rows[*].t[0]", RECORD, [5]),
        ("$.rows[0,1]['s','t']", RECORD, [{"s": 1, "t": [5]}, {"s": 2}]),
        ("$.rows[0]['s','t']", RECORD, {"s": 1, "t": [5]}),
        ("$[0,5:]", list("abcdefgh"), ["a", "f", "g", "h"]),
        ("$[1:]", ["a", "b"], ["b"]),
        ("$[0:]", [], []),
        ("$.ü", {"ü": 1}, 1),
    ],
)
def test_what_a_path_means(path: str, value: Any, expected: Any) -> None:
    """A path to one value gives it; names give an object; all else gives an array."""
    assert parse(path, "InputFilter").of(value) == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.gone", RECORD),
        ("$.*", 5),
        ("$[2]", [3, 4]),
        ("$[-3]", [3, 4]),
        ("$['id','gone']", RECORD),
        ("$.id.x", RECORD),
        ("$.id['x','y']", RECORD),
        ("$.id[0]", RECORD),
        ("$.id.*", RECORD),
        ("$.features[3]", RECORD),
        ("$.features[-4]", RECORD),
        ("$.features[0,3]", RECORD),
        ("$.features[3:]", RECORD),
    ],
)
def test_what_is_not_there_is_an_error(path: str, value: Any) -> None:
    with pytest.raises(NotThereError):
        parse(path, "InputFilter").of(value)


@pytest.mark.parametrize(
    "path",
    [
        *("", "id", "$id", "$.", "$..id", "$[", "$[]", "$['id'", "$[id]", "$[?(@.a)]", "$.a()"),
        *("$[1:2:3]", "$[0,'a']", "$['a',0]", "$[a:b]", "$['a','b'].c", "$[1e3]", "$[,]", "$ .a"),
        *("$[99999999999999999999]", "$.length()", "$.@", "$[--1]", "$['a',]", "$['a' 'b']"),
        *("$['a", "$['a',", "$[,'a']", "$.['a'].", "$[ ]", "$[0,x]", "$[1 2]"),
    ],
)
def test_what_is_no_path_of_the_subset_is_refused_by_name(path: str) -> None:
    error = error_of(lambda: parse(path, "OutputFilter"))
    assert (error.code, "OutputFilter" in error.message) == ("filter-invalid", True)


def test_only_the_root_alone_is_all_of_a_value() -> None:
    assert parse("$", "InputFilter").is_all
    assert not parse("$[0]", "InputFilter").is_all

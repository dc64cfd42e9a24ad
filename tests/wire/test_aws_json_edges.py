"""Values of JSON bodies at their edges, both ways, on shapes made for it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from botocore.model import ShapeResolver

from penstock.errors import InternalError
from penstock.wire.aws import json_values
from penstock.wire.aws.errors import AwsError

SHAPES = ShapeResolver(
    {
        "Text": {"type": "string"},
        "Character": {"type": "character"},
        "Flag": {"type": "boolean"},
        "Integer": {"type": "integer"},
        "Long": {"type": "long"},
        "Double": {"type": "double"},
        "Moment": {"type": "timestamp"},
        "IsoMoment": {"type": "timestamp", "timestampFormat": "iso8601"},
        "Blob": {"type": "blob"},
        "Any": {"type": "structure", "members": {}, "document": True},
        "List": {"type": "list", "member": {"shape": "Integer"}},
        "Two": {"type": "list", "member": {"shape": "Integer"}, "max": 2},
        "Map": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Integer"}},
        "TwoMap": {
            "type": "map",
            "key": {"shape": "Text"},
            "value": {"shape": "Integer"},
            "max": 2,
        },
        "Tree": {"type": "structure", "members": {"Inner": {"shape": "Tree"}}},
        "Lists": {"type": "list", "member": {"shape": "Lists"}},
        "Maps": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Maps"}},
        "Choice": {
            "type": "structure",
            "union": True,
            "members": {"A": {"shape": "Integer"}, "B": {"shape": "Text"}},
        },
        "Named": {
            "type": "structure",
            "members": {
                "A": {"shape": "Integer", "locationName": "a"},
                "H": {"shape": "Text", "location": "header", "locationName": "X-H"},
            },
        },
    }
)


def shape(name: str) -> Any:
    return SHAPES.get_shape_by_name(name)


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("Text", "", ""),
        ("Character", "x", "x"),
        ("Flag", False, False),
        ("Integer", -(2**31), -(2**31)),
        ("Integer", 2.0, 2),
        ("Long", 2**63 - 1, 2**63 - 1),
        ("Double", 3, 3.0),
        ("Double", "Infinity", math.inf),
        ("Double", "-Infinity", -math.inf),
        ("Moment", 1.5, 1.5),
        ("Moment", "1970-01-01T00:00:02Z", 2.0),
        ("Blob", "aGk=", b"hi"),
        ("Any", {"x": [1, None]}, {"x": [1, None]}),
        ("Any", 7, 7),
        ("List", [1, None, 2], [1, None, 2]),
        ("Two", [1, 2, 3, "not read"], [1, 2, 3]),
        ("Map", {"a": 1, "b": None}, {"a": 1, "b": None}),
        ("TwoMap", {"a": 1, "b": 2, "c": 3, "d": "not read"}, {"a": 1, "b": 2, "c": 3}),
        ("Choice", {"B": "x", "Other": 1}, {"B": "x"}),
        ("Choice", {"A": None, "B": "x"}, {"B": "x"}),
        ("Named", {"a": 1, "A": 2, "X-H": "y"}, {"A": 1, "H": "y"}),
    ],
)
def test_a_value_is_read_as_its_shape_says(name: str, value: Any, parsed: Any) -> None:
    got = json_values.parse(shape(name), value)
    assert (got, type(got)) == (parsed, type(parsed))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("Text", 1, "expected a string, found a number"),
        ("Text", True, "expected a string, found a boolean"),
        ("Flag", 1, "expected a boolean, found a number"),
        ("Flag", "true", "expected a boolean, found a string"),
        ("Integer", True, "expected an integer, found a boolean"),
        ("Integer", 1.5, "expected an integer, found a number"),
        ("Integer", math.inf, "expected an integer, found a number"),
        ("Integer", "1", "expected an integer, found a string"),
        ("Integer", 2**31, "expected an integer of 32 bits, found 2147483648"),
        ("Long", 2**63, "expected an integer of 64 bits, found 9223372036854775808"),
        ("Double", "1.5", "expected a number, found a string"),
        ("Double", True, "expected a number, found a boolean"),
        ("Double", [], "expected a number, found a list"),
        ("Moment", True, "expected a timestamp, found a boolean"),
        ("Moment", {}, "expected a timestamp, found an object"),
        ("Blob", 1, "expected base64, found a number"),
        ("List", {}, "expected a list, found an object"),
        ("List", "x", "expected a list, found a string"),
        ("Map", [], "expected an object, found a list"),
        ("Named", [], "expected an object, found a list"),
        ("Choice", {}, "expected exactly one member of the union, found 0 known ones"),
        ("Choice", {"A": 1, "B": "x"}, "expected exactly one member of the union, found 2 known"),
    ],
)
def test_what_is_not_of_its_kind_is_told(name: str, value: Any, told: str) -> None:
    with pytest.raises(AwsError) as caught:
        json_values.parse(shape(name), value, "Here")
    assert caught.value.message.startswith(f"At 'Here': {told}")


def test_the_place_of_what_is_wrong_is_its_path() -> None:
    for name, value, path in (
        ("List", [1, "x"], "At[1]"),
        ("Map", {"k" * 70: "x"}, f"At[{'k' * 64}]"),
        ("Named", {"a": "x"}, "At.A"),
    ):
        with pytest.raises(AwsError) as caught:
            json_values.parse(shape(name), value, "At")
        assert f"At {path!r}:" in caught.value.message


def test_members_that_travel_elsewhere_are_not_of_the_body() -> None:
    named = shape("Named")
    assert json_values.parse_members(named, {"a": 1, "X-H": "y"}, in_body_only=True) == {"A": 1}
    written = json_values.serialize_members(named, {"A": 1, "H": "y"}, in_body_only=True)
    assert written == {"a": 1}
    assert json_values.serialize_members(named, {"A": None, "H": "y"}) == {"X-H": "y"}


@pytest.mark.parametrize(("depth", "fits"), [(99, True), (100, True), (101, False)])
def test_a_body_nests_to_a_bound(depth: int, fits: bool) -> None:
    tree: dict[str, Any] = {}
    maps: dict[str, Any] = {}
    lists: list[Any] = []
    for _ in range(depth):
        tree, maps, lists = {"Inner": tree}, {"k": maps}, [lists]
    for name, value in (("Tree", tree), ("Maps", maps), ("Lists", lists)):
        if fits:
            json_values.parse(shape(name), value)
        else:
            with pytest.raises(AwsError, match="nests more than 100 levels"):
                json_values.parse(shape(name), value)


@pytest.mark.parametrize(("count", "fits"), [(10_000, True), (10_001, False)])
def test_a_list_without_a_bound_of_its_own_has_ours(count: int, fits: bool) -> None:
    for name, value in (("List", [1] * count), ("Map", {str(n): n for n in range(count)})):
        if fits:
            assert json_values.parse(shape(name), value) == value
        else:
            with pytest.raises(AwsError, match="at most 10000 items, found 10001"):
                json_values.parse(shape(name), value)


@pytest.mark.parametrize("body", [b"", b" \r\n\t"])
def test_no_body_is_an_empty_object(body: bytes) -> None:
    assert json_values.load(body) == {}


@pytest.mark.parametrize("body", [b"{", b"nul", b"\xff", b"{} {}", b"NaN"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(AwsError) as caught:
        json_values.load(body)
    assert (caught.value.code, caught.value.status) == ("SerializationException", 400)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("Text", "é", "é"),
        ("Text", 7, "7"),
        ("Text", chr(0xD800), "?"),
        ("Flag", True, True),
        ("Integer", 7, 7),
        ("Double", 2, 2.0),
        ("Double", math.nan, "NaN"),
        ("Double", -math.inf, "-Infinity"),
        ("Moment", 1.5, 1.5),
        ("IsoMoment", 1, "1970-01-01T00:00:01Z"),
        ("Blob", b"hi", "aGk="),
        ("Any", {"x": 1}, {"x": 1}),
        ("List", [1, None], [1, None]),
        ("Map", {chr(0xD800): 1}, {"?": 1}),
        ("Named", {"A": 1}, {"a": 1}),
        ("Named", None, None),
    ],
)
def test_a_value_is_written_as_its_shape_says(name: str, value: Any, written: Any) -> None:
    got = json_values.serialize(shape(name), value)
    assert (got, type(got)) == (written, type(written))


def test_a_member_that_a_shape_does_not_have_is_our_mistake() -> None:
    with pytest.raises(InternalError) as caught:
        json_values.serialize(shape("Named"), {"B": 1})
    assert caught.value.code == "unknown-result-member"

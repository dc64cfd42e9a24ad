"""Each constraint of a shape at its edge, on shapes made for it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from botocore.model import ShapeResolver

from penstock.wire.aws import patterns
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.validate import PATTERN_CHARS_MAX, validate


def shape_of(member: dict[str, Any], **more: dict[str, Any]) -> Any:
    """A structure with the one member `It`."""
    shapes = {"It": member, "Top": {"type": "structure", "members": {"It": {"shape": "It"}}}}
    return ShapeResolver(shapes | more).get_shape_by_name("Top")


def broken(shape: Any, value: Any) -> list[str]:
    """What is told of a value, "" where nothing is wrong, each without its beginning."""
    try:
        validate(shape, {"It": value})
    except AwsError as error:
        return error.message.partition(" detected: ")[2].split("; ")
    return []


LENGTH = "Member must have length {} than or equal to {}"
VALUE = "Member must have value {} than or equal to {}"


@pytest.mark.parametrize(
    ("member", "value", "told"),
    [
        ({"type": "string", "min": 2}, "ab", ""),
        ({"type": "string", "min": 2}, "a", LENGTH.format("greater", 2)),
        ({"type": "string", "min": 0}, "", ""),
        ({"type": "string", "max": 2}, "ab", ""),
        ({"type": "string", "max": 2}, "abc", LENGTH.format("less", 2)),
        ({"type": "string", "max": 0}, "", ""),
        ({"type": "string", "max": 0}, "a", LENGTH.format("less", 0)),
        ({"type": "blob", "min": 1, "max": 2}, b"", LENGTH.format("greater", 1)),
        ({"type": "blob", "min": 1, "max": 2}, b"ab", ""),
        ({"type": "blob", "min": 1, "max": 2}, b"abc", LENGTH.format("less", 2)),
        ({"type": "integer", "min": 0, "max": 5}, 0, ""),
        ({"type": "integer", "min": 0, "max": 5}, -1, VALUE.format("greater", 0)),
        ({"type": "long", "min": 0, "max": 5}, 5, ""),
        ({"type": "long", "min": 0, "max": 5}, 6, VALUE.format("less", 5)),
        ({"type": "double", "min": 0}, math.nan, VALUE.format("greater", 0)),
        ({"type": "double", "max": 5}, math.nan, VALUE.format("less", 5)),
        ({"type": "boolean", "min": 1}, False, ""),
        ({"type": "timestamp"}, 0.0, ""),
        ({"type": "string", "enum": ["a", "b"]}, "b", ""),
        ({"type": "string", "enum": ["a", "b"]}, "c", "Member must satisfy enum value set: [a, b]"),
        ({"type": "string", "enum": ["ml.a"]}, "ml.own-9.x", ""),
        ({"type": "string", "enum": ["ml.a"]}, "ml.", "Member must satisfy enum value set: [ml.a]"),
        ({"type": "string", "enum": ["ml.a"]}, "ml." + "x" * 63, ""),
        ({"type": "string", "enum": ["ml.a"]}, "ml." + "x" * 64,
         "Member must satisfy enum value set: [ml.a]"),
        ({"type": "string", "enum": ["ml.a", "b"]}, "ml.own",
         "Member must satisfy enum value set: [ml.a, b]"),
        ({"type": "string", "enum": ["a"], "pattern": "x"}, "a", ""),
        ({"type": "string", "pattern": "[a-z]+"}, "abc", ""),
        ({"type": "string", "pattern": "[a-z]+"}, "abc1",
         "Member must satisfy regular expression pattern: [a-z]+"),
        ({"type": "list", "member": {"shape": "N"}, "min": 1, "max": 2}, [1, 2], ""),
        ({"type": "list", "member": {"shape": "N"}, "min": 1, "max": 2}, [],
         LENGTH.format("greater", 1)),
        ({"type": "list", "member": {"shape": "N"}, "min": 1, "max": 2}, [1, 2, 3],
         LENGTH.format("less", 2)),
        ({"type": "map", "key": {"shape": "S"}, "value": {"shape": "N"}, "max": 1}, {"a": 1}, ""),
        ({"type": "map", "key": {"shape": "S"}, "value": {"shape": "N"}, "max": 1},
         {"a": 1, "b": 2}, LENGTH.format("less", 1)),
    ],
)  # fmt: skip
def test_a_constraint_holds_up_to_its_edge(member: dict[str, Any], value: Any, told: str) -> None:
    shape = shape_of(member, N={"type": "integer", "max": 9}, S={"type": "string", "max": 2})
    found = broken(shape, value)
    assert [each.partition(" failed to satisfy constraint: ")[2] for each in found] == (
        [told] if told else []
    )
    assert all("' at 'it'" in each for each in found)


def test_items_of_a_list_are_named_together_and_missing_ones_one_by_one() -> None:
    shape = shape_of({"type": "list", "member": {"shape": "N"}}, N={"type": "integer", "max": 9})
    assert broken(shape, [9, 10, None, 11]) == [
        "Value null at 'it.3.member' failed to satisfy constraint: Member must not be null",
        "Value '[9, 10, None, 11]' at 'it' failed to satisfy constraint: Member must satisfy "
        "constraint: [Member must have value less than or equal to 9]",
    ]


def test_keys_and_values_of_a_map_are_named_apart() -> None:
    shape = shape_of(
        {"type": "map", "key": {"shape": "S"}, "value": {"shape": "N"}},
        N={"type": "integer", "max": 9}, S={"type": "string", "max": 2},
    )  # fmt: skip
    assert broken(shape, {"ab": 9}) == []
    assert broken(shape, {"abc": 10, "d": None}) == [
        "Value null at 'it.d.member' failed to satisfy constraint: Member must not be null",
        "Value '{abc=10, d=None}' at 'it' failed to satisfy constraint: Map keys must satisfy "
        "constraint: [Member must have length less than or equal to 2]",
        "Value '{abc=10, d=None}' at 'it' failed to satisfy constraint: Map value must satisfy "
        "constraint: [Member must have value less than or equal to 9]",
    ]


INNER = {"type": "structure", "required": ["Name"], "members": {"Name": {"shape": "S"}}}


def test_structures_inside_lists_and_maps_are_looked_into() -> None:
    text = {"type": "string", "max": 2}
    items = shape_of({"type": "list", "member": {"shape": "Inner"}}, Inner=INNER, S=text)
    assert broken(items, [{"Name": "ab"}, {}, {"Name": "abc"}]) == [
        "Value null at 'it.2.member.name' failed to satisfy constraint: Member must not be null",
        "Value 'abc' at 'it.3.member.name' failed to satisfy constraint: Member must have length "
        "less than or equal to 2",
    ]
    entries = shape_of(
        {"type": "map", "key": {"shape": "S"}, "value": {"shape": "Inner"}}, Inner=INNER, S=text
    )
    assert broken(entries, {"k": {}}) == [
        "Value null at 'it.k.member.name' failed to satisfy constraint: Member must not be null",
    ]


def test_a_document_is_anything_and_what_is_not_given_breaks_nothing() -> None:
    shape = shape_of({"type": "structure", "members": {}, "document": True})
    assert broken(shape, {"x": [1, {"y": None}]}) == []
    assert broken(shape, None) == []
    validate(None, {"whatever": 1})


def test_a_shape_may_contain_itself() -> None:
    shape = shape_of(
        {"type": "structure", "required": ["Name"],
         "members": {"Name": {"shape": "S"}, "Inner": {"shape": "It"}}},
        S={"type": "string"},
    )  # fmt: skip
    assert broken(shape, {"Name": "a", "Inner": {"Name": "b", "Inner": {}}}) == [
        "Value null at 'it.inner.inner.name' failed to satisfy constraint: Member must not be null"
    ]


@pytest.mark.parametrize(
    ("count", "counted", "shown"),
    [(1, 1, 1), (2, 2, 2), (20, 20, 20), (21, 21, 20), (1001, 1001, 20), (5000, 1001, 20)],
)
def test_all_are_counted_to_a_bound_and_the_first_are_shown(
    count: int, counted: int, shown: int
) -> None:
    shape = shape_of(
        {"type": "list", "member": {"shape": "Inner"}}, Inner=INNER, S={"type": "string"}
    )
    entries = shape_of(
        {"type": "map", "key": {"shape": "S"}, "value": {"shape": "Inner"}},
        Inner=INNER, S={"type": "string"},
    )  # fmt: skip
    for made, value in ((shape, [{}] * count), (entries, {str(n): {} for n in range(count)})):
        with pytest.raises(AwsError) as caught:
            validate(made, {"It": value})
        head, _, rest = caught.value.message.partition(" detected: ")
        assert head == f"{counted} validation error{'s' if counted > 1 else ''}"
        assert len(rest.split("; ")) == shown


@pytest.mark.parametrize(
    ("member", "length", "checked"),
    [
        ({"pattern": "[a-z]*"}, PATTERN_CHARS_MAX, True),
        ({"pattern": "[a-z]*"}, PATTERN_CHARS_MAX + 1, False),
        ({"pattern": "[a-z]*", "max": 10_000}, PATTERN_CHARS_MAX, True),
        ({"pattern": "[a-z]*", "max": 10_000}, PATTERN_CHARS_MAX + 1, False),
        ({"pattern": "[a-z]*", "max": 5}, 5, True),
    ],
)
def test_a_pattern_is_matched_up_to_a_length(
    member: dict[str, Any], length: int, checked: bool
) -> None:
    found = broken(shape_of({"type": "string"} | member), "1" * length)
    assert (found != []) is checked


def test_what_is_too_long_is_told_that_and_not_its_pattern() -> None:
    found = broken(shape_of({"type": "string", "pattern": "[a-z]*", "max": 5}), "1" * 6)
    assert len(found) == 1
    assert "length less than or equal to 5" in found[0]


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("(https|s3)://([^/]+)/?(.*)", "file:///m\n", True),
        ("^(https|s3)://([^/]+)/?(.*)$", "file:///m", True),
        ("(https|s3)://([^/]+)/?(.*)", "file://host/m", False),
        ("https://.*", "file:///m", False),
    ],
)
def test_a_file_is_as_good_as_s3(pattern: str, value: str, fits: bool) -> None:
    assert (broken(shape_of({"type": "string", "pattern": pattern}), value) == []) is fits


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" * 1024, "a" * 1024),
        ("a" * 1025, "a" * 1024 + "..."),
        ([True, False], "[true, false]"),
        ([{"k": b"abc"}], "[{k=3 bytes}]"),
        ([0] * 65, "[" + ", ".join(["0"] * 64) + "]"),
    ],
)
def test_a_value_is_shown_as_java_prints_it(value: Any, shown: str) -> None:
    kind = "list" if isinstance(value, list) else "string"
    member = {"type": kind, "max": 0} | ({"member": {"shape": "Any"}} if kind == "list" else {})
    shape = shape_of(member, Any={"type": "structure", "members": {}, "document": True})
    [told] = broken(shape, value)
    assert told.startswith(f"Value '{shown}' at 'it' ")


def test_a_secret_is_not_shown() -> None:
    [told] = broken(shape_of({"type": "string", "max": 1, "sensitive": True}), "secret")
    assert told.startswith("Value at 'it' failed to satisfy constraint")


# Java's patterns


@pytest.mark.parametrize(
    ("java", "python"),
    [
        (r"\p{Alnum}+\z", r"[a-zA-Z0-9]+\Z"),
        (r"[\p{Print}-]", r"[\x20-\x7e-]"),
        (r"[\]a]b]", r"[\]a]b]"),
        (r"\[[a]", r"\[[a]"),
        (r"a\\z", r"a\\z"),
    ],
)
def test_a_pattern_is_put_into_pythons_words(java: str, python: str) -> None:
    assert patterns._translated(java) == python


@pytest.mark.parametrize("java", ["[a[b]]", r"\p{L}", "("])
def test_what_python_can_not_say_is_not_checked(java: str) -> None:
    assert patterns.compiled(java) is None
    assert broken(shape_of({"type": "string", "pattern": java}), "anything") == []

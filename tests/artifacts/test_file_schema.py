"""What a declaration lets into a file, and how a mistake is told: key, value, what is allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from artifact_files import error_of
from msgspec import Meta, field

from penstock import file_schema
from penstock.artifacts.description.yaml_tree import artifact_file, invalid
from penstock.artifacts.files.paths import ArtifactPath
from penstock.errors import CallerError
from penstock.file_schema import (
    Keys,
    Reader,
    Versioned,
    in_words,
    matching,
    one_of,
    read_by,
)


def _doubled(value: Any, where: str) -> str:
    if value == 0:
        raise ValueError(f"another number than in {where}")
    return f"{value}{value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookFile:
    title: str
    pages: Annotated[int, Meta(ge=1, le=9)] = 1


class Shelf(Keys, kw_only=True):
    """Every type that files have."""

    source: str = field(name="from", default="")
    kind: Annotated[str, one_of(("open", "closed"))] = "open"
    code: Annotated[str, matching(re.compile("[a-z]+"), "small letters")] = ""
    path: ArtifactPath = ""
    flag: bool = True
    height: Annotated[float, Meta(ge=0, le=9)] = 2.0
    width: Annotated[int, Meta(ge=-1, le=9)] | None = None
    books: tuple[BookFile, ...] = ()
    two: Annotated[tuple[int, ...], Meta(min_length=1, max_length=2)] = ()
    some: Annotated[tuple[int, ...], Meta(min_length=1)] = ()
    names: dict[str, str] = field(default_factory=dict)
    by_code: dict[Annotated[str, matching(re.compile("[a-z]+"), "small letters")], int] = field(
        default_factory=dict
    )
    by_name: dict[str, BookFile] = field(default_factory=dict)
    place: Literal["left"] | BookFile | None = None
    mixed: Annotated[str | tuple[str, ...] | None, in_words("one text or several")] = None
    folder: Path | None = None
    way: Annotated[str, one_of(("up", "down"))] | BookFile | None = None
    count: Annotated[int, Meta(ge=0)] = 0
    delta: int = 0
    anything: Any = None
    doubled: Annotated[Any, read_by(_doubled)] = None


def shelf(**values: Any) -> Shelf:
    return artifact_file("f").read(Shelf, values, "a")


def refused(**values: Any) -> tuple[str, str]:
    error = error_of(lambda: shelf(**values))
    assert error.code == "model-yaml-invalid"
    return error.message, error.hint


def test_what_is_declared_is_read() -> None:
    values: dict[str, Any] = {
        "from": "x", "kind": "closed", "code": "abc", "path": "./a//b/", "flag": False,
        "height": 3, "width": -1, "books": [{"title": "t", "pages": 9}, {"title": "u"}],
        "two": [1, 2], "names": {"a": "", "b": "1"}, "by_code": {"a": 1},
        "by_name": {"x y": {"title": "t"}}, "place": "left", "mixed": ["a", "b"],
        "folder": Path("/a"), "way": "up", "count": 10**30, "delta": -(10**30),
        "anything": None, "doubled": 4,
    }  # fmt: skip
    assert shelf(**values) == Shelf(
        source="x", kind="closed", code="abc", path="a/b", flag=False, height=3.0, width=-1,
        books=(BookFile(title="t", pages=9), BookFile(title="u")), two=(1, 2),
        names={"a": "", "b": "1"},
        by_code={"a": 1}, by_name={"x y": BookFile(title="t")},
        place="left", mixed=("a", "b"),
        folder=Path("/a"), way="up", count=10**30, delta=-(10**30), doubled="44",
    )  # fmt: skip
    assert type(shelf(height=3).height) is float
    assert shelf(place={"title": "t"}).place == BookFile(title="t")
    assert shelf() == Shelf()


@pytest.mark.parametrize(
    ("key", "value", "shown", "allowed"),
    [
        ("from", 1.1, "a.from is 1.1", "text; put it in quotes"),
        ("from", "", "a.from is ''", "text of 1 to 4096 characters"),
        ("kind", "shut", "a.kind is 'shut'", "one of 'open', 'closed'"),
        ("kind", ["open"], "a.kind is ['open']", "one of 'open', 'closed'"),
        ("code", "aB", "a.code is 'aB'", "small letters"),
        ("code", "a\n", "a.code is 'a\\n'", "small letters"),
        ("flag", 1, "a.flag is 1", "true or false"),
        ("flag", "yes", "a.flag is 'yes'", "true or false"),
        ("height", True, "a.height is True", "a number from 0 to 9"),
        ("height", "1", "a.height is '1'", "a number from 0 to 9"),
        ("height", 9.5, "a.height is 9.5", "a number from 0 to 9"),
        ("height", float("nan"), "a.height is nan", "a number from 0 to 9"),
        ("width", -2, "a.width is -2", "an integer from -1 to 9"),
        ("width", 1.0, "a.width is 1.0", "an integer from -1 to 9"),
        ("width", True, "a.width is True", "an integer from -1 to 9"),
        ("books", {}, "a.books is {}", "a list"),
        ("books", [3], "a.books[0] is 3", "a mapping"),
        ("books", [{"title": "t", "pages": 10}], "a.books[0].pages is 10", "from 1 to 9"),
        ("books", [{"pages": 1}], "a.books[0].title is None", "given."),
        ("two", [], "a.two is 0", "a list of 1 to 2 two"),
        ("two", [1, 2, 3], "a.two is 3", "a list of 1 to 2 two"),
        ("some", [], "a.some is 0", "a list of 1 or more some"),
        ("names", [], "a.names is []", "a mapping of names to text"),
        ("names", {"a": 1}, "a.names.a is 1", "text; put it in quotes"),
        ("names", {"": "b"}, "a.names is ''", "text of 1 to 4096 characters"),
        ("by_code", {"A": 1}, "a.by_code is 'A'", "small letters"),
        ("by_code", 3, "a.by_code is 3", "a mapping"),
        ("by_name", {"x": {"titel": "t"}}, "a.by_name.x.title is None", "Is titel meant to be it?"),
        ("place", "right", "a.place is 'right'", "one of 'left', or a mapping"),
        ("mixed", 3, "a.mixed is 3", "one text or several"),
        ("folder", "/a", "a.folder is '/a'", "a path"),
        ("way", "left", "a.way is 'left'", "one of 'up', 'down', or a mapping"),
        ("way", 3, "a.way is 3", "one of 'up', 'down', or a mapping"),
        ("count", -1, "a.count is -1", "an integer, 0 or more"),
        ("delta", 0.5, "a.delta is 0.5", "an integer."),
        ("doubled", 0, "a.doubled is 0", "another number than in f: a.doubled"),
        ("height", None, "a.height is None", "given a value, or left out"),
    ],
)
def test_a_mistake_is_told_by_key_value_and_what_is_allowed(
    key: str, value: Any, shown: str, allowed: str
) -> None:
    message, hint = refused(**{key: value})
    assert message == f"f: {shown}"
    assert hint.startswith("It must be ")
    assert allowed in hint


def test_an_unknown_key_is_told_with_the_known_ones() -> None:
    message, hint = refused(hight=3)
    assert message == "f: unknown key a.hight"
    assert hint.startswith("Did you mean height? The keys here are: from, kind, code, path, flag,")
    assert refused(books=[{"title": "t", "zzz": 1}])[1] == "The keys here are: title, pages."


def test_the_path_of_a_key_begins_with_that_of_its_mapping() -> None:
    assert error_of(lambda: artifact_file("f").read(BookFile, {})).message == "f: title is None"
    assert error_of(lambda: artifact_file("f").read(BookFile, {"title": "t", "x": 1})).message == (
        "f: unknown key x"
    )
    assert (
        error_of(lambda: artifact_file("f").read(BookFile, [1])).message == "f: the file holds [1]"
    )


def test_errors_are_made_by_whoever_gives_a_way_to() -> None:
    """A key that is probably meant is the place of one that is missing."""
    told: list[tuple[str, str, str]] = []

    def fail(path: str, cause: str, hint: str) -> CallerError:
        told.append((path, cause, hint))
        return CallerError("other", "x", hint=hint)

    reader = Reader("f", fail)
    assert error_of(lambda: reader.read(BookFile, {"tilte": 1}, "b")).code == "other"
    assert told == [("b.tilte", "b.title is None", "It must be given. Is tilte meant to be it?")]


def test_a_file_names_the_version_of_its_form() -> None:
    assert artifact_file("f").read(Versioned, {"schema": 1}).schema == 1
    for wrong in ({}, {"schema": 2}, {"schema": "1"}):
        assert error_of(lambda tree=wrong: artifact_file("f").read(Versioned, tree))


@pytest.mark.parametrize(
    ("text", "fits"),
    [("x" * 4096, True), ("x" * 4097, False), ("", False), ("a\0b", False), (chr(0xD800), False),
     (chr(0xDFFF), False), (chr(0xE000), True)],
)  # fmt: skip
def test_a_text_is_one_that_can_be_passed_on(text: str, fits: bool) -> None:
    if fits:
        assert shelf(**{"from": text}).source == text
    else:
        assert refused(**{"from": text})


def test_a_path_leads_out_of_no_artifact() -> None:
    error = error_of(lambda: shelf(path="../b"))
    assert error.code == "artifact-path-unsafe"
    assert error.message.startswith("f: a.path: the path '../b' is refused")


def test_a_list_and_a_mapping_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_schema, "_ITEMS_MAX", 2)
    assert shelf(some=[1, 2], names={"a": "", "b": "1"}).some == (1, 2)
    assert refused(some=[1, 2, 3])[1] == "It must be a list."
    assert "a mapping" in refused(names=dict.fromkeys("abc", ""))[1]


@pytest.mark.parametrize(("values", "fits"), [((1, 2), True), ((1, 1), False), ((2, 1), False)])
def test_ascending_means_each_once(values: tuple[int, ...], fits: bool) -> None:
    if fits:
        artifact_file("f").ascending("k", values)
    else:
        assert "ascending" in error_of(lambda: artifact_file("f").ascending("k", values)).hint


@pytest.mark.parametrize(("length", "told"), [(118, 120), (119, 120)])
def test_a_wrong_value_is_shown_in_short(length: int, told: int) -> None:
    message = invalid("f", "k", "x" * length, "short").message
    assert len(message) == len("f: k is ") + told
    assert message.endswith("...") == (length == 119)

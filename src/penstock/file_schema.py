"""What a file may contain, declared as classes; only its declaration checks and reads a file.

A mapping in a file is a dataclass, or a `Keys` where a key is no valid name in Python. Types say
what is allowed; `msgspec.Meta` and the functions below narrow it:

    class Shelf(Keys):
        name: str  #: text of 1 to 4096 characters, with something in it
        height: Annotated[float, Meta(ge=0, le=9)] = 2.0
        books: tuple[Book, ...] = ()
        kind: Annotated[str, one_of(KINDS)] = "open"

The same declarations make the JSON Schema and the reference page of each file (`docs/generate.py`).
The error for the first mistake has the path of its key, the value and what is allowed; unknown keys
are mistakes. Nothing is converted except an integer where a number is declared. YAML guesses types
(`no` is a boolean, `1.10` a number), so where text is needed the error says to quote it.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, inspect

from penstock.errors import CallerError

_ITEMS_MAX = 100_000
TEXT_CHARS_MAX: Final = 4096
#: (path of the key, what is wrong, remedy) -> the error to raise.
Fail = Callable[[str, str, str], CallerError]
_Declared = TypeVar("_Declared")


class Keys(msgspec.Struct, forbid_unknown_fields=True):
    """Base of declarations whose keys are renamed: `source: str = msgspec.field(name="from")`."""


@dataclass(frozen=True, kw_only=True)
class Versioned:
    """Base of declarations of whole files; it has no slots, so that another base may have them."""

    schema: Version  #: version of the file's form


def one_of(names: Sequence[str] | Callable[[], Sequence[str]]) -> Meta:
    """Text that is one of these; a function is called for each file, since its names may change."""
    ask = names if callable(names) else lambda: names
    return Meta(extra={"choices": ask}, extra_json_schema={"enum": list(ask())})


def matching(pattern: re.Pattern[str], allowed: str, *, reserved: Sequence[str] = ()) -> Meta:
    """Text that matches the pattern as a whole and is not in `reserved`; `allowed` says it in
    words."""
    return Meta(extra={"pattern": pattern, "allowed": allowed, "reserved": tuple(reserved)})


def read_by(read: Callable[[Any, str], Any], *, unchecked: bool = False) -> Meta:
    """A value that `read(value, where)` makes from the file's value.

    `read` raises ValueError with the words for what is allowed, or the caller's error itself.
    `unchecked`: the declared type is that of the result, and the file may have another one.
    """
    return Meta(extra={"read": read, "unchecked": unchecked})


def in_words(allowed: str) -> Meta:
    """A choice of several types, described in these words."""
    return Meta(extra={"allowed": allowed})


#: Type of a file's key `schema`: the version of its form.
Version = Annotated[int, Meta(ge=1, le=1)]


class Reader:
    """Reads the mappings of one file. `where` names the file, `fail` makes its errors."""

    text_chars_min = 1  #: least length of a text, except in mappings of texts

    def __init__(self, where: str, fail: Fail) -> None:
        self.where = where
        self.fail = fail

    def read(self, kind: type[_Declared], tree: object, path: str = "") -> _Declared:
        """The mapping at `path` as `kind` declares it. Raises what `fail` makes."""
        found: _Declared = self.value(information(kind), tree, path)
        return found

    def wrong(self, path: str, value: object, allowed: str) -> CallerError:
        return self.fail(path, _is(path, value), f"It must be {allowed}.")

    def ascending(self, path: str, values: Sequence[int]) -> None:
        """Raises unless each integer is greater than the one before it."""
        if any(a >= b for a, b in itertools.pairwise(values)):
            raise self.wrong(path, list(values), "in ascending order, each value once")

    def value(self, info: inspect.Type, value: object, path: str) -> Any:
        """The value at `path`, by its declared type. Raises what `fail` makes."""
        extra: Mapping[str, Any] = {}
        if isinstance(info, inspect.Metadata):
            extra, info = info.extra or {}, info.type
        if isinstance(info, inspect.UnionType):
            return self.value(self._member(info, value, path, extra), value, path)
        if extra.get("unchecked") or (isinstance(info, inspect.CustomType) and "read" in extra):
            return self._as_read(extra, value, path)
        if isinstance(info, inspect.StrType):
            value = self._text(value, path, extra)
        elif isinstance(info, inspect.DataclassType | inspect.StructType):
            value = self._mapping(info, value, path)
        elif isinstance(info, inspect.DictType):
            value = self._map(info, value, path)
        elif isinstance(info, inspect.CollectionType):
            value = self._list(info, value, path)
        elif isinstance(info, inspect.TupleType):
            value = self._fixed(info, value, path)
        elif not _fits(info, value):
            raise self.wrong(path, value, allowed_by(info))
        elif isinstance(info, inspect.FloatType):
            value = float(value)  # type: ignore[arg-type]
        return self._as_read(extra, value, path)

    def items(self, info: inspect.Type, values: list[Any], path: str) -> Iterator[Any]:
        """The items of a list, each by the declared type."""
        for at, value in enumerate(values):
            yield self.value(info, value, f"{path}[{at}]")

    def _as_read(self, extra: Mapping[str, Any], value: object, path: str) -> object:
        if "read" not in extra:
            return value
        try:
            return extra["read"](value, f"{self.where}: {path}")
        except ValueError as error:
            raise self.wrong(path, value, str(error)) from None

    def _member(
        self, info: inspect.UnionType, value: object, path: str, extra: Mapping[str, Any]
    ) -> inspect.Type:
        """Of several types, the only one that the value can have."""
        members = [one for one in info.types if not isinstance(one, inspect.NoneType)]
        if len(members) > 1:
            members = [one for one in members if _fits(one, value)]
        if not members:
            raise self.wrong(path, value, extra.get("allowed") or allowed_by(info))
        return members[0]

    def _mapping(
        self, info: inspect.DataclassType | inspect.StructType, tree: object, path: str
    ) -> Any:
        if not isinstance(tree, dict):
            raise self.wrong(path, tree, allowed_by(info))
        known = [field.encode_name for field in info.fields]
        found = {}
        for field in info.fields:
            name = field.encode_name
            place = f"{path}.{name}" if path else name
            if name not in tree:
                if field.required:
                    raise self._missing(place, [key for key in tree if key not in known], path)
            elif tree[name] is None and not _takes_anything(field.type):
                raise self.wrong(place, None, "given a value, or left out")
            else:
                found[field.name] = self.value(field.type, tree[name], place)
        for key in tree:
            if key not in known:
                raise self._unknown(f"{path}.{key}" if path else key, key, known)
        return info.cls(**found)

    def _missing(self, place: str, unknown: Iterable[str], path: str) -> CallerError:
        near = difflib.get_close_matches(place.rpartition(".")[2], list(unknown), n=1)
        if not near:
            return self.wrong(place, None, "given")
        hint = f"It must be given. Is {near[0]} meant to be it?"
        return self.fail(f"{path}.{near[0]}" if path else near[0], _is(place, None), hint)

    def _unknown(self, place: str, key: str, known: list[str]) -> CallerError:
        near = difflib.get_close_matches(key, known, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        hint = f"{meant}The keys here are: {', '.join(known)}."
        return self.fail(place, f"unknown key {place}", hint)

    def _map(self, info: inspect.DictType, tree: object, path: str) -> dict[str, Any]:
        """A mapping whose keys the writer of the file chooses; texts in it may be empty."""
        if not isinstance(tree, dict) or len(tree) > _ITEMS_MAX:
            raise self.wrong(path, tree, allowed_by(info))
        texts = isinstance(info.value_type, inspect.StrType)
        names = info.key_type
        of_names = (names.extra or {}) if isinstance(names, inspect.Metadata) else {}
        return {
            self._text(key, path, of_names): self._text(item, f"{path}.{key}", {}, empty=True)
            if texts
            else self.value(info.value_type, item, f"{path}.{key}")
            for key, item in tree.items()
        }

    def _list(self, info: inspect.CollectionType, values: object, path: str) -> tuple[Any, ...]:
        if not isinstance(values, list) or len(values) > _ITEMS_MAX:
            raise self.wrong(path, values, allowed_by(info))
        low, high = info.min_length or 0, info.max_length or _ITEMS_MAX
        if not low <= len(values) <= high:
            most = "or more" if info.max_length is None else f"to {high}"
            name = path.rpartition(".")[2]
            raise self.wrong(path, len(values), f"a list of {low} {most} {name}")
        return tuple(self.items(info.item_type, values, path))

    def _fixed(self, info: inspect.TupleType, values: object, path: str) -> tuple[Any, ...]:
        """A list of so many items, each of its own type."""
        if not isinstance(values, list) or len(values) != len(info.item_types):
            raise self.wrong(path, values, allowed_by(info))
        pairs = enumerate(zip(info.item_types, values, strict=True))
        return tuple(self.value(item, value, f"{path}[{at}]") for at, (item, value) in pairs)

    def _text(
        self, value: object, path: str, extra: Mapping[str, Any], *, empty: bool = False
    ) -> str:
        if "choices" in extra:
            if not isinstance(value, str) or value not in extra["choices"]():
                raise self.wrong(path, value, _one_of(extra["choices"]()))
            return value
        if not isinstance(value, str):
            raise self.wrong(path, value, "text; put it in quotes")
        low = 0 if empty else self.text_chars_min
        if not low <= len(value) <= TEXT_CHARS_MAX:
            raise self.wrong(path, value, f"text of 1 to {TEXT_CHARS_MAX} characters")
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise self.wrong(path, value, "text without null and surrogate characters")
        if "pattern" in extra and (
            value in extra["reserved"] or not extra["pattern"].fullmatch(value)
        ):
            raise self.wrong(path, value, extra["allowed"])
        return value


information: Callable[[Any], inspect.Type] = cache(inspect.type_info)


def _takes_anything(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return any(_takes_anything(one) for one in info.types)
    plain = info.type if isinstance(info, inspect.Metadata) else info
    return isinstance(plain, inspect.AnyType | inspect.CustomType)


def _fits(info: inspect.Type, value: object) -> bool:
    """Whether a value is of the type; for a mapping or a list, only whether it is one."""
    if isinstance(info, inspect.Metadata):
        choices = (info.extra or {}).get("choices")
        return _fits(info.type, value) and (choices is None or value in choices())
    if isinstance(info, inspect.IntType | inspect.FloatType):
        whole = isinstance(info, inspect.IntType)
        number = type(value) is int or (type(value) is float and not whole)
        low = -float("inf") if info.ge is None else info.ge
        high = float("inf") if info.le is None else info.le
        return number and low <= value <= high  # type: ignore[operator] # false for NaN, too
    if isinstance(info, inspect.LiteralType):
        return isinstance(value, str) and value in info.values
    if isinstance(info, inspect.CustomType):
        return isinstance(value, info.cls)
    kinds: dict[type[inspect.Type], type] = {
        inspect.BoolType: bool,
        inspect.StrType: str,
        inspect.VarTupleType: list,
        inspect.TupleType: list,
        inspect.DictType: dict,
        inspect.DataclassType: dict,
        inspect.StructType: dict,
    }
    return isinstance(value, kinds.get(type(info), object))


def allowed_by(info: inspect.Type) -> str:
    """What the type allows, in words."""
    if isinstance(info, inspect.Metadata):
        extra = info.extra or {}
        choices = _one_of(extra["choices"]()) if "choices" in extra else ""
        return choices or extra.get("allowed") or allowed_by(info.type)
    if isinstance(info, inspect.UnionType):
        members = (one for one in info.types if not isinstance(one, inspect.NoneType))
        return ", or ".join(allowed_by(one) for one in members)
    if isinstance(info, inspect.IntType | inspect.FloatType):
        kind, form = ("an integer", "d") if isinstance(info, inspect.IntType) else ("a number", "g")
        low = "" if info.ge is None else f"{info.ge:{form}}"
        if info.le is None:
            return f"{kind}, {low} or more" if low else kind
        return f"{kind} from {low} to {info.le:{form}}"
    if isinstance(info, inspect.LiteralType):
        return _one_of(info.values)
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.StrType):
        return "text; put it in quotes"
    if isinstance(info, inspect.CollectionType):
        return "a list"
    if isinstance(info, inspect.TupleType):
        return f"a list of {', '.join(allowed_by(one) for one in info.item_types)}"
    if isinstance(info, inspect.CustomType):
        return f"a {info.cls.__name__.lower()}"
    texts = isinstance(info, inspect.DictType) and isinstance(info.value_type, inspect.StrType)
    return "a mapping of names to text" if texts else "a mapping"


def _one_of(names: Iterable[object]) -> str:
    return f"one of {', '.join(repr(name) for name in names)}"


def _is(path: str, value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a huge {type(value).__name__}"
    text = text if len(text) <= 120 else f"{text[:117]}..."
    return f"{path} is {text}" if path else f"the file holds {text}"

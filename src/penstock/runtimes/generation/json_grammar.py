"""A JSON schema as a grammar, in the EBNF of GBNF, with as little whitespace as JSON needs.

xgrammar's own grammar of a schema lets a model write whitespace without an end between two tokens
of JSON, and small models do so until their answer is cut. Here one space may stand behind a colon
and a comma, as Outlines has it, so every token brings the answer nearer to its end. Members of
objects come in the schema's order.

A keyword that would bind the answer and has no grammar is refused by name; annotations (title,
description, default ...) bind nothing. As in OpenAI's strict mode, an object with `properties` has
no others unless `additionalProperties` says so.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.errors import CallerError
from penstock.runtimes.generation.json_patterns import (
    CHAR,
    DIGITS_MAX,
    FORMATS,
    REPEAT_MAX,
    PatternRefused,
    char_rule,
    counted,
    integer_rule,
    literal,
    pattern_rule,
)

#: Rules that every grammar of this module refers to.
BASE_RULES: Final = (
    f"{CHAR} ::= {char_rule()}"
    + r"""
string ::= "\"" char* "\""
integer ::= "-"? ("0" | [1-9] [0-9]{0,14})
number ::= integer ("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,2})?
boolean ::= "true" | "false"
null ::= "null"
colon ::= ":" " "?
comma ::= "," " "?
pair ::= string colon value
object ::= "{" (pair (comma pair)*)? "}"
array ::= "[" (value (comma value)*)? "]"
value ::= string | number | object | array | boolean | null
"""
)
_TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")
#: Keywords that say something about the schema and bind no answer.
_ANNOTATIONS: Final = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "discriminator", "strict",
    "contentMediaType", "contentEncoding", "nullable",
})  # fmt: skip
#: Type -> keywords that bind a value of it.
_BINDING: Final = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "boolean": (),
    "null": (),
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
}
_ANYWHERE: Final = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")
#: More rules than any schema of 64 KiB needs; references could make many more.
_RULES_MAX: Final = 20_000


def json_grammar(schema: str) -> str:
    """The grammar of a schema, which is JSON. Raises CallerError (`json-schema-refused`)."""
    return JsonGrammar(json.loads(schema)).text()


class SchemaRefused(CallerError):
    """A part of a schema that no grammar can say."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__(
            "json-schema-refused",
            f"the JSON schema can't be made a grammar: {where[:200]} {cause}"[:600],
            hint="Leave that part out, or say it in words to the model.",
            param="json_schema",
        )


class JsonGrammar:
    """The rules of one schema."""

    def __init__(self, document: Any, *, base: str = "answer") -> None:
        """`base`: begins the names of its rules, where several are in one grammar."""
        self._document = document
        self._base = base
        self._rules: dict[str, str] = {}
        self._references: dict[str, str] = {}

    def text(self) -> str:
        root = self.value(self._document, "the schema")
        return f"root ::= {root}\n{self.rules()}{BASE_RULES}"

    def rules(self) -> str:
        return "".join(f"{name} ::= {rule}\n" for name, rule in self._rules.items())

    def value(self, schema: Any, where: str) -> str:
        """The name of the rule for a value. `where`: its place, for errors."""
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            raise SchemaRefused(where, "is no schema that a value could match")
        if "$ref" in schema or "allOf" in schema:
            return self._merged(schema, where)
        if "const" in schema:
            return self._rule(self._values([schema["const"]]))
        if "enum" in schema:
            if not isinstance(schema["enum"], list) or not schema["enum"]:
                raise SchemaRefused(where, "has an enum without values")
            return self._rule(self._values(schema["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._choice(schema, keyword, where)
        kinds = self._kinds(schema, where)
        _check_keywords(schema, kinds, where)
        return self._rule(" | ".join(self._of_kind(kind, schema, where) for kind in kinds))

    def _rule(self, text: str) -> str:
        if text in _TYPES or text in self._rules:
            return text
        return self._named(self._new_name(), text)

    def _new_name(self) -> str:
        return f"{self._base}{len(self._rules)}"

    def _named(self, name: str, text: str) -> str:
        if len(self._rules) >= _RULES_MAX:
            raise SchemaRefused("the schema", f"needs more than {_RULES_MAX} rules")
        self._rules[name] = text
        return name

    @staticmethod
    def _values(values: list[Any]) -> str:
        written = (json.dumps(each, ensure_ascii=False, separators=(", ", ": ")) for each in values)
        return " | ".join(literal(each) for each in written)

    # References, and schemas of several parts

    def _merged(self, schema: dict[str, Any], where: str) -> str:
        bound = {key for key in schema if key not in _ANNOTATIONS}
        if bound == {"$ref"}:
            return self._reference(schema["$ref"], where)
        return self.value(self._flat(schema, where, frozenset()), where)

    def _reference(self, pointer: Any, where: str) -> str:
        if pointer not in self._references:
            target = self._target(pointer, where)
            name = self._references[pointer] = self._named(self._new_name(), "")
            self._rules[name] = self.value(target, str(pointer))
        return self._references[pointer]

    def _target(self, pointer: Any, where: str) -> Any:
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            raise SchemaRefused(
                where, f"refers to {str(pointer)[:100]!r}, which is not in the schema"
            )
        found = self._document
        for part in pointer[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise SchemaRefused(where, f"refers to {pointer[:100]!r}, which is not there")
        return found

    def _flat(self, schema: Any, where: str, seen: frozenset[str]) -> dict[str, Any]:
        """One schema of all parts that a value must match at once."""
        if not isinstance(schema, dict):
            raise SchemaRefused(where, "has a part that is no object")
        parts = [{key: schema[key] for key in schema if key not in ("$ref", "allOf")}]
        pointer = schema.get("$ref")
        if pointer is not None:
            if pointer in seen:
                raise SchemaRefused(where, f"refers to itself by {str(pointer)[:100]!r}")
            parts.append(self._flat(self._target(pointer, where), where, seen | {pointer}))
        parts += [self._flat(each, where, seen) for each in schema.get("allOf", ())]
        made: dict[str, Any] = {}
        for part in parts:
            for key, value in part.items():
                if key == "properties" and key in made:
                    made[key] = made[key] | value
                elif key == "required" and key in made:
                    made[key] = [*made[key], *value]
                elif key not in _ANNOTATIONS and made.get(key, value) != value:
                    raise SchemaRefused(where, f"has several {key} at once")
                else:
                    made[key] = value
        return made

    def _choice(self, schema: dict[str, Any], keyword: str, where: str) -> str:
        shared = {
            key: value for key, value in schema.items()
            if key != keyword and key not in _ANNOTATIONS
        }  # fmt: skip
        parts = schema[keyword]
        if not isinstance(parts, list) or not parts:
            raise SchemaRefused(where, f"has {keyword} without schemas")
        names = []
        for at, part in enumerate(parts):
            place = f"{where}.{keyword}[{at}]"
            whole = {"allOf": [shared, part]} if shared else part
            names.append(self.value(whole, place))
        return self._rule(" | ".join(names))

    # Values of one type

    @staticmethod
    def _kinds(schema: dict[str, Any], where: str) -> list[str]:
        given = schema.get("type")
        kinds = [given] if isinstance(given, str) else given
        if kinds is None:
            kinds = [
                kind for kind, keywords in _BINDING.items()
                if kind != "integer" and any(each in schema for each in keywords)
            ] or ["value"]  # fmt: skip
        if kinds != ["value"] and (
            not isinstance(kinds, list) or not kinds or any(each not in _TYPES for each in kinds)
        ):
            raise SchemaRefused(where, f"has the type {str(given)[:100]!r}, which JSON has not")
        if schema.get("nullable") is True and "null" not in kinds:
            kinds = [*kinds, "null"]
        return kinds

    def _of_kind(self, kind: str, schema: dict[str, Any], where: str) -> str:
        made = {
            "string": _string, "integer": _integer, "number": _number,
        }.get(kind)  # fmt: skip
        if made is not None:
            try:
                return made(schema)
            except (PatternRefused, TypeError, ValueError) as error:
                raise SchemaRefused(
                    where, f"has limits that no {kind} can be held to: {error}"
                ) from None
        if kind == "object":
            return self._object(schema, where)
        return self._array(schema, where) if kind == "array" else kind

    def _object(self, schema: dict[str, Any], where: str) -> str:
        members = schema.get("properties") or {}
        more = schema.get("additionalProperties", not members and not schema.get("required"))
        required = schema.get("required") or []
        if not isinstance(members, dict) or not isinstance(required, list):
            raise SchemaRefused(
                where, "has properties or required in another form than JSON Schema's"
            )
        unknown = [name for name in required if name not in members]
        if unknown:
            members = members | dict.fromkeys(map(str, unknown), True)
        if not members and more is True:
            return "object"
        # From the last member to the first: what may follow, at the beginning and behind a member.
        begin = end = '""'
        if more is not False:
            pair = self._rule(f"string colon {self.value(more, f'{where}.additionalProperties')}")
            begin = self._rule(f"({pair} (comma {pair})*)?")
            end = self._rule(f"(comma {pair})*")
        for name, member in reversed(members.items()):
            key = literal(json.dumps(name, ensure_ascii=False))
            own = f"{key} colon {self.value(member, f'{where}.{name}')}"
            first, later = f"{own} {end}", f"comma {own} {end}"
            if name not in required:
                first, later = f"{first} | {begin}", f"{later} | {end}"
            begin = self._named(self._new_name(), first)
            end = self._named(self._new_name(), later)
        return f'"{{" {begin} "}}"'

    def _array(self, schema: dict[str, Any], where: str) -> str:
        fixed = schema.get("prefixItems") or []
        items = schema.get("items", not fixed)
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if type(low) is not int or low < 0 or type(high) not in (int, type(None)):
            raise SchemaRefused(where, "has minItems or maxItems that are no numbers")
        if low > REPEAT_MAX or (high is not None and (high < low or high > REPEAT_MAX)):
            raise SchemaRefused(where, f"has minItems {low} and maxItems {high}")
        if fixed:
            if items is not False and schema.get("items") is not None:
                raise SchemaRefused(where, "has items behind prefixItems")
            names = [self.value(each, f"{where}[{at}]") for at, each in enumerate(fixed)]
            return f'"[" {" comma ".join(names)} "]"'
        item = self.value(items, f"{where}[]") if items is not False else ""
        if not item or high == 0:
            return '"[" "]"'
        rest = counted(max(0, low - 1), None if high is None else high - 1)
        inside = f"{item} (comma {item}){rest}" if high != 1 else item
        return f'"[" {inside} "]"' if low else f'"[" ({inside})? "]"'


def _check_keywords(schema: dict[str, Any], kinds: list[str], where: str) -> None:
    known = {keyword for kind in kinds for keyword in _BINDING.get(kind, ())}
    foreign = {keyword for keywords in _BINDING.values() for keyword in keywords}
    for keyword in schema:
        if keyword in known or keyword in _ANNOTATIONS or keyword in _ANYWHERE:
            continue
        if keyword in foreign and kinds != ["value"]:
            continue  # it binds values of another type, as JSON Schema has it
        raise SchemaRefused(where, f"has the keyword {keyword[:60]!r}, which no grammar can say")


def _string(schema: dict[str, Any]) -> str:
    low, high = schema.get("minLength"), schema.get("maxLength")
    bound = [name for name in ("pattern", "format") if schema.get(name) is not None]
    sized = low is not None or high is not None
    if len(bound) + sized > 1:
        raise ValueError("pattern, format and a length can't be held together")
    if bound == ["pattern"]:
        return f'"\\"" {pattern_rule(schema["pattern"])} "\\""'
    if bound:
        known = FORMATS.get(schema["format"])
        if known is None:
            raise ValueError(f"format is none of {', '.join(FORMATS)}")
        return f'"\\"" {pattern_rule(f"^{known}$")} "\\""'
    if not sized:
        return "string"
    if any(type(each) not in (int, type(None)) for each in (low, high)):
        raise ValueError("a length is no number")
    if (low or 0) > REPEAT_MAX or (high is not None and not (low or 0) <= high <= REPEAT_MAX):
        raise ValueError(f"a length from {low} to {high}; at most {REPEAT_MAX} is held")
    return f'"\\"" char{counted(low or 0, high)} "\\""'


def _ends(schema: dict[str, Any]) -> tuple[float | None, bool, float | None, bool]:
    """(lower end, whether it is left out, upper end, whether it is left out)."""
    low, high = schema.get("minimum"), schema.get("maximum")
    below, above = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low_out, high_out = below is True, above is True  # as in the drafts up to 4
    if type(below) in (int, float) and (low is None or below >= low):
        low, low_out = below, True
    if type(above) in (int, float) and (high is None or above <= high):
        high, high_out = above, True
    return low, low_out, high, high_out


def _integer(schema: dict[str, Any]) -> str:
    low, low_out, high, high_out = _ends(schema)
    if low is None and high is None:
        return "integer"
    first = None if low is None else int(-(-low // 1)) + (low_out and low == int(low))
    last = None if high is None else int(high // 1) - (high_out and high == int(high))
    return integer_rule(first, last)


def _number(schema: dict[str, Any]) -> str:
    """Between two integers: those from one to the other, and what is between two of them."""
    low, low_out, high, high_out = _ends(schema)
    if low is None and high is None:
        return "number"
    if any(each is not None and each != int(each) for each in (low, high)):
        raise ValueError("an end of its range is no integer")
    most = 10**DIGITS_MAX - 1
    least, last = int(-most if low is None else low), int(most if high is None else high)
    choices = []
    if least + low_out <= last - high_out:
        choices.append(integer_rule(least + low_out, last - high_out))
    if last > max(least, 0):
        choices.append(f'{integer_rule(max(least, 0), last - 1)} "." [0-9]{{0,14}} [1-9]')
    if least < min(last, 0):
        negative = integer_rule(max(0, -last), -least - 1)
        choices.append(f'"-" {negative} "." [0-9]{{0,14}} [1-9]')
    if not choices:
        raise ValueError("its range is empty")
    return "(" + " | ".join(choices) + ")"

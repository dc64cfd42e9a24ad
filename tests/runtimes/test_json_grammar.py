"""Grammars of JSON schemas, by xgrammar itself: whatever a model without sense writes under one is
JSON of that schema, and ends."""

from __future__ import annotations

import ipaddress
import json
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.errors import CallerError
from penstock.runtimes.generation.json_grammar import json_grammar
from penstock.runtimes.generation.json_patterns import PatternRefused, integer_rule, pattern_rule

library = pytest.importorskip(
    "openvino_genai.py_openvino_genai", reason="the extra `generate` is not installed"
)

BYTES = 256
SEEDS = range(8)


class RandomModel:
    """A model of bytes whose every logit is 0: under a grammar it writes any text of it."""

    def __init__(self) -> None:
        from penstock.runtimes.openvino_genai.structured import GrammarCheck

        self._pipeline = GrammarCheck(library)._small_pipeline()

    def write(self, kind: str, text: str, seed: int, *, tokens: int = 400) -> tuple[str, bool]:
        """What it wrote, and whether it came to an end."""
        import numpy as np
        import openvino as ov

        config = library.GenerationConfig()
        config.max_new_tokens = tokens
        config.do_sample = True
        config.rng_seed = seed
        config.eos_token_id = BYTES
        config.stop_token_ids = {BYTES}
        config.structured_output_config = library.StructuredOutputConfig(**{kind: text})
        prompt = ov.Tensor(np.zeros((1, 1), dtype=np.int64))
        handle = self._pipeline.add_request(seed, prompt, config)
        ids: list[int] = []
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            while handle.can_read():
                for part in handle.read().values():
                    ids += part.generated_ids
        ended = ids[-1] == BYTES
        data = bytes(each for each in ids if each != BYTES)
        return data.decode("utf-8", "strict" if ended else "ignore"), ended


@pytest.fixture(scope="module")
def model() -> RandomModel:
    return RandomModel()


def written(model: RandomModel, schema: Any) -> list[Any]:
    """Values of the answers that ended; each is JSON without a space too many."""
    grammar = json_grammar(json.dumps(schema))
    values = []
    for seed in SEEDS:
        text, ended = model.write("grammar", grammar, seed)
        assert not re.search(r"\n|\t|  ", re.sub(r'"(\\.|[^"\\])*"', '""', text)), text
        if ended:
            values.append(json.loads(text))
    return values


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False, **more,
    }  # fmt: skip


NESTED = obj(
    {
        "id": {"type": "integer", "minimum": -3, "maximum": 120},
        "kind": {"enum": ["x", 'y"z', None, {"deep": [1]}]},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        "pair": {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}]},
    }
)


def right_nested(value: Any) -> bool:
    return (
        list(value) == ["id", "kind", "share", "tags", "pair"]
        and -3 <= value["id"] <= 120
        and value["kind"] in ("x", 'y"z', None, {"deep": [1]})
        and 0 <= value["share"] <= 1
        and 2 <= len(value["tags"]) <= 3
        and value["pair"] == [1, None]
    )


LIST = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": obj(
            {
                "v": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            }
        )
    },
}


def right_list(value: Any) -> bool:
    return value is None or (value["v"] in (1, 2) and right_list(value["next"]))


def is_a(kind: Callable[[str], Any]) -> Callable[[Any], bool]:
    return lambda value: bool(kind(value))


CASES: list[tuple[Any, Callable[[Any], bool]]] = [
    (NESTED, right_nested),
    (LIST, right_list),
    ({"type": ["integer", "null"]}, lambda v: v is None or type(v) is int),
    ({"type": "string", "nullable": True, "maxLength": 1}, lambda v: v is None or len(v) < 2),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 2}, lambda v: 0 < v <= 2),
    ({"type": "number", "minimum": -2, "exclusiveMaximum": -1}, lambda v: -2 <= v < -1),
    ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, lambda v: v in (2, 3)),
    ({"type": "string", "minLength": 2, "maxLength": 5}, lambda v: 2 <= len(v) <= 5),
    ({"type": "string", "pattern": r"^[A-Z]{2}\d{1,3}$"},
     lambda v: re.fullmatch(r"[A-Z]{2}[0-9]{1,3}", v) is not None),
    ({"type": "string", "pattern": r"^(yes|no)$"}, lambda v: v in ("yes", "no")),
    ({"type": "string", "pattern": r'^["\\]\n?[^a-z]$'},
     lambda v: re.fullmatch(r'["\\]\n?[^a-z]', v) is not None),
    ({"type": "string", "format": "date"},
     is_a(lambda v: v[:4] == "0000" or v[5:] > "02-28" or date.fromisoformat(v))),
    ({"type": "string", "format": "time"},
     is_a(lambda v: time.fromisoformat(v.replace("Z", "+00:00")))),
    ({"type": "string", "pattern": "^[\u1000-\u20ff\U0001f300-\U0008f6ff]{9}$"},
     lambda v: all("\u1000" <= c <= "\u20ff" or "\U0001f300" <= c <= "\U0008f6ff" for c in v)),
    ({"type": "string", "format": "uuid"}, is_a(uuid.UUID)),
    ({"type": "string", "format": "ipv4"}, is_a(lambda v: ipaddress.ip_address(v) is not None)),
    ({"type": "string", "format": "ipv6"}, is_a(lambda v: ipaddress.ip_address(v) is not None)),
    ({"type": "string", "format": "uri"}, is_a(lambda v: urlsplit(v).netloc)),
    ({"allOf": [obj({"a": {"type": "boolean"}}),
                {"properties": {"b": {"const": 5}}, "required": ["b"]}]},
     lambda v: list(v) == ["a", "b"] and v["b"] == 5),
    ({"oneOf": [{"const": "a"}, {"type": "object", "additionalProperties": False}]},
     lambda v: v in ("a", {})),
    ({"properties": {"a": {"type": "null"}, "b": {"type": "boolean"}}, "required": ["b"]},
     lambda v: list(v) in (["b"], ["a", "b"])),
    ({"type": "array", "items": False}, lambda v: v == []),
    ({"type": "array", "maxItems": 1, "items": {"type": "boolean"}}, lambda v: len(v) <= 1),
    (True, lambda v: True),
    ({"type": "object"}, lambda v: isinstance(v, dict)),
    ({"type": "object", "additionalProperties": {"type": "boolean"}},
     lambda v: all(type(each) is bool for each in v.values())),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(CASES)))
def test_whatever_is_written_is_json_of_the_schema(model: RandomModel, at: int) -> None:
    schema, right = CASES[at]
    values = written(model, schema)
    for value in values:
        assert right(value), (schema, value)
    assert values or schema in (True, {"type": "object"}, LIST), "no answer came to its end"


def test_a_moment_is_a_date_and_a_time(model: RandomModel) -> None:
    for value in written(model, {"type": "string", "format": "date-time"}):
        if value[:4] != "0000" and value[5:10] <= "02-28":
            assert datetime.fromisoformat(value.replace("Z", "+00:00"))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "integer", "multipleOf": 2}, "multipleOf"),
        ({"type": "object", "patternProperties": {}}, "patternProperties"),
        ({"not": {}}, "not"),
        ({"type": "nonsense"}, "nonsense"),
        ({"type": "string", "format": "colour"}, "format"),
        ({"type": "string", "pattern": "(?=a)b"}, "assert"),
        ({"type": "string", "pattern": "("}, "can't be read"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "together"),
        ({"$ref": "#/$defs/gone"}, "which is not there"),
        ({"$ref": "https://example.com/a.json"}, "which is not in the schema"),
        ({"$ref": "#", "type": "object"}, "refers to itself"),
        ({"type": "number", "minimum": 0.25}, "no integer"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "leaves no integer"),
        ({"enum": []}, "enum"),
        ({"anyOf": []}, "anyOf"),
        (False, "no schema"),
        ({"type": "array", "minItems": -1}, "minItems"),
    ],
)
def test_what_no_grammar_can_say_is_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(CallerError) as caught:
        json_grammar(json.dumps(schema))
    assert caught.value.code == "json-schema-refused"
    assert words in caught.value.message


@pytest.mark.parametrize(("low", "high"), [(0, 9), (7, 4213), (-15, 8), (99, 100), (-3, -1)])
def test_a_range_of_integers_has_exactly_these(low: int, high: int) -> None:
    """By a reading of the rule as a regular expression."""
    rule = re.sub(r'"(-|\d)" ?', r"\1", integer_rule(low, high)).replace(" ", "")
    found = [each for each in range(low - 300, high + 300) if re.fullmatch(rule, str(each))]
    assert found == list(range(low, high + 1))
    assert not re.fullmatch(rule, "00")
    assert not re.fullmatch(rule, "-0")


@pytest.mark.parametrize("pattern", [r"(a)\1", r"\bword", "(?i:a)", "a{1,20000}", "^a$|b"])
def test_an_expression_that_is_no_grammar_is_refused(pattern: str) -> None:
    with pytest.raises(PatternRefused):
        pattern_rule(pattern)

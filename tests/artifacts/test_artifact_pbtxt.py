"""The text format of protocol buffers: what it means, and that nothing else gets through."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from artifact_files import error_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.environments import python_of

from penstock.artifacts.triton.pbtxt import Identifier, Message, parse
from penstock.errors import CallerError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", {}),
        ("# only a comment", {}),
        ("a: 1 b: 2", {"a": [1], "b": [2]}),
        ("a: 1, b: 2; c: 3", {"a": [1], "b": [2], "c": [3]}),
        ("a: 1 # one\na: 2", {"a": [1, 2]}),
        ("a: [1, 2, -3]", {"a": [1, 2, -3]}),
        ("a: [1] a: 2", {"a": [1, 2]}),
        ("a: []", {"a": []}),
        ("a { b: 1 }", {"a": [{"b": [1]}]}),
        ("a: { b: 1 }", {"a": [{"b": [1]}]}),
        ("a < b: 1 >", {"a": [{"b": [1]}]}),
        ("a [ { b: 1 }, { b: 2 } ]", {"a": [{"b": [1]}, {"b": [2]}]}),
        ("a: [ { b: [ 1 ] } ]", {"a": [{"b": [[1]][0]}]}),
        ("a: 0x1F b: 010 c: 0", {"a": [31], "b": [8], "c": [0]}),
        ("a: 1.5 b: 2f c: .5 d: 1e3 e: -2.5e-1F", {"a": [1.5], "b": [2], "c": [0.5], "d": [1000],
                                                  "e": [-0.25]}),
        ("a: TYPE_FP32 b: true", {"a": ["TYPE_FP32"], "b": ["true"]}),
        ("""a: "x" 'y' "z" """, {"a": ["xyz"]}),
        (r"""a: "\n\t\"\'\\\101\x41\u00e9\U0001F600" """, {"a": ["\n\t\"'\\AAé😀"]}),
        (r"""a: "\303\251" """, {"a": ["é"]}),
        ("a: - 5", {"a": [-5]}),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, message: Message) -> None:
    assert parse(text, where="config.pbtxt") == message


def test_words_and_strings_are_told_apart() -> None:
    message = parse('a: TYPE_FP32 b: "TYPE_FP32"', where="c")
    assert isinstance(message["a"][0], Identifier)
    assert not isinstance(message["b"][0], Identifier)


def test_infinities_have_a_sign() -> None:
    assert parse("a: -inf", where="c") == {"a": [-math.inf]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a", 1),
        ("a 1", 1),
        ("a:", 1),
        (": 1", 1),
        ("a: 1\nb: }", 2),
        ("a {\n b: 1", 2),
        ("a { b: 1 >", 1),
        ("a: [1, ]", 1),
        ("a: [1 2]", 1),
        ("a [1]", 1),
        ('a: "one\ntwo"', 1),
        ('a: "open', 1),
        (r'a: "\q"', 1),
        (r'a: "\377"', 1),
        (r'a: "\400"', 1),
        (r'a: "\ud800"', 1),
        ("a: 09", 1),
        ("a: 1 2", 1),
        ("a: -x", 1),
        ("a: $", 1),
        ("[type.googleapis.com/x]: 1", 1),
        ("\n\na: 1 }", 3),
        ("a {" * 50, 1),
        ("a: " + "9" * 5000, 1),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int) -> None:
    error = error_of(lambda: parse(text, where="config.pbtxt"))
    assert error.code == "pbtxt-invalid"
    assert error.message.startswith(f"config.pbtxt, line {line}: expected ")


@settings(max_examples=400, deadline=None)
@given(
    text=st.one_of(st.text(max_size=80), st.text(alphabet="ab01:{}[]<>,;-\"'\\#x \n.", max_size=60))
)
def test_any_text_is_a_message_or_a_clear_error(text: str) -> None:
    try:
        message = parse(text, where="c")
    except CallerError as error:
        assert error.code == "pbtxt-invalid"  # noqa: PT017 - any other exception fails the test
    else:
        assert isinstance(message, dict)


_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=8),
        "max_batch_size": st.integers(0, 2**31 - 1),
        "platform": st.text(max_size=8),
        "dims": st.lists(st.integers(-1, 2**40), max_size=4),
        "delay": st.integers(0, 2**60),
        "parameters": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    },
)


#: Answers each line of fields with Triton's own message of them, as protobuf's printer writes it.
_PRINTER = """
import json, sys
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

for line in sys.stdin:
    fields, one_line = json.loads(line)
    config = ModelConfig(**{name: fields[name] for name in ("name", "platform", "max_batch_size")
                            if name in fields})
    if "dims" in fields:
        config.input.add(name="x", dims=fields["dims"])
    if "delay" in fields:
        config.dynamic_batching.max_queue_delay_microseconds = fields["delay"]
    for key, value in fields.get("parameters", {}).items():
        config.parameters[key].string_value = value
    print(json.dumps(text_format.MessageToString(config, as_one_line=one_line)), flush=True)
"""


@pytest.fixture(scope="module")
def printer() -> Iterator[subprocess.Popen[str]]:
    """tritonclient brings Triton's schema; it has an environment of its own."""
    argv = [str(python_of("client-tritonclient")), "-c", _PRINTER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        yield made
        made.communicate(timeout=30)


@settings(max_examples=150, deadline=None)
@given(fields=_FIELDS, one_line=st.booleans())
def test_what_protobuf_itself_prints_is_read_back(
    printer: subprocess.Popen[str], fields: dict[str, Any], one_line: bool
) -> None:
    """Against an independent writer: the protobuf package's printer, on Triton's own schema."""
    assert printer.stdin is not None
    assert printer.stdout is not None
    printer.stdin.write(json.dumps([fields, one_line]) + "\n")
    printer.stdin.flush()
    message: Any = parse(json.loads(printer.stdout.readline()), where="c")
    assert message.get("name", [""]) == [fields.get("name", "")]
    assert message.get("platform", [""]) == [fields.get("platform", "")]
    assert message.get("max_batch_size", [0]) == [fields.get("max_batch_size", 0)]
    if "dims" in fields:
        assert message["input"][0].get("dims", []) == fields["dims"]
    if fields.get("delay"):
        assert message["dynamic_batching"][0]["max_queue_delay_microseconds"] == [fields["delay"]]
    parameters = {
        item.get("key", [""])[0]: item["value"][0].get("string_value", [""])[0]
        for item in message.get("parameters", [])
    }
    assert parameters == fields.get("parameters", {})

"""config.pbtxt at its edges: each bound, each field that is read, each that is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from artifact_files import IR_XML, error_of, onnx_bytes, write

from penstock.artifacts.detection.detect import detect
from penstock.artifacts.triton.config import parse_config
from penstock.artifacts.triton.pbtxt import TEXT_BYTES_MAX, Fields, Identifier, parse
from penstock.artifacts.triton.triton_models import find_model_folder


def dynamic(text: str) -> str:
    return f"max_batch_size: 8 dynamic_batching {{ {text} }}"


def policy(text: str) -> str:
    return dynamic(f"default_queue_policy {{ {text} }}")


def tensor(text: str) -> str:
    return f'input {{ name: "x" data_type: TYPE_FP32 dims: 1 {text} }}'


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("max_batch_size: N", 0, 65_536),
        (dynamic("preferred_batch_size: N"), 1, 8),
        (dynamic("max_queue_delay_microseconds: N"), 0, 60_000_000),
        (dynamic("priority_levels: N"), 0, 100),
        (dynamic("priority_levels: 3 default_priority_level: N"), 0, 3),
        (policy("default_timeout_microseconds: N"), 0, 3_600_000_000),
        (policy("max_queue_size: N"), 0, 10_000_000),
        ("instance_group { count: N }", 0, 1024),
        ("version_policy { latest { num_versions: N } }", -1, 2**31 - 1),
        ("version_policy { specific { versions: N } }", 1, 2**63 - 1),
    ],
)
def test_a_number_lies_between_its_bounds(text: str, low: int, high: int) -> None:
    for number in (low, high):
        parse_config(text.replace("N", str(number)))
    for number in (low - 1, high + 1):
        error = error_of(lambda n=number: parse_config(text.replace("N", str(n))))
        assert error.code in ("triton-config-invalid", "triton-config-unsupported")


@pytest.mark.parametrize(("dims", "fits"), [("-1", True), ("1", True), ("0", False), ("-2", False)])
def test_a_dimension_is_a_size_or_any(dims: str, fits: bool) -> None:
    text = f'input {{ name: "x" data_type: TYPE_FP32 dims: [2, {dims}] }}'
    if fits:
        assert parse_config(text).inputs[0].shape == (2, int(dims))
    else:
        assert error_of(lambda: parse_config(text)).code == "triton-config-invalid"


def test_times_are_seconds_and_levels_are_one_at_least() -> None:
    text = dynamic("max_queue_delay_microseconds: 2500 priority_levels: 0")
    batching = parse_config(text).batching
    assert (batching.wait_s_max, batching.priorities, batching.rows_max) == (0.0025, 1, 8)
    assert (batching.queue_rows_max, batching.queue_wait_s_max) == (2048, None)
    text = policy("default_timeout_microseconds: 1500000 max_queue_size: 7")
    batching = parse_config(text).batching
    assert (batching.queue_rows_max, batching.queue_wait_s_max) == (7, 1.5)
    text = dynamic("preferred_batch_size: [4, 2, 4] preferred_batch_size: 8")
    assert parse_config(text).batching.rows_preferred == (2, 4, 8)


def test_a_queue_policy_says_whether_callers_may_shorten_the_wait() -> None:
    bound = "default_timeout_microseconds: 5000000"
    assert not parse_config(policy(bound)).batching.timeout_override
    batching = parse_config(policy(f"{bound} allow_timeout_override: true")).batching
    assert (batching.queue_wait_s_max, batching.timeout_override) == (5.0, True)


def test_the_order_of_answers_is_preserved_where_no_request_may_overtake() -> None:
    assert parse_config(dynamic("preserve_ordering: true")).batching.preserves_order
    delay = "timeout_action: DELAY default_timeout_microseconds: 1"
    for text in (
        dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
        dynamic(f"preserve_ordering: true default_queue_policy {{ {delay} }}"),
    ):
        error = error_of(lambda given=text: parse_config(given))
        assert "preserve_ordering" in error.message


@pytest.mark.parametrize(
    ("groups", "lanes"),
    [("", 1), ("instance_group { }", 1), ("instance_group { count: 0 }", 1),
     ("instance_group { count: 3 } instance_group { }", 4),
     ("instance_group [ { count: 1023 }, { count: 1 } ]", 1024),
     ("instance_group [ { count: 1024 }, { count: 1 } ]", None)],
)  # fmt: skip
def test_instances_are_lanes(groups: str, lanes: int | None) -> None:
    if lanes is None:
        assert "at most 1024" in error_of(lambda: parse_config(groups)).hint
    else:
        assert parse_config(groups).lanes == lanes


@pytest.mark.parametrize(
    "text",
    [
        "batch_input { }",
        "batch_output { }",
        "model_repository_agents { agents { } }",
        tensor("allow_ragged_batch: true"),
        tensor("is_non_linear_format_io: true"),
        'backend: "pytorch"',
    ],
)
def test_what_would_change_answers_is_refused(text: str) -> None:
    error = error_of(lambda: parse_config(text))
    assert error.code == "triton-config-unsupported"


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("model_repository_agents { }", ""),
        ("model_transaction_policy { decoupled: false }", ""),
        ("model_transaction_policy { }", ""),
        (tensor("optional: false format: FORMAT_NHWC"), tensor("")),
        (dynamic("preserve_ordering: false"), dynamic("")),
        (policy("timeout_action: REJECT allow_timeout_override: false"), policy("")),
        (
            'instance_group { name: "a" gpus: 0 profile: "p" host_policy: "h" }',
            "instance_group { }",
        ),
        ('optimization { } response_cache { } runtime: "x" metric_tags { }', ""),
        ('backend: "onnxruntime" platform: "onnxruntime_onnx"', 'backend: "onnxruntime"'),
        # Code gets requests, each with its own tensors, so none is joined with another.
        (
            tensor("allow_ragged_batch: true") + ' backend: "python"',
            tensor("") + ' backend: "python"',
        ),
    ],
)
def test_what_only_tunes_triton_changes_nothing(text: str, without: str) -> None:
    assert parse_config(text) == parse_config(without)


def test_the_backend_is_named_or_follows_from_the_platform() -> None:
    assert parse_config('platform: "onnxruntime_onnx"').backend == "onnxruntime_onnx"
    assert parse_config('platform: "x" backend: "python"').backend == "python"
    assert parse_config("").backend == ""


def test_each_output_may_have_a_label_file() -> None:
    output = 'output { name: "%s" data_type: TYPE_FP32 dims: 1 label_filename: "%s" }'
    both = parse_config(output % ("a", "l") + output % ("b", "m"))
    assert both.label_files == {"a": "l", "b": "m"}
    assert parse_config(output % ("a", "")).label_files == {}
    assert error_of(lambda: parse_config(tensor('label_filename: "l"'))).code == (
        "triton-config-invalid"
    )
    twice = output % ("a", "l") * 2
    assert "the output 'a' is given twice" in error_of(lambda: parse_config(twice)).message


def test_parameters_are_texts_of_different_names() -> None:
    text = 'parameters { key: "a" } parameters { key: "b" value { string_value: "1" } }'
    assert parse_config(text).parameters == {"a": "", "b": "1"}
    for wrong in ('parameters { key: "" }', "parameters { }",
                  'parameters { key: "a" value { int_value: 1 } }',
                  'parameters { key: "a" other: 1 }'):  # fmt: skip
        assert error_of(lambda w=wrong: parse_config(w)).code == "triton-config-invalid"


def test_what_is_unknown_in_any_message_is_named() -> None:
    for text in ("version_policy { x: 1 }", "version_policy { latest { x: 1 } }",
                 "version_policy { all { x: 1 } }", "version_policy { specific { x: 1 } }",
                 "model_transaction_policy { x: 1 }", "model_repository_agents { x: 1 }",
                 "instance_group { x: 1 }", policy("x: 1")):  # fmt: skip
        error = error_of(lambda t=text: parse_config(t))
        assert ".x is not a field" in error.message or "x is not a field" in error.message


# Repositories


def test_a_backend_that_is_not_named_is_told_by_the_file(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "1/model.onnx": onnx_bytes(), "1/model.xml": IR_XML, "1/model.bin": bytes(16),
        "1/model.py": "", "1/own.py": "", "config.pbtxt": "",
    }  # fmt: skip
    root = write(tmp_path / "m", files)
    for file, runtime in (("1/model.onnx", "onnxruntime"), ("1/model.xml", "openvino"),
                          ("1/model.py", "python")):  # fmt: skip
        found = detect(root).description
        assert (found.file, found.runtime) == (file, runtime)
        (root / file).unlink()
    (root / "config.pbtxt").write_text('default_model_filename: "own.py"')
    assert detect(root).description.file == "1/own.py"


def test_where_no_folder_holds_a_configuration_there_is_no_repository(tmp_path: Path) -> None:
    write(tmp_path, {"a/b/config.pbtxt": "", "c": ""})
    assert find_model_folder(tmp_path, {}) is None


def test_of_many_models_the_first_are_named(tmp_path: Path) -> None:
    write(tmp_path, {f"m{n:02}/config.pbtxt": "" for n in range(21)})
    for environment in ({}, {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "other"}):
        error = error_of(lambda e=environment: find_model_folder(tmp_path, e))
        assert "'m19'" in error.message
        assert "'m20'" not in error.message


def test_labels_are_lines_that_are_not_empty(tmp_path: Path) -> None:
    output = 'output { name: "y" data_type: TYPE_FP32 dims: 1 label_filename: "l" }'
    root = write(tmp_path / "m", {"config.pbtxt": output, "1/model.onnx": onnx_bytes(),
                                  "l": " a \n\n b\r\n"})  # fmt: skip
    assert detect(root).description.labels == ("a", "b")
    (root / "l").write_bytes(b"x" * (1024 * 1024))
    assert len(detect(root).description.labels[0]) == 1024 * 1024
    (root / "l").write_bytes(b"x" * (1024 * 1024 + 1))
    assert error_of(lambda: detect(root)).code == "triton-config-invalid"
    (root / "l").unlink()
    assert error_of(lambda: detect(root)).code == "artifact-incomplete"


def test_the_name_is_the_configurations_or_the_folders(tmp_path: Path) -> None:
    root = write(tmp_path / "folder", {"config.pbtxt": "", "1/model.onnx": onnx_bytes()})
    assert detect(tmp_path).description.name == "folder"
    (root / "config.pbtxt").write_text('name: "own"')
    assert detect(root).description.name == "own"


def test_the_folder_of_the_whole_artifact_names_no_model(tmp_path: Path) -> None:
    """It is the server's own, in the cache: the model has the endpoint's name."""
    root = write(tmp_path / "files", {"config.pbtxt": "", "1/model.onnx": onnx_bytes()})
    described = detect(root).description
    assert described.name == ""
    assert described.triton is not None
    assert described.triton.config["name"] == ""


def test_a_folder_of_a_version_is_a_number_without_zeros_before_it(tmp_path: Path) -> None:
    root = write(tmp_path / "m", {"config.pbtxt": ""})
    for name in ("0", "01", "1a", "9" * 19, "-1"):
        write(root, {f"{name}/model.onnx": onnx_bytes()})
    assert "has none" in error_of(lambda: detect(root)).message
    write(root, {"2": b"a file", f"{'9' * 18}/model.onnx": onnx_bytes()})
    assert detect(root).description.version == "9" * 18


# The text format by itself


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("00", 0), ("07", 7), ("0x0", 0), ("0XfF", 255), ("1f", 1.0), ("1.", 1.0),
        (".5e1", 5.0), ("- 3", -3), ("-0x10", -16), ("-inf", -math.inf), ("-Infinity", -math.inf),
        ("'a\\x4'", "a\x04"), ("'\\7'", "\x07"), ("'\\a\\b\\f\\r\\v\\?'", "\a\b\f\r\v?"),
        ("''", ""),
    ],
)  # fmt: skip
def test_a_scalar(text: str, value: Any) -> None:
    [got] = parse(f"a: {text}", where="c")["a"]
    assert (got, type(got)) == (value, type(value))


def test_no_number_is_a_word_with_a_sign() -> None:
    [minus] = parse("a: -nan", where="c")["a"]
    assert isinstance(minus, float)
    assert math.isnan(minus)
    [word] = parse("a: nan", where="c")["a"]
    assert isinstance(word, Identifier)


@pytest.mark.parametrize(
    "text",
    ["a: 08", "a: 1.5.5", "a: 0x", "a: 1 .5", "a: 01x", "a: --1", "a: -'x'", "a {", "a: [1",
     "a: {b: 1>", "a [1]", "a [{}, 1]", "a: [{}; {}]", "a,, b: 1", "a: '\\U00110000'", "1: 2"],
)  # fmt: skip
def test_any_other_text_is_refused(text: str) -> None:
    assert error_of(lambda: parse(text, where="c")).code == "pbtxt-invalid"


def test_separators_are_optional_and_one_each() -> None:
    assert parse("a: 1, b: 2; c {}; d [{}], e: [1, {f: 2}]", where="c") == {
        "a": [1], "b": [2], "c": [{}], "d": [{}], "e": [1, {"f": [2]}],
    }  # fmt: skip
    for text in ("a: 1,, b: 2", "a: 1;; b: 2", "a: 1,; b: 2"):
        assert error_of(lambda t=text: parse(t, where="c")).code == "pbtxt-invalid"


@pytest.mark.parametrize(("depth", "fits"), [(32, True), (33, False)])
def test_messages_nest_to_a_bound(depth: int, fits: bool) -> None:
    text = "a {" * depth + "}" * depth
    lists = "a [{" * depth + "}]" * depth
    for each in (text, lists):
        if fits:
            parse(each, where="c")
        else:
            assert "32 levels" in error_of(lambda e=each: parse(e, where="c")).message


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_text_has_a_bounded_length(more: int, fits: bool) -> None:
    text = "#" * (TEXT_BYTES_MAX + more)
    if fits:
        assert parse(text, where="c") == {}
    else:
        assert "larger than" in error_of(lambda: parse(text, where="c")).message


def test_a_mistake_tells_its_line_and_what_stands_there() -> None:
    error = error_of(lambda: parse("a: 1\n\nb: " + "$" * 50, where="c"))
    assert error.message == (
        f"c, line 3: expected something that the text format knows, found '{'$' * 20}'"
    )
    error = error_of(lambda: parse("a: 1 }", where="c"))
    assert error.message == "c, line 1: expected a field name or 'the end', found '}'"
    error = error_of(lambda: parse("a {\nb: 1", where="c"))
    assert error.message.endswith("expected a field name or '}', found 'the end of the text'")


# Fields by themselves


def fields(text: str) -> Fields:
    return Fields(parse(text, where="c"), where="c", path="p.")


@pytest.mark.parametrize(
    ("word", "value"),
    [("true", True), ("True", True), ("t", True), ("1", True), ("false", False), ("False", False),
     ("f", False), ("0", False), ("2", None), ("yes", None), ("1.0", None), ("{}", None)],
)  # fmt: skip
def test_a_flag(word: str, value: bool | None) -> None:
    if value is None:
        assert error_of(lambda: fields(f"a: {word}").flag("a")).code == "triton-config-invalid"
    else:
        assert fields(f"a: {word}").flag("a") is value
    assert fields("").flag("a") is False


def test_fields_that_are_not_there_have_their_defaults() -> None:
    none = fields("")
    assert (none.text("a"), none.text("a", "d"), none.integer("a"), none.integer("a", 7)) == (
        "", "d", 0, 7,
    )  # fmt: skip
    assert (none.integers("a", low=0), none.choice("a", ("b",), "c")) == ((), "c")
    assert (none.message("a"), none.messages("a"), none.has("a")) == (None, [], False)
    none.refuse("a", "never")
    none.ignore("a", "b")
    none.done()


@pytest.mark.parametrize(("text", "count"), [("a: []", 0), ("a: [1, 2]", 2), ("a: 1 a: 2", 2)])
def test_one_value_is_one(text: str, count: int) -> None:
    for read in ("text", "integer", "flag", "message"):
        error = error_of(lambda r=read: getattr(fields(text), r)("a"))
        assert error.message == f"c: p.a is given {count} times"


def test_values_of_another_kind_are_named_with_their_path() -> None:
    for error in (
        error_of(lambda: fields("a: word").text("a")),
        error_of(lambda: fields("a: 1").text("a")),
        error_of(lambda: fields("a: 1.0").integer("a")),
        error_of(lambda: fields("a: 1").message("a")),
        error_of(lambda: fields("a: 'b'").choice("a", ("b",), "")),
        error_of(lambda: fields("a: c").choice("a", ("b",), "")),
    ):
        assert error.message.startswith("c: p.a is ")
    assert fields("a: b").choice("a", ("b",), "") == "b"
    assert error_of(lambda: fields("a {b: 1}").text("a")).message == "c: p.a is a message"
    assert error_of(lambda: fields(f"a: '{'x' * 61}' ").integer("a")).message == (
        f"c: p.a is '{'x' * 60}'"
    )


def test_what_is_refused_says_what_to_do() -> None:
    error = error_of(lambda: fields("a: 1").refuse("a", "why"))
    assert (error.message, "Remove it" in error.hint) == ("c: p.a is not supported: why", True)
    error = error_of(lambda: fields("a: 1").refuse("a", "why", hint="Do this."))
    assert error.hint == "Do this."
    some = fields("a: 1 b: 2 c: 3")
    some.ignore("a")
    assert some.has("b")
    some.integer("b")
    assert "p.c is not a field" in error_of(some.done).message

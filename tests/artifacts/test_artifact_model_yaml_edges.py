"""Each number of a model.yaml at its bounds, and each pair of keys that does not go together."""

from __future__ import annotations

import pytest
from artifact_files import error_of

from penstock.artifacts.description import yaml_tree
from penstock.artifacts.description.description import (
    Embedding,
    EngineOptions,
    Generation,
    Tokenizer,
)
from penstock.artifacts.description.model_yaml import dump, parse

BASE = "schema: 1\nruntime: openvino\n"
WRITER = "schema: 1\nruntime: seq2seq\ntokenizer: {}\n"
ENGINE = "schema: 1\nruntime: vllm\n"
#: More digits than a float has, or than Python reads, and what is no number at all.
HOSTILE = ("1" + "0" * 400, "-1" + "0" * 400, "1" * 4400, "1e999", ".nan", "-.inf")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (BASE + "lanes: N", 1, 1024),
        (BASE + "threads_per_lane: N", 0, 1024),
        (BASE + "batching: {rows_max: N}", 0, 65_536),
        (BASE + "batching: {wait_ms_max: N}", 0, 3_600_000),
        (BASE + "batching: {queue_rows_max: N}", 1, 10_000_000),
        (BASE + "batching: {queue_wait_ms_max: N}", 1, 3_600_000),
        (BASE + "batching: {latency_ms_p99_max: N}", 1, 3_600_000),
        (BASE + "batching: {priorities: N}", 1, 100),
        (BASE + "batching: {buckets: [N]}", 1, 1_000_000),
        (BASE + "batching: {rows_max: 7, rows_preferred: [N]}", 1, 7),
        (WRITER + "generation: {decoder_start_id: N}", 0, 2**31 - 1),
        (WRITER + "generation: {tokens_new_max: N}", 1, 1_000_000),
        (WRITER + "generation: {beams_max: N}", 1, 64),
        (WRITER + "generation: {eos_ids: [N]}", 0, 2**31 - 1),
        ("schema: 1\nruntime: seq2seq\ntokenizer: {tokens_max: N}", 1, 1_000_000),
        ("schema: 1\nruntime: seq2seq\ntokenizer: {pad_id: N}", 0, 2**31 - 1),
        (ENGINE + "engine: {context_tokens_max: N}", 1, 100_000_000),
        (ENGINE + "engine: {sequences_max: N}", 1, 4096),
        (ENGINE + "engine: {tokens_batched_max: N}", 1, 10_000_000),
        (ENGINE + "engine: {cache_mb: N}", 1, 2**30),
        (BASE + "batching: {rows_max: 0}\ninputs: [{name: x, dtype: FP32, shape: [N]}]", -1, 2**40),
    ],
)
def test_a_number_lies_between_its_bounds(text: str, low: int, high: int) -> None:
    for number in (low, high):
        parse(text.replace("N", str(number)))
    for number in (low - 1, high + 1):
        if text.endswith("{queue_wait_ms_max: N}") or text.endswith("{latency_ms_p99_max: N}"):
            number = 0 if number == low - 1 else number  # noqa: PLW2901 - a thousandth is the least
        error = error_of(lambda n=number: parse(text.replace("N", str(n))))
        assert error.code == "model-yaml-invalid"
    for wild in HOSTILE:
        error = error_of(lambda n=wild: parse(text.replace("N", n)))
        assert error.code == "model-yaml-invalid", wild[:40]


@pytest.mark.parametrize("key", ["queue_wait_ms_max", "latency_ms_p99_max"])
@pytest.mark.parametrize(("number", "fits"), [("0.001", True), ("0.0009", False)])
def test_a_time_is_a_thousandth_of_a_millisecond_at_least(
    key: str, number: str, fits: bool
) -> None:
    text = BASE + f"batching: {{{key}: {number}}}"
    if fits:
        parse(text)
    else:
        assert error_of(lambda: parse(text)).code == "model-yaml-invalid"


def test_times_are_seconds_inside() -> None:
    batching = parse(
        BASE + "batching: {rows_max: 4, wait_ms_max: 2.5, queue_wait_ms_max: 500}"
    ).batching
    assert (batching.wait_s_max, batching.queue_wait_s_max, batching.latency_s_p99_max) == (
        0.0025, 0.5, None,
    )  # fmt: skip
    level = parse(BASE + "batching: {latency_ms_p99_max: 10}").batching
    assert (level.latency_s_p99_max, level.rows_max) == (0.01, 64)
    assert parse(BASE + "batching: {latency_ms_p99_max: 10, rows_max: 3}").batching.rows_max == 3
    assert parse(BASE + "batching: {}").batching.rows_max == 1


def test_nothing_waits_where_nothing_is_joined() -> None:
    parse(BASE + "batching: {rows_max: 0, wait_ms_max: 0}")
    error = error_of(lambda: parse(BASE + "batching: {rows_max: 0, wait_ms_max: 0.001}"))
    assert "batching.wait_ms_max" in error.message


@pytest.mark.parametrize(
    ("rows_max", "shape", "fits"),
    [
        (0, [3, 4], True),
        (0, [], True),
        (1, [-1, 4], True),
        (1, [1, 4], True),
        (1, [2, 4], False),
        (1, [], False),
        (2, [-1], True),
        (2, [1], False),
    ],
)
def test_a_shape_begins_with_the_batch_where_there_is_one(
    rows_max: int, shape: list[int], fits: bool
) -> None:
    text = BASE + f"batching: {{rows_max: {rows_max}}}\n"
    text += f"inputs: [{{name: x, dtype: FP32, shape: {shape}}}]"
    if fits:
        assert parse(text).inputs[0].shape == tuple(shape)
    else:
        assert "begins with -1" in error_of(lambda: parse(text)).hint


def test_sections_that_are_left_out_have_their_defaults_where_the_task_has_them() -> None:
    assert parse(BASE).embedding is None
    text = BASE + "task: feature-extraction\ntokenizer: {}"
    assert (parse(text).embedding, parse(text).tokenizer) == (Embedding(), Tokenizer())
    assert parse(WRITER).generation == Generation()
    assert parse(WRITER + "generation: {}").generation == Generation()
    assert parse(ENGINE).engine == EngineOptions()
    assert parse(ENGINE + "engine: {}").engine == EngineOptions()
    assert (parse(BASE).engine, parse(BASE).generation, parse(BASE).tokenizer) == (None,) * 3
    megabytes = parse(ENGINE + "engine: {cache_mb: 1.5}").engine
    assert megabytes is not None
    assert megabytes.cache_bytes == 1_572_864


@pytest.mark.parametrize(
    ("runtime", "task"),
    [("python", "payload"), ("pipeline", "payload"), ("process", "payload"),
     ("vllm", "text-generation"), ("openvino_genai", "text-generation"),
     ("seq2seq", "text2text-generation"), ("torch", "tensor"), ("onnxruntime", "tensor")],
)  # fmt: skip
def test_the_task_follows_from_the_runtime(runtime: str, task: str) -> None:
    more = "tokenizer: {}\n" if runtime == "seq2seq" else ""
    more += "command: [serve]\n" if runtime == "process" else ""
    assert parse(f"schema: 1\nruntime: {runtime}\n{more}").task == task


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("runtime: openvino\ntask: payload", "task"),
        ("runtime: pipeline\ntask: tensor", "task"),
        ("runtime: vllm\ntask: tensor", "task"),
        ("runtime: openvino\ntask: text-generation", "task"),
        ("runtime: openvino\nengine: {}", "engine"),
        ("runtime: torch\ntask: text2text-generation", "tokenizer"),
        ("runtime: onnxruntime\ntask: text2text-generation\ntokenizer: {}", "runtime"),
        ("runtime: openvino\ntriton_python: true", "triton_python"),
        ("runtime: onnxruntime\nprecision: bf16", "precision"),
        ("runtime: vllm\nprecision: bf16", "precision"),
        ("runtime: python\npinned: true", "pinned"),
        ("runtime: vllm\npinned: true", "pinned"),
        ("runtime: torch\nbatching: {rows_max: 0}\noutputs: [{name: x, dtype: BYTES, shape: [1]}]",
         "runtime"),
        ("runtime: process\ncommand: [a]\nfile: x", "file"),
        ("runtime: python\nenvironment: {9a: b}", "environment"),
        ("runtime: python\nenvironment: {'': b}", "environment"),
        ("runtime: openvino\ntask: feature-extraction\ntokenizer: {}\nheads: "
         "[{name: a, task: regression, output: o}]", "heads"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together_are_named(text: str, key: str) -> None:
    error = error_of(lambda: parse(f"schema: 1\n{text}"))
    assert error.message.startswith(f"model.yaml: {key}")


@pytest.mark.parametrize(
    "text",
    [
        "runtime: torch\ntask: text2text-generation\ntokenizer: {}",
        "runtime: python\ntriton_python: true",
        "runtime: openvino_genai\nprecision: bf16",
        "runtime: torch\nprecision: f16\npinned: true",
        "runtime: onnxruntime\npinned: true\nbatching: {rows_max: 0}\n"
        "inputs: [{name: x, dtype: BYTES, shape: [1]}]",
        "runtime: python\nenvironment: {_A9: ''}\nparameters: {'a b': ''}",
        "runtime: openvino\ntask: multi-head\ntokenizer: {}\nembedding: {}\nheads: "
        "[{name: a, task: embedding, output: o}]",
        "runtime: openvino\ntask: text-regression\ntokenizer: {}",
    ],
)
def test_keys_that_go_together_are_read_and_written_back(text: str) -> None:
    description = parse(f"schema: 1\n{text}")
    assert parse(dump(description)) == description


@pytest.mark.parametrize(
    ("name", "fits"), [("a" * 64, True), ("a" * 65, False), ("a b", False), ("a\\n", False)]
)
def test_a_head_has_a_name_that_tensors_may_begin_with(name: str, fits: bool) -> None:
    text = BASE + "task: multi-head\ntokenizer: {}\n"
    text += f'heads: [{{name: "{name}", task: regression, output: o}}]'
    if fits:
        assert parse(text).heads[0].name == name
    else:
        assert "letters, digits" in error_of(lambda: parse(text)).hint


def test_what_is_written_is_in_the_order_in_which_it_is_explained() -> None:
    text = "runtime: python\nname: é\nlanes: 2\nenvironment: {A: b}"
    assert dump(parse(f"schema: 1\n{text}")) == (
        "schema: 1\nname: é\nruntime: python\ntask: payload\nversion: '1'\nlanes: 2\n"
        "environment:\n  A: b\n"
        "batching:\n  rows_max: 1\n  wait_ms_max: 0\n  queue_rows_max: 2048\n  priorities: 1\n"
    )


# Trees by themselves


@pytest.mark.parametrize(("depth", "fits"), [(16, True), (17, False)])
def test_a_tree_has_a_bounded_depth(depth: int, fits: bool) -> None:
    text = "{a: " * depth + "1" + "}" * depth
    if fits:
        yaml_tree.read_tree(text, "f")
    else:
        assert "deeper than 16" in error_of(lambda: yaml_tree.read_tree(text, "f")).message


def test_levels_that_end_do_not_count() -> None:
    assert yaml_tree.read_tree("a: [" + "[], {}, " * 50 + "]", "f") == {"a": [[], {}] * 50}
    deep = "a: [" + "[], " * 50 + "[" * 15 + "]" * 15 + "]"
    assert "deeper than 16" in error_of(lambda: yaml_tree.read_tree(deep, "f")).message


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_tree_has_a_bounded_size(more: int, fits: bool) -> None:
    text = "a: 1\n#".ljust(1024 * 1024 + more, "x")
    if fits:
        assert yaml_tree.read_tree(text, "f") == {"a": 1}
    else:
        assert error_of(lambda: yaml_tree.read_tree(text, "f")).code == "artifact-too-large"


@pytest.mark.parametrize(("length", "fits"), [(4096, True), (4097, False)])
def test_a_value_has_a_bounded_length(length: int, fits: bool) -> None:
    text = "a:\n b: " + "x" * length
    if fits:
        assert yaml_tree.read_tree(text, "f") == {"a": {"b": "x" * length}}
    else:
        assert "(line 2)" in error_of(lambda: yaml_tree.read_tree(text, "f")).message

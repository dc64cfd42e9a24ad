"""model.yaml: every key, every mistake by its path, and no way for the file to do harm."""

from __future__ import annotations

import pytest
from artifact_files import error_of
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.artifacts.description.description import (
    Batching,
    Embedding,
    Generation,
    Head,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.artifacts.description.model_yaml import dump, parse
from penstock.errors import CallerError

FULL = """
schema: 1
name: query-intent
runtime: openvino
task: text-classification
file: weights/model.xml
version: "3"
inputs:
  - {name: input_ids, dtype: INT64, shape: [-1, -1]}
outputs:
  - {name: logits, dtype: FP32, shape: [-1, 2]}
labels: [product search, help]
tokenizer: {file: tokenizer.json, tokens_max: 64, pad_id: 1}
batching:
  rows_max: 32
  wait_ms_max: 2.5
  rows_preferred: [8, 16]
  queue_rows_max: 1000
  queue_wait_ms_max: 250
  buckets: [16, 32, 64]
  priorities: 2
  latency_ms_p99_max: 10
lanes: 2
threads_per_lane: 1
pinned: true
parameters: {threshold: "0.5"}
environment: {OMP_NUM_THREADS: "1"}
precision: bf16
"""

DESCRIPTION = ModelDescription(
    name="query-intent",
    runtime="openvino",
    task="text-classification",
    file="weights/model.xml",
    version="3",
    inputs=(TensorSpec(name="input_ids", dtype="INT64", shape=(-1, -1)),),
    outputs=(TensorSpec(name="logits", dtype="FP32", shape=(-1, 2)),),
    labels=("product search", "help"),
    tokenizer=Tokenizer(file="tokenizer.json", tokens_max=64, pad_id=1),
    batching=Batching(
        rows_max=32,
        wait_s_max=0.0025,
        rows_preferred=(8, 16),
        queue_rows_max=1000,
        queue_wait_s_max=0.25,
        timeout_override=True,
        buckets=(16, 32, 64),
        priorities=2,
        latency_s_p99_max=0.01,
    ),
    lanes=2,
    threads_per_lane=1,
    pinned=True,
    parameters={"threshold": "0.5"},
    environment={"OMP_NUM_THREADS": "1"},
    precision="bf16",
)


def test_every_key_is_read() -> None:
    assert parse(FULL) == DESCRIPTION


@pytest.mark.parametrize(
    "description",
    [
        DESCRIPTION,
        ModelDescription(runtime="onnxruntime", file="m.onnx"),
        ModelDescription(
            runtime="python", task="payload", file="1/model.py", triton_python=True,
            batching=Batching(rows_max=4),
        ),
        ModelDescription(runtime="process", task="payload", command=("./serve", "--port={port}")),
        ModelDescription(
            runtime="openvino", task="feature-extraction", tokenizer=Tokenizer(),
            embedding=Embedding(pooling="cls", normalize=False), batching=Batching(rows_max=0),
        ),
        ModelDescription(
            runtime="openvino", task="text-classification", tokenizer=Tokenizer(),
            labels=("yes", "no", "1.0", "é: #", "null", "\n"), parameters={"empty": ""},
        ),
        ModelDescription(
            runtime="torch", task="pair-classification", tokenizer=Tokenizer(), labels=("a", "b"),
            precision="f16", batching=Batching(latency_s_p99_max=0.0125),
        ),
        ModelDescription(runtime="openvino", task="text-regression", tokenizer=Tokenizer()),
        ModelDescription(
            runtime="onnxruntime", task="multi-head", tokenizer=Tokenizer(),
            embedding=Embedding(pooling="cls"),
            heads=(
                Head(name="same-brand", task="classification", output="o1", labels=("no", "yes")),
                Head(name="alike", task="regression", output="o2"),
                Head(name="vector", task="embedding", output="o3"),
            ),
        ),
        ModelDescription(
            runtime="seq2seq", task="text2text-generation", tokenizer=Tokenizer(),
            generation=Generation(
                encoder_file="a/encoder.xml", decoder_file="a/decoder.xml", eos_ids=(2, 3),
                decoder_start_id=2, tokens_new_max=24, beams_max=1,
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(description: ModelDescription) -> None:
    assert parse(dump(description)) == description


def test_trust_is_not_written() -> None:
    assert "trusted" not in dump(ModelDescription(runtime="onnxruntime", trusted=True))


def test_the_task_follows_from_the_runtime() -> None:
    assert parse("{schema: 1, runtime: python}").task == "payload"
    assert parse("{schema: 1, runtime: openvino}").task == "tensor"
    assert parse("{schema: 1, runtime: torch}").task == "tensor"
    assert parse("{schema: 1, runtime: seq2seq, tokenizer: {}}").task == "text2text-generation"


def test_a_model_that_writes_gets_a_section_of_defaults() -> None:
    assert parse("{schema: 1, runtime: seq2seq, tokenizer: {}}").generation == Generation()


BASE = "schema: 1\nruntime: openvino\n"
TEXT = BASE + "task: text-classification\ntokenizer: {}\nlabels: [a, b]\n"


HEADS = BASE + "task: multi-head\ntokenizer: {}\n"
WRITER = "schema: 1\nruntime: seq2seq\ntokenizer: {}\n"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("runtime: openvino", "schema is None", "given"),
        ("schema: 2\nruntime: openvino", "schema is 2", "an integer from 1 to 1"),
        ("schema: 1", "runtime is None", "given"),
        ("schema: 1\nruntime: jax", "runtime is 'jax'", "'openvino', 'onnxruntime'"),
        (BASE + "rows: 3", "unknown key rows", "The keys here are: schema, runtime"),
        (BASE + "batching: {rowsmax: 3}", "unknown key batching.rowsmax", "rows_max"),
        (BASE + "lane: 3", "unknown key lane", "Did you mean lanes? The keys here are"),
        ("schema: 1\nruntim: openvino", "runtime is None", "Is runtim meant to be it?"),
        (BASE + "trusted: true", "trusted is True", "given by the operator"),
        (BASE + "version: 1.10", "version is 1.1", "put it in quotes"),
        (BASE + "lanes: 0", "lanes is 0", "an integer from 1 to 1024"),
        (BASE + "lanes: true", "lanes is True", "an integer"),
        (BASE + "lanes: '2'", "lanes is '2'", "an integer"),
        (BASE + "lanes:", "lanes is None", "left out"),
        (BASE + "labels: yes", "labels is True", "a list"),
        (BASE + "labels: [yes]", "labels[0] is True", "put it in quotes"),
        (BASE + "file: ../model.onnx", "'../model.onnx' is refused", "relative"),
        (BASE + "file: /model.onnx", "it is absolute", "relative"),
        (BASE + "environment: {A: 1}", "environment.A is 1", "put it in quotes"),
        (BASE + "environment: {'A B': ''}", "environment is 'A B'", "letters, digits"),
        (BASE + "precision: int4", "precision is 'int4'", "'bf16'"),
        (BASE + "batching: {rows_max: 70000}", "batching.rows_max is 70000", "from 0 to 65536"),
        (BASE + "batching: {wait_ms_max: -1}", "batching.wait_ms_max is -1", "a number from 0"),
        (BASE + "batching: {wait_ms_max: .nan}", "batching.wait_ms_max is nan", "a number from 0"),
        (BASE + "batching: {wait_ms_max: 0x" + "f" * 4000 + "}", "batching.wait_ms_max is a huge",
         "a number"),
        (BASE + "batching: {rows_max: 0, wait_ms_max: 5}", "batching.wait_ms_max is 5.0",
         "0 where"),
        (BASE + "batching: {rows_max: 4, rows_preferred: [8]}", "rows_preferred[0] is 8", "1 to 4"),
        (BASE + "batching: {buckets: [32, 16]}", "batching.buckets is [32, 16]", "ascending"),
        (BASE + "inputs: {}", "inputs is {}", "a list"),
        (BASE + "inputs: [x]", "inputs[0] is 'x'", "a mapping"),
        (BASE + "inputs: [{name: x, dtype: FP32}]", "inputs[0].shape is None", "given"),
        (BASE + "inputs: [{name: x, dtype: float, shape: [-1]}]", "inputs[0].dtype is 'float'",
         "'FP32'"),
        (BASE + "inputs: [{name: x, dtype: FP32, shape: [3, 4]}]", "inputs[0].shape is [3, 4]",
         "begins with -1"),
        (BASE + "inputs: [{name: x, dtype: FP32, shape: [-1, -2]}]", "inputs[0].shape[1] is -2",
         "from -1"),
        (BASE + "inputs: [{name: x, dtype: FP32, shape: [-1]}, "
         "{name: x, dtype: FP32, shape: [-1]}]", "inputs[1].name is 'x'", "no other tensor"),
        (BASE + "inputs: [{name: x, dtype: BYTES, shape: [-1]}]", "runtime is 'openvino'",
         "onnxruntime"),
        (BASE + "task: payload", "task is 'payload'", "tensor"),
        ("schema: 1\nruntime: python\ntask: tensor", "task is 'tensor'", "payload"),
        (BASE + "task: text-classification\nlabels: [a]", "tokenizer is None", "given"),
        (BASE + "task: text-classification\ntokenizer: {}", "labels is []", "class names"),
        (BASE + "tokenizer: {}", "tokenizer is 'a section'", "left out"),
        (TEXT + "embedding: {}", "embedding is 'a section'", "feature-extraction only"),
        (BASE + "task: pair-classification\ntokenizer: {}", "labels is []", "class names"),
        (BASE + "task: text-regression", "tokenizer is None", "given"),
        (HEADS, "heads is []", "multi-head"),
        (TEXT + "heads: [{name: a, task: regression, output: o}]", "heads is ['a']", "multi-head"),
        (HEADS + "labels: [a]\nheads: [{name: a, task: regression, output: o}]", "labels is ['a']",
         "each head has its own"),
        (HEADS + "heads: [{task: regression, output: o}]", "heads[0].name is None", "given"),
        (HEADS + "heads: [{name: a, task: regression}]", "heads[0].output is None", "given"),
        (HEADS + "heads: [{name: a.b, task: regression, output: o}]", "heads[0].name is 'a.b'",
         "letters, digits"),
        (HEADS + "heads: [{name: a, task: tagging, output: o}]", "heads[0].task is 'tagging'",
         "'classification', 'regression', 'embedding'"),
        (HEADS + "heads: [{name: a, task: classification, output: o}]", "heads[0].labels is []",
         "class names"),
        (HEADS + "heads: [{name: a, task: regression, output: o, labels: [b]}]",
         "heads[0].labels is ['b']", "classification head"),
        (HEADS + "heads: [{name: a, task: regression, output: o}, "
         "{name: a, task: embedding, output: p}]", "heads[1].name is 'a'", "no other head"),
        (HEADS + "heads: [{name: a, task: regression, output: o, weight: 2}]",
         "unknown key heads[0].weight", "name, task, output, labels"),
        (TEXT + "generation: {}", "generation is 'a section'", "text2text-generation only"),
        (WRITER + "task: text-regression", "runtime is 'seq2seq'", "text2text-generation"),
        (BASE + "task: text2text-generation\ntokenizer: {}", "runtime is 'openvino'",
         "seq2seq or torch"),
        ("schema: 1\nruntime: seq2seq", "tokenizer is None", "given"),
        (WRITER + "generation: {eos_ids: [-1]}", "generation.eos_ids[0] is -1", "from 0"),
        (WRITER + "generation: {beams_max: 0}", "generation.beams_max is 0", "from 1 to 64"),
        (WRITER + "generation: {decoder_file: ../x}", "'../x' is refused", "relative"),
        (BASE + "batching: {latency_ms_p99_max: 0}", "batching.latency_ms_p99_max is 0", "number"),
        (BASE + "command: [serve]", "command is ['serve']", "process"),
        ("schema: 1\nruntime: process", "command is []", "process"),
        ("schema: 1\nruntime: python\nprecision: f32", "precision is 'f32'",
         "openvino, torch, seq2seq, openvino_genai only"),
        ("[1, 2]", "the file holds [1, 2]", "a mapping"),
        ("", "the file holds None", "a mapping"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_path_and_what_is_allowed(
    text: str, message: str, hint: str
) -> None:
    error = error_of(lambda: parse(text))
    assert error.code in ("model-yaml-invalid", "artifact-path-unsafe")
    assert error.message.startswith("model.yaml: ")
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a: &x [1]\nb: *x", "aliases are not allowed (line 2)"),
        ("a: &a [b]\n<<: *a", "aliases are not allowed"),
        ("schema: 1\nschema: 1", "'schema' is given twice (line 2)"),
        ("1: 2", "a key of type int; quote it (line 1)"),
        ("[" * 100, "nested deeper than 16 levels"),
        ("a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("a: " + "x" * 5000, "more than 4096 characters"),
        ("a: [", "node content"),
        ("a: \x07", "control characters are not allowed"),
        ("--- 1\n--- 2", "expected a single document"),
    ],
)
def test_a_harmful_or_broken_file_is_refused(text: str, cause: str) -> None:
    error = error_of(lambda: parse(text))
    assert error.code == "model-yaml-invalid"
    assert cause in error.message


def test_a_file_of_megabytes_is_refused_unread() -> None:
    assert error_of(lambda: parse("#" * (1024 * 1024 + 1))).code == "artifact-too-large"


def test_bytes_that_are_no_text_are_refused() -> None:
    assert error_of(lambda: parse(b"\xff\xfe\x00\xd8")).code == "model-yaml-invalid"
    assert error_of(lambda: parse(b"a: \xc3\x28")).code == "model-yaml-invalid"


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6),
    st.sampled_from(["openvino", "python", "tensor", "FP32", "model.onnx", "..", "-1", 1, 0, -1]),
)  # fmt: skip
_TREES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "dtype", "shape", "rows_max", "wait_ms_max", "buckets", "file", "output"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    ["name", "runtime", "task", "file", "inputs", "labels", "tokenizer", "embedding", "batching",
     "lanes", "heads", "generation", "command", "parameters", "environment", "precision", "other"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(tree=st.dictionaries(_KEYS, _TREES, max_size=4))
def test_any_tree_is_a_description_or_a_clear_error(tree: dict[str, object]) -> None:
    import yaml

    text = yaml.safe_dump({"schema": 1, "runtime": "openvino"} | tree)
    try:
        description = parse(text)
    except CallerError as error:
        assert error.hint  # noqa: PT017 - any other exception fails the test
    else:
        assert parse(dump(description)) == description


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
def test_line_ends_of_unicode_survive_writing_and_reading(end: str) -> None:
    first = parse(BASE + f'labels: ["a{end}b"]'.encode("unicode_escape").decode())
    assert first.labels == (f"a{end}b",)
    assert parse(dump(first)) == first


@settings(max_examples=300, deadline=None)
@given(
    text=st.one_of(st.binary(max_size=60), st.text(alphabet="a1:-[]{}&*!|>'\"%@ \n\t", max_size=60))
)
def test_any_text_is_a_description_or_a_clear_error(text: bytes | str) -> None:
    try:
        parse(text)
    except CallerError as error:
        assert error.code  # noqa: PT017 - any other exception fails the test
    else:
        raise AssertionError("no such text is a complete description")


@settings(max_examples=200, deadline=None)
@given(wait_ms=st.integers(0, 3_600_000_000).map(lambda us: us / 1000))
def test_times_survive_writing_and_reading(wait_ms: float) -> None:
    first = parse(BASE + f"batching: {{wait_ms_max: {wait_ms!r}}}")
    assert parse(dump(first)).batching.wait_s_max == pytest.approx(first.batching.wait_s_max)

"""What exporters and image variables say: each rule at its edge, odd values included."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from artifact_files import IR_XML, error_of, onnx_bytes, write

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import EngineOptions, TensorSpec
from penstock.artifacts.detection import huggingface, images
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.detection.generation_layout import PROPERTIES, options_of, runtime_of
from penstock.artifacts.detection.unserved import layout_unknown
from penstock.artifacts.files.model_files import find_model_file, inside
from penstock.artifacts.triton import config as triton
from penstock.artifacts.triton import config_tensors
from penstock.errors import CallerError

CONFIG: dict[str, Any] = {
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "search", "1": "media"},
}


def tokens_max(tmp_path: Path, config: str = "{}", **files: str) -> int:
    """What a classifier's files say of its longest text, as JSON."""
    folder = {f"{name}.json": text for name, text in files.items()}
    merged = json.loads(config) | CONFIG
    write(tmp_path, {"tokenizer.json": "{}", "config.json": json.dumps(merged)} | folder)
    found = huggingface.text_model(tmp_path, "openvino", "m.onnx")
    assert found is not None
    assert found.tokenizer is not None
    return found.tokenizer.tokens_max


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("1", 1),
        ("511", 511),
        ("513", 512),
        ("128.0", 128),
        ("1e30", 512),
        ("1e400", 512),
        ("Infinity", 512),
        ("NaN", 512),
        ("0", 512),
        ("-1", 512),
        ("true", 512),
        ('"128"', 512),
        ("null", 512),
    ],
)
def test_the_longest_text_is_the_least_bound_that_is_one(
    tmp_path: Path, bound: str, expected: int
) -> None:
    for name, key in (
        ("tokenizer_config", "model_max_length"),
        ("sentence_bert_config", "max_seq_length"),
    ):
        folder = tmp_path / name
        assert tokens_max(folder, **{name: f'{{"{key}": {bound}}}'}) == expected
    assert tokens_max(tmp_path / "config", f'{{"max_position_embeddings": {bound}}}') == expected


def test_the_least_of_several_bounds_counts(tmp_path: Path) -> None:
    files = {
        "tokenizer_config": '{"model_max_length": 300}',
        "sentence_bert_config": '{"max_seq_length": 200}',
    }
    assert tokens_max(tmp_path, '{"max_position_embeddings": 400}', **files) == 200


@pytest.mark.parametrize(
    ("value", "pad_id"), [(0, 0), (7, 7), (-1, 0), (True, 0), (1.0, 0), ("1", 0), (None, 0)]
)
def test_padding_is_a_number_or_the_first(tmp_path: Path, value: Any, pad_id: int) -> None:
    config = CONFIG | {"pad_token_id": value}
    write(tmp_path, {"tokenizer.json": "{}", "config.json": json.dumps(config)})
    found = huggingface.text_model(tmp_path, "openvino", "m.onnx")
    assert found is not None
    assert found.tokenizer is not None
    assert (found.tokenizer.pad_id, found.batching.rows_max) == (pad_id, 32)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_max_tokens": True}, None),
        ({"word_embedding_dimension": 4}, None),
    ],
)
def test_a_sentence_encoder_pools_in_one_way_that_is_known(
    tmp_path: Path, pooling: dict[str, Any], expected: str | None
) -> None:
    write(tmp_path, {"tokenizer.json": "{}", "config.json": "{}",
                     "1_Pooling/config.json": json.dumps(pooling)})  # fmt: skip
    (tmp_path / "2_Normalize").mkdir()
    found = huggingface.text_model(tmp_path, "openvino", "m.onnx")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.embedding is not None
        assert (found.embedding.pooling, found.embedding.normalize) == (expected, True)
        assert (found.task, found.labels) == ("feature-extraction", ())


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json"])
def test_a_text_model_needs_its_tokenizer_and_its_configuration(
    tmp_path: Path, missing: str
) -> None:
    files: dict[str, bytes | str] = {"tokenizer.json": "{}", "config.json": json.dumps(CONFIG)}
    del files[missing]
    write(tmp_path, files)
    assert huggingface.text_model(tmp_path, "openvino", "m.onnx") is None


@pytest.mark.parametrize(
    ("problem", "labels"),
    [(None, ("search", "media")), ("single_label_classification", ("search", "media")),
     ("regression", ())],
)  # fmt: skip
def test_a_classifier_gives_one_label(
    tmp_path: Path, problem: Any, labels: tuple[str, ...]
) -> None:
    config = CONFIG | {"problem_type": problem}
    write(tmp_path, {"tokenizer.json": "{}", "config.json": json.dumps(config)})
    found = huggingface.text_model(tmp_path, "openvino", "m.onnx")
    assert (found.labels if found is not None else ()) == labels


def test_one_architecture_of_several_may_make_a_classifier(tmp_path: Path) -> None:
    config = CONFIG | {"architectures": ["BertModel", *CONFIG["architectures"]]}
    write(tmp_path, {"tokenizer.json": "{}", "config.json": json.dumps(config)})
    found = huggingface.text_model(tmp_path, "openvino", "m.onnx")
    assert found is not None
    assert found.labels == ("search", "media")


def test_json_of_an_exporter_is_an_object_of_bounded_size(tmp_path: Path) -> None:
    bound = 4 * 1024 * 1024
    padded = b'{"a":1}'.ljust(bound)
    write(tmp_path, {"fits.json": padded, "large.json": padded + b" ", "list.json": "[]",
                     "deep.json": "[" * 100_000})  # fmt: skip
    assert huggingface.read_json(tmp_path / "fits.json") == {"a": 1}
    for name in ("large", "list", "deep"):
        error = error_of(lambda name=name: huggingface.read_json(tmp_path / f"{name}.json"))
        assert error.code == "model-file-invalid"


@pytest.mark.parametrize(
    ("workers", "lanes"),
    [("", 1), ("1", 1), ("64", 64), ("65", None), ("0", None), ("00640", None), ("000001111", None),
     ("\u0663", None), ("1.0", None), ("-1", None), ("9" * 5000, None)],
)  # fmt: skip
def test_workers_are_a_number_up_to_a_bound(
    tmp_path: Path, workers: str, lanes: int | None
) -> None:
    write(tmp_path, {"code/inference.py": ""})
    environment = {"SAGEMAKER_MODEL_SERVER_WORKERS": workers}
    if lanes is None:
        error = error_of(lambda: detect(tmp_path, environment=environment))
        assert error.code == "environment-invalid"
    else:
        assert detect(tmp_path, environment=environment).description.lanes == lanes


# Settings of generation engines


def options(tmp_path: Path, environment: dict[str, str], runtime: str = "vllm") -> EngineOptions:
    return options_of(EngineOptions(), tmp_path / PROPERTIES, environment, runtime=runtime)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0001", 1), (str(2**40), 2**40), (str(2**40 + 1), None), ("0", None),
     ("0" * 19 + "1" + "9" * 30, None), ("0" * 19 + "1" + "9" * 5000, None), ("", None),
     ("-1", None), ("\u0661", None)],
)  # fmt: skip
def test_a_setting_is_a_number_up_to_a_bound(tmp_path: Path, text: str, value: int | None) -> None:
    environment = {"SM_VLLM_MAX_NUM_SEQS": text}
    if value is None:
        assert error_of(lambda: options(tmp_path, environment)).code == "options-invalid"
    else:
        assert options(tmp_path, environment).sequences_max == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("1", True), ("yes", True), ("false", False), ("0", False),
     ("No", False), ("on", None), ("", None)],
)  # fmt: skip
def test_a_flag_is_one_of_six_words(tmp_path: Path, text: str, value: bool | None) -> None:
    environment = {"OPTION_ENABLE_PREFIX_CACHING": text}
    if value is None:
        assert error_of(lambda: options(tmp_path, environment)).code == "options-invalid"
    else:
        assert options(tmp_path, environment).prefix_caching is value


def test_the_environment_counts_more_than_the_file_and_later_lists_more_than_earlier_ones(
    tmp_path: Path,
) -> None:
    lines = ("option.max_num_seqs = 1", "option.max_model_len=11", "other.max_model_len=99",
             "option.no_equals", " option.dtype = bf16 ", "# option.max_num_seqs=9")  # fmt: skip
    write(tmp_path, {PROPERTIES: "\n".join(lines)})
    told = options(tmp_path, {})
    assert (told.sequences_max, told.context_tokens_max) == (1, 11)
    assert told.options == {"dtype": "bf16"}
    environment = {"OPTION_MAX_NUM_SEQS": "2"}
    assert options(tmp_path, environment).sequences_max == 2
    environment["SM_VLLM_MAX_NUM_SEQS"] = "3"
    assert options(tmp_path, environment).sequences_max == 3
    environment["MAX_CONCURRENT_REQUESTS"] = "4"
    assert options(tmp_path, environment).sequences_max == 4
    environment["MAX_CONCURRENT_REQUESTS"] = ""
    assert options(tmp_path, environment).sequences_max == 3


def test_a_chat_template_is_a_text(tmp_path: Path) -> None:
    environment = {"OPTION_CHAT_TEMPLATE": "own.jinja"}
    assert options(tmp_path, environment).chat_template == "own.jinja"


def test_what_is_in_no_table_goes_to_the_engine_that_has_such_options(tmp_path: Path) -> None:
    environment = {
        "OPTION_TENSOR_PARALLEL_DEGREE": "2", "SM_VLLM_DTYPE": " bf16 ", "OPTION_MODEL_ID": "x",
        "QUANTIZE": "awq", "NUM_SHARD": "",
    }  # fmt: skip
    told = {"tensor_parallel_size": "2", "dtype": "bf16", "quantization": "awq"}
    assert options(tmp_path, environment).options == told
    assert options(tmp_path, environment, "openvino_genai").options == {}


def test_settings_have_a_bounded_size(tmp_path: Path) -> None:
    write(tmp_path, {PROPERTIES: b"#" * 65_536})
    assert options(tmp_path, {}) == EngineOptions()
    write(tmp_path, {PROPERTIES: b"#" * 65_537})
    with pytest.raises(Exception, match="larger than 65536 B"):
        options(tmp_path, {})


@pytest.mark.parametrize(
    ("lines", "environment", "runtime"),
    [
        ("", {}, ""),
        ("option.rolling_batch=vLLM", {}, "vllm"),
        ("option.rolling_batch=lmi-dist", {}, ""),
        ("option.other=vllm", {}, ""),
        ("option.rolling_batch=auto", {"OPTION_ROLLING_BATCH": "vllm"}, "vllm"),
        ("", {"SM_VLLM_DTYPE": "bf16"}, "vllm"),
        ("", {"SM_VLLMS": "x"}, ""),
    ],
)
def test_settings_may_name_the_engine(
    tmp_path: Path, lines: str, environment: dict[str, str], runtime: str
) -> None:
    write(tmp_path, {PROPERTIES: lines})
    assert runtime_of(tmp_path / PROPERTIES, environment) == runtime


# Files


def test_the_model_file_is_of_the_first_suffix_that_has_any(tmp_path: Path) -> None:
    write(tmp_path, {"b.onnx": onnx_bytes(), "a.xml": IR_XML, "notes.xml": "<notes/>",
                     "openvino_tokenizer.xml": IR_XML})  # fmt: skip
    (tmp_path / "c.onnx").mkdir()
    assert find_model_file(tmp_path, (".xml", ".onnx")) == "a.xml"
    assert find_model_file(tmp_path, (".onnx", ".xml")) == "b.onnx"
    assert find_model_file(tmp_path, (".pt2",)) == ""
    assert find_model_file(tmp_path, ()) == ""


def test_of_several_model_files_the_usual_name_is_meant(tmp_path: Path) -> None:
    write(tmp_path, {"a.onnx": b"", "model_quantized.onnx": b"", "model.onnx": b""})
    assert find_model_file(tmp_path, (".onnx",)) == "model.onnx"
    (tmp_path / "model.onnx").unlink()
    assert find_model_file(tmp_path, (".onnx",)) == "model_quantized.onnx"
    (tmp_path / "model_quantized.onnx").rename(tmp_path / "b.onnx")
    error = error_of(lambda: find_model_file(tmp_path, (".onnx",)))
    assert (error.code, "'a.onnx', 'b.onnx'" in error.message) == ("artifact-ambiguous", True)


@pytest.mark.parametrize(
    ("net_at", "found"), [(4092, "m.xml"), (4093, "")]
)  # four bytes of `<net` within the first 4096
def test_an_ir_says_so_at_its_beginning(tmp_path: Path, net_at: int, found: str) -> None:
    write(tmp_path, {"m.xml": b" " * net_at + b"<net"})
    assert find_model_file(tmp_path, (".xml",)) == found


@pytest.mark.parametrize(("size", "whole"), [(16, True), (15, False)])
def test_the_weights_of_an_ir_are_as_long_as_it_says(
    tmp_path: Path, size: int, whole: bool
) -> None:
    write(tmp_path, {"m.xml": IR_XML, "m.bin": bytes(size)})
    if whole:
        assert detect(tmp_path).description.file == "m.xml"
    else:
        error = error_of(lambda: detect(tmp_path))
        assert "refers to 16 bytes, and it has 15" in error.message


def test_a_named_file_is_in_the_artifact(tmp_path: Path) -> None:
    root = write(tmp_path / "m", {"a/b": ""})
    write(tmp_path, {"outside": ""})
    assert inside(root, "a/b", key="k") == root / "a/b"
    (root / "here").symlink_to("a/b")
    assert inside(root, "here", key="k") == root / "here"
    (root / "there").symlink_to("../outside")
    assert error_of(lambda: inside(root, "there", key="k")).code == "artifact-path-unsafe"
    assert error_of(lambda: inside(root, "a", key="k")).code == "artifact-incomplete"
    assert error_of(lambda: inside(root, "../outside", key="k")).code == "artifact-path-unsafe"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "it holds nothing"),
        ({f"{n:02}": "" for n in range(12)}, ", '11'"),
        ({f"{n:02}": "" for n in range(13)}, ", '11' and 1 more"),
        ({"z": "", "a/b": ""}, "it holds 'z', 'a/b'"),
    ],
)
def test_an_unknown_layout_is_told_by_its_files(
    tmp_path: Path, files: dict[str, str], told: str
) -> None:
    write(tmp_path, dict(files))
    assert layout_unknown(tmp_path, trusted=False).message.endswith(told)


def test_a_bin_beside_a_configuration_is_told_as_what_it_is(tmp_path: Path) -> None:
    write(tmp_path, {"m.bin": ""})
    assert "weights without the graph" in layout_unknown(tmp_path, trusted=False).message
    write(tmp_path, {"pytorch_model.bin": ""})
    assert layout_unknown(tmp_path, trusted=False).code == "artifact-untrusted"
    trusted = layout_unknown(tmp_path, trusted=True)
    assert (trusted.code, "is trusted" in trusted.message) == ("artifact-layout-unknown", True)


# Images


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        ("", ""),
        ("lmi", "generation"),
        ("x/lmi11.0", "generation"),
        ("x/filmindex", "unknown"),
        ("x/lmix", "unknown"),
        ("x/lmizz", "unknown"),
        ("x/9lmi", "unknown"),
        ("x/filmindex-lmi", "generation"),
        ("X/VLLM:1", "generation"),
        ("x/huggingface-pytorch-inference:2", "python"),
        ("x/sagemaker-tritonserver:1", "triton"),
        ("local://triton", "triton"),
        ("local://torch/", "local"),
    ],
)
def test_a_word_in_an_image_is_a_whole_word(image: str, kind: str) -> None:
    assert images.image_hint(image, {}).kind == kind


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("server", True), ("", False), ("server*", False), ("*server:?", True), ("*serve[rs]:1", True),
     ("*SERVER:1", False)],
)  # fmt: skip
def test_a_pattern_matches_the_whole_image_and_a_text_a_part_of_it(
    pattern: str, matches: bool
) -> None:
    hint = images.image_hint("registry/my-server:1", {pattern: ("serve",)})
    assert (hint.kind, hint.command) == (("process", ("serve",)) if matches else ("unknown", ()))


# Many names, and long numbers


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)


def test_a_thousand_tensors_are_not_compared_with_each_other() -> None:
    Compared.times = 0
    tensors = tuple(
        TensorSpec(name=Compared(f"tensor{n}"), dtype="FP32", shape=(1,)) for n in range(1000)
    )
    config_tensors.refuse_duplicates(tensors, "config.pbtxt", "input")
    assert Compared.times < 1000
    with pytest.raises(CallerError, match="'tensor7' is given twice"):
        config_tensors.refuse_duplicates((*tensors, tensors[7]), "config.pbtxt", "input")


@pytest.mark.parametrize(
    "item",
    ["inputs:\n{}", "heads:\n{}"],
)
def test_many_entries_of_a_model_yaml_are_read_in_steps_that_grow_with_them(item: str) -> None:
    entry = {
        "inputs": "- {{name: n{n}, dtype: FP32, shape: [1]}}\n",
        "heads": "- {{name: n{n}, task: embedding, output: o}}\n",
    }[item.partition(":")[0]]

    def steps(count: int) -> int:
        entries = "".join(entry.format(n=n) for n in range(count))
        text = "schema: 1\nruntime: onnxruntime\nbatching: {rows_max: 0}\n" + item.format(entries)
        calls = 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            with contextlib.suppress(CallerError):
                model_yaml.parse(text)
        finally:
            sys.setprofile(before)
        return calls

    assert steps(800) < 2.2 * steps(400)


@pytest.mark.parametrize("digits", [16, 62, 63, 5000])
def test_a_number_of_a_configuration_has_a_bounded_length(digits: int) -> None:
    """Python itself refuses to show one of thousands of digits."""
    error = error_of(lambda: triton.parse_config(f"max_batch_size: 0x{'f' * digits}"))
    assert error.code == ("triton-config-invalid" if digits <= 62 else "pbtxt-invalid")


def test_neighbouring_strings_are_one() -> None:
    text = 'name: "a"' + '"b"' * 1000 + "'c'"
    assert triton.parse_config(text).name == "a" + "b" * 1000 + "c"


def test_weights_without_a_configuration_are_told_as_weights(tmp_path: Path) -> None:
    write(tmp_path, {"model.safetensors": ""})
    assert "Hugging Face weights" in layout_unknown(tmp_path, trusted=False).message


def test_of_very_many_files_not_all_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.artifacts.detection.unserved._FILES_SEEN_MAX", 2)
    write(tmp_path, dict.fromkeys(("a", "b", "c", "d"), ""))
    told = layout_unknown(tmp_path, trusted=False).message
    assert told.partition("it holds ")[2].count(",") == 1
